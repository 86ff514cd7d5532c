"""The encoder: embeddings, then the blocks that the sharing plan names for each depth."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from albertine.core.batch import Packed
from albertine.core.number_formats import InferencePrecision
from albertine.core.precision import compute_format, without_autocast
from albertine.errors import SettingsError
from albertine.model import components
from albertine.model.backend import backend_for, computing, current
from albertine.model.backend.base import Backend
from albertine.model.config import EncoderConfig
from albertine.model.coordinate_embeddings import added_before, signals_of
from albertine.model.embeddings import Embeddings
from albertine.model.key_value_cache import Past
from albertine.model.layer_loop import Depths, EncoderOutput, Step
from albertine.model.layer_parameters import depth_parameters, embeddings_again
from albertine.model.layers import Module
from albertine.model.position_inputs import placed
from albertine.model.recompute import recomputed
from albertine.model.rows import Rows

if TYPE_CHECKING:
    from albertine.core.settings import ComputeSettings


class Encoder(Module):
    """A parameter-shared transformer encoder over packed batches.

    Attributes:
        precision: format of the matrix products; parameters are float32 whatever it says.
        recompute: in training keep only what goes from depth to depth, and compute the rest again.
        compiled: compile a depth as one where that is faster (a GPU, in training).
        backend: "auto" is the fastest, "plain" the one that anything can be done to.
        depths: the loop over depths.
        signals: what is added before every step. halting: where positions decide how many steps they take.
    """

    recompute = compiled = False

    def __init__(self, config: EncoderConfig, precision: InferencePrecision = "float32") -> None:
        super().__init__()
        self.config = config
        self.precision: InferencePrecision = precision
        self.backend = "auto"
        self.signals = signals_of(config)
        self.halting = components.halting_unit(config)
        self.depths: Depths = components.loop(config, self.halting, self.signals)
        self.embeddings = Embeddings(config)
        self.attention = components.attention_blocks(config)
        self.feed_forward = components.feed_forward_blocks(config)
        self.own = depth_parameters(config)
        self.injection = components.injection(config)
        self.final_norm = components.final_norm(config)

    def compute_as(self, how: ComputeSettings) -> None:
        """Follow the settings of a run."""
        self.precision, self.recompute, self.compiled = how.precision, how.recompute, how.compile

    def computing(self) -> AbstractContextManager[Backend]:
        """A forward pass of this encoder and what stands on it: the one under way, or a new one."""
        return computing(self, self._backend)

    def _backend(self) -> Backend:
        weight, precision = self.embeddings.word.weight, self.precision
        if precision == "auto" and self.config.solves:
            precision = "float32"  # bfloat16 moves a state farther than the tolerance of a fixed point
        form = compute_format(precision, weight, self.training or torch.is_grad_enabled())
        blocks = *self.attention, *self.feed_forward
        stay = {type(block._compiled_call_impl or block) for block in blocks} <= components.BLOCKS
        return backend_for(self.backend, form, weight.device, weights_stay=stay, compiled=self.compiled)

    @without_autocast
    def forward(
        self,
        packed: Packed,
        *,
        depth: int | None = None,
        rows: Tensor | None = None,
        all_depths: bool = False,
    ) -> EncoderOutput:
        """Encode a packed batch.

        Args:
            depth: how many depths to compute, default all, 0 none; of a loop to a fixed point the most steps.
            rows: int64 (P,) into T, none more than twice: the only ones of the last depth that are computed.
            all_depths: also return the output of every depth, for analysis; not together with `rows`.

        Raises:
            SettingsError: such a depth or such long sequences are not there; `rows` with `all_depths`.
        """
        most = len(self.config.plan.attention)
        depth = most if depth is None else depth
        if not 0 <= depth <= most:
            raise SettingsError(f"depth {depth} is outside 0..{most}")
        if rows is not None and all_depths:
            raise SettingsError("all_depths computes every row; ask for rows or for all_depths")
        self.embeddings.check_length(packed.max_length)
        with self.computing() as ops:
            out: EncoderOutput = ops.whole(self, packed, depth, rows, all_depths)
        if out.equilibrium is not None:
            out.equilibrium.reached(packed.num_sequences, tell=not self.training)
        return out

    def encoded(
        self, ops: Backend, batch: Packed, depth: int, rows: Tensor | None, all_depths: bool
    ) -> EncoderOutput:
        """What `forward` returns, by a backend that may have filled the batch and `rows` up."""
        x_TH = self.embeddings(batch, ops.form.dtype)
        every = Rows.of(batch)
        if self.config.positions != "learned":
            every = placed(every, self.config, x_TH, self.training)
        if self.injection is not None:
            every = replace(every, injection=self.injection(x_TH))
        wanted = None if rows is None else every.select(rows)
        out = self.depths.run(self.stepping(x_TH), x_TH, every, depth, wanted, all_depths)
        return out if self.final_norm is None or not depth else out.normed(self.final_norm)

    def stepping(self, start_TH: Tensor) -> Step:
        """`step` of a pass that begins with these embeddings, with what is added before every depth."""
        step = self.step if self.signals is None else added_before(self.step, self.signals)
        if self.own is not None and "injection" in self.config.plan.own:
            step = added_before(step, embeddings_again(self.own, start_TH))
        return step

    def step(
        self, d: int, x_RH: Tensor, context_TH: Tensor, queries: Rows, keys: Rows, past: Past | None = None
    ) -> Tensor:
        """Depth d, (R, H) to (R, H): `x_RH` are the rows that ask, `context_TH` those that are looked at."""
        plan = self.config.plan
        attention = self.attention[plan.attention[d]]
        feed_forward = self.feed_forward[plan.feed_forward[d]]
        own = None if self.own is None else self.own[d]
        if self.recompute and past is None and queries.places is keys.places and torch.is_grad_enabled():
            return recomputed(self, attention, feed_forward, own, x_RH, context_TH, queries, keys)
        return current().depth(attention, feed_forward, x_RH, context_TH, queries, keys, past, own)
