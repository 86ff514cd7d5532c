"""The encoder: embeddings, then the blocks that the sharing plan names for each depth."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from albertine.arithmetic import InferencePrecision
from albertine.errors import SettingsError
from albertine.layout import Packed
from albertine.model.backend import backend_for, computing, current
from albertine.model.backend.base import Backend
from albertine.model.block import AttentionBlock, FeedForwardBlock, LayerNorm, Linear
from albertine.model.config import EncoderConfig
from albertine.model.depth_parameters import DepthParameters, depth_parameters
from albertine.model.depths import Depths, EncoderOutput, FixedDepths, Step
from albertine.model.embeddings import Embeddings
from albertine.model.fixed_point import FixedPoint
from albertine.model.halting import Halting, HaltingUnit
from albertine.model.inner_dropout import InnerDropoutBlock
from albertine.model.key_value_cache import Past
from albertine.model.relative_attention import RelativeAttentionBlock
from albertine.model.rows import Rows, Selected
from albertine.model.signals import signals_of
from albertine.precision import compute_format, own_precision

if TYPE_CHECKING:
    from albertine.settings import Computing

BLOCKS = {AttentionBlock, RelativeAttentionBlock, FeedForwardBlock, InnerDropoutBlock}


class Encoder(nn.Module):
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
        plan = config.plan
        self.config = config
        self.precision: InferencePrecision = precision
        self.backend = "auto"
        self.signals = signals_of(config)
        self.halting = HaltingUnit(config) if config.halts else None
        self.depths: Depths = FixedDepths()
        if self.halting is not None:
            self.depths = Halting(config, self.halting, self.signals)
        elif config.solves:
            self.depths = FixedPoint(config.solver, config.tolerance)
        self.embeddings = Embeddings(config)
        self.attention = _attention_blocks(config)
        feed_forward = FeedForwardBlock if config.positions != "relative" else InnerDropoutBlock
        self.feed_forward = nn.ModuleList(feed_forward(config) for _ in set(plan.feed_forward))
        self.own = depth_parameters(config)
        hidden = config.hidden_size
        self.injection = Linear(hidden, 3 * hidden, bias=False) if config.input_injection else None
        self.final_norm: nn.Module | None = None
        if config.norm == "pre":
            self.final_norm = LayerNorm(config.hidden_size, config.layer_norm_eps, bias=config.biases)
        elif config.positions == "relative":
            self.final_norm = nn.Dropout(config.hidden_dropout_prob)  # as in XLNet's code

    def compute_as(self, how: Computing) -> None:
        """Follow the settings of a run."""
        self.precision, self.recompute, self.compiled = how.precision, how.recompute, how.compile

    def computing(self) -> AbstractContextManager[Backend]:
        """A forward pass of this encoder and what stands on it: the one under way, or a new one."""
        return computing(self, self._backend)

    def _backend(self) -> Backend:
        weight = self.embeddings.word.weight
        # What wraps a block and moves its weights, as FSDP does, gives it another class.
        whole = {type(b) for b in (*self.attention, *self.feed_forward)} <= BLOCKS
        # Rounding to bfloat16 moves a state farther than the tolerance of a fixed point.
        exact = self.config.solves and self.precision == "auto"
        precision = "float32" if exact else self.precision
        form = compute_format(precision, weight, self.training or torch.is_grad_enabled())
        return backend_for(self.backend, form, weight.device, whole=whole, compiled=self.compiled)

    @own_precision
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
            depth: how many depths to compute (an early exit), default all; 0 gives the embeddings. Of a loop
                to its fixed point: the most iterations.
            rows: int64 (P,) indices into T, none more than twice: the only rows wanted from the last computed
                depth, which then computes queries, output and feed-forward for these alone.
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
        self.embeddings.check_length(max(packed.lengths, default=0))
        with self.computing() as ops:
            batch = ops.padded(packed)
            x_TH = self.embeddings(batch, ops.form.dtype)
            every = self.injected(self.turned(Rows.of(batch), ops.form.dtype), x_TH)
            wanted = None if rows is None else every.select(ops.padded_rows(rows, len(every.positions)))
            out = self.depths.run(self.stepping(x_TH, wanted), x_TH, every, depth, wanted, all_depths)
            if self.final_norm is not None and depth:
                out = out.normed(self.final_norm)
        out = out.first(len(packed.input_ids) if rows is None else len(rows), packed.num_tokens)
        if isinstance(self.depths, FixedPoint) and out.equilibrium is not None:
            out.equilibrium.sequences = packed.num_sequences
            if not self.training:
                self.depths.tell(out)
        return out

    def turned(self, rows: Rows, dtype: torch.dtype, longest: int | None = None) -> Rows:
        """The rows as this encoder's attention wants them: with rotations where positions are rotary, with
        distances where they are relative.

        Args:
            longest: rows of the longest sequence of keys, default that of these rows.
        """
        config = self.config
        if config.positions == "rotary":
            return rows.turned(config.head_size, config.rotary_base, dtype)
        if config.positions == "relative":
            dropout = self.training * config.hidden_dropout_prob
            like = self.embeddings.word.weight.new_empty(0, dtype=dtype)
            return rows.apart(
                longest or rows.longest, config.hidden_size, config.clamp_positions, like, dropout
            )
        return rows

    def injected(self, rows: Rows, start_RH: Tensor) -> Rows:
        """The rows of a pass that begins with these embeddings, with what attention is given of them."""
        if self.injection is None:
            return rows
        return replace(rows, injection=self.injection(start_RH))

    def stepping(self, start_TH: Tensor, wanted: Selected | None = None) -> Step:
        """`step` of a pass that begins with these embeddings, which every depth may have a share of; what
        signals there are is added before it."""
        plain = self.step if self.signals is None else self.signals.around(self.step)
        if "injection" not in self.config.plan.own or self.own is None:
            return plain
        shares = [cast(DepthParameters, own).injection for own in self.own]

        def step(
            d: int, x_RH: Tensor, context_TH: Tensor, queries: Rows, keys: Rows, past: Past | None = None
        ) -> Tensor:
            if (share := shares[d]) is not None:
                added_TH = current().cast(share, start_TH.dtype) * start_TH
                same, context_TH = x_RH is context_TH, context_TH + added_TH
                some = wanted is not None and queries is wanted.rows
                added_RH = added_TH.index_select(0, wanted.places) if some else added_TH  # type: ignore[union-attr]
                x_RH = context_TH if same else x_RH + added_RH
            return plain(d, x_RH, context_TH, queries, keys, past)

        return step

    def step(
        self, d: int, x_RH: Tensor, context_TH: Tensor, queries: Rows, keys: Rows, past: Past | None = None
    ) -> Tensor:
        """Depth d, (R, H) to (R, H): `x_RH` are the rows that ask, `context_TH` those that are looked at."""
        plan, ops = self.config.plan, current()
        attention = self.attention[plan.attention[d]]
        feed_forward = self.feed_forward[plan.feed_forward[d]]
        own = None if self.own is None else cast(DepthParameters, self.own[d])
        if not (self.recompute and queries is keys and torch.is_grad_enabled()):
            return ops.depth(attention, feed_forward, x_RH, context_TH, queries, keys, past, own)

        if queries.distances is not None:  # what depths share is not computed again for each of them
            queries.distances.projected(cast(RelativeAttentionBlock, attention).position)

        def again(x_TH: Tensor) -> Tensor:
            with computing(self, lambda: ops):  # also in the backward pass, which is outside of this one
                return ops.depth(attention, feed_forward, x_TH, x_TH, queries, keys, None, own)

        return cast(Tensor, checkpoint(again, x_RH, use_reentrant=False))


def _attention_blocks(config: EncoderConfig) -> nn.ModuleList:
    count = config.plan.num_attention_blocks
    if config.positions != "relative":
        return nn.ModuleList(AttentionBlock(config) for _ in range(count))
    first = RelativeAttentionBlock(config)
    return nn.ModuleList([first, *(RelativeAttentionBlock(config, first) for _ in range(count - 1))])
