"""Where a token stands and which step this is, told again before every step: the signals of the Universal
Transformer (Dehghani et al. 2019, section 2.1, equations 6 and 7).

An encoder whose depths share one block cannot know how often it has been applied, and what its embeddings
said of places fades from step to step. So x becomes x + position signal + step signal before each step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn

from albertine.model.backend import current
from albertine.model.config import EncoderConfig
from albertine.model.init import sinusoids
from albertine.model.key_value_cache import Past
from albertine.model.layer_loop import Step
from albertine.model.rows import Rows


class StepSignals(nn.Module):
    """What is added to rows (R, H) before step d: a row of a table of places and row d of a table of steps.

    Attributes:
        position: learned, (positions, H), or None. step: learned, (depths, H), or None.
        sinusoids: which of the two are sines and cosines, and how many rows their tables have.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        kinds = {"position": config.position_signal, "step": config.step_signal}
        rows = {"position": config.max_position_embeddings, "step": config.num_hidden_layers}
        width = config.hidden_size
        learned = {
            name: nn.Parameter(torch.empty(rows[name], width)) if kind == "learned" else None
            for name, kind in kinds.items()
        }
        self.position, self.step = learned["position"], learned["step"]
        self.sinusoids = {name: rows[name] for name, kind in kinds.items() if kind == "sinusoid"}

    def forward(self, d: int, x_RH: Tensor, rows: Rows) -> Tensor:
        """(R, H) with the signals of step d, from 0, and of the places of `rows`."""
        places, steps = self._table("position", self.position, x_RH), self._table("step", self.step, x_RH)
        if steps is not None:
            x_RH = x_RH + steps[d]
        return x_RH if places is None else x_RH + places[rows.positions]

    def _table(self, name: str, learned: Tensor | None, like: Tensor) -> Tensor | None:
        """The rows of a signal in the format of `like`; None where there is none."""
        if learned is not None:
            return current().cast(learned, like.dtype)
        if name not in self.sinusoids:
            return None
        table = _sinusoids(self.sinusoids[name], like.shape[1], like.dtype, like.device)
        if type(table) is not Tensor:  # a tracer's stand-in, of no use to whoever comes next
            _sinusoids.cache_clear()
        return table


Adding = Callable[[int, Tensor, Rows], Tensor]
"""(depth d, x (R, H), rows of x) → x with what is added to it before the step, (R, H)."""


def added_before(step: Step, added: Adding) -> Step:
    """`step`, with something added before it to the rows that ask and to those that are looked at."""

    def both(
        d: int, x_RH: Tensor, context_TH: Tensor, queries: Rows, keys: Rows, past: Past | None = None
    ) -> Tensor:
        same = x_RH is context_TH
        x_RH = added(d, x_RH, queries)
        # With a past `keys` are more rows than the context, whose rows then are those of x.
        context_TH = x_RH if same else added(d, context_TH, keys)
        return step(d, x_RH, context_TH, queries, keys, past)

    return both


def signals_of(config: EncoderConfig) -> StepSignals | None:
    """Those of an encoder; None where no step has any."""
    return StepSignals(config) if (config.position_signal, config.step_signal) != ("none", "none") else None


@lru_cache(maxsize=16)  # asked at every step; no buffer, which a model built on the device "meta" would lose
def _sinusoids(rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.device("cpu"), torch.inference_mode(False):
        return sinusoids(rows, width).to(device=device, dtype=dtype)
