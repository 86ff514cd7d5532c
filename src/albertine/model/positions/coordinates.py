"""Coordinate embeddings of the Universal Transformer: position and layer number, added before every layer
(Dehghani et al. 2019, section 2.1, equations 6 and 7).

A shared block does not know how often it has been applied, and positions that are added to the embeddings
alone fade from layer to layer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn

from albertine.model.backend import current
from albertine.model.config import EncoderConfig
from albertine.model.init import sinusoids
from albertine.model.key_value_cache import LayerCache
from albertine.model.loop import LayerFunction
from albertine.model.rows import Rows


class CoordinateEmbeddings(nn.Module):
    """A row of the position table and row d of the step table, added to rows (R, H) before layer d.

    Attributes:
        position: learned, (positions, H), or None. step: learned, (layers, H), or None.
        sinusoids: number of rows of each of the two tables that is sinusoidal.
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
        """(R, H) plus the embeddings of layer d, from 0, and of the positions of `rows`."""
        positions, steps = self._table("position", self.position, x_RH), self._table("step", self.step, x_RH)
        if steps is not None:
            x_RH = x_RH + steps[d]
        return x_RH if positions is None else x_RH + positions[rows.positions]

    def _table(self, name: str, learned: Tensor | None, like: Tensor) -> Tensor | None:
        """One of the tables in the format of `like`; None where there is none."""
        if learned is not None:
            return current().cast(learned, like.dtype)
        if name not in self.sinusoids:
            return None
        table = _sinusoids(self.sinusoids[name], like.shape[1], like.dtype, like.device)
        if type(table) is not Tensor:  # a proxy of a tracer, which later passes cannot use
            _sinusoids.cache_clear()
        return table


InputAddition = Callable[[int, Tensor, Rows], Tensor]
"""(layer d, x (R, H), rows of x) → x plus what is added to the input of the layer, (R, H)."""


def with_input_addition(layer: LayerFunction, add: InputAddition) -> LayerFunction:
    """`layer`, with an addition to its query and key/value tokens."""

    def with_addition(
        d: int,
        x_RH: Tensor,
        context_TH: Tensor,
        queries: Rows,
        keys: Rows,
        cache: LayerCache | None = None,
    ) -> Tensor:
        same = x_RH is context_TH
        x_RH = add(d, x_RH, queries)
        # With a cache `keys` has more rows than the context, whose rows then are those of x.
        context_TH = x_RH if same else add(d, context_TH, keys)
        return layer(d, x_RH, context_TH, queries, keys, cache)

    return with_addition


def coordinate_embeddings(config: EncoderConfig) -> CoordinateEmbeddings | None:
    """Those of an encoder; None where it has none."""
    signals = config.position_signal, config.step_signal
    return CoordinateEmbeddings(config) if signals != ("none", "none") else None


@lru_cache(maxsize=16)  # read in every layer; a buffer would be lost in a model built on the device "meta"
def _sinusoids(rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.device("cpu"), torch.inference_mode(False):
        return sinusoids(rows, width).to(device=device, dtype=dtype)
