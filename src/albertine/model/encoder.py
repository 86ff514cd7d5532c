"""The encoder: embeddings, then the blocks that the sharing plan names for each layer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.utils.checkpoint import checkpoint

from albertine.core.batch import Packed
from albertine.core.between_layers import between_layers
from albertine.core.number_formats import InferencePrecision
from albertine.core.precision import ComputeFormat, compute_format, without_autocast
from albertine.errors import SettingsError
from albertine.model.attention import AttentionBlock
from albertine.model.backend import Linear, backend_for, current, forward_pass
from albertine.model.backend.attention_weights import AttentionWeights
from albertine.model.backend.base import Backend
from albertine.model.block import FeedForwardBlock, InnerDropoutBlock
from albertine.model.config import EncoderConfig
from albertine.model.embeddings import Embeddings
from albertine.model.fixed_point import FixedPoint
from albertine.model.halting import Halting, HaltingUnit
from albertine.model.key_value_cache import LayerCache
from albertine.model.layer_parameters import add_embeddings, hidden_norm, layer_parameters
from albertine.model.loop import (
    BranchingLoop,
    EncoderOutput,
    InterruptedLoop,
    LayerFunction,
    LayerLoop,
    in_order,
)
from albertine.model.positions.coordinates import coordinate_embeddings, with_input_addition
from albertine.model.positions.registry import ATTENTION_BLOCKS, attention_blocks, with_positions
from albertine.model.rows import Rows, SelectedRows

if TYPE_CHECKING:
    from albertine.core.settings import ComputeSettings

# torch's thread pool does not survive a fork, and an operation in the child would wait for it for ever.
# Loading a model is enough to start the pool, so a forked process computes with one thread.
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))

BLOCKS = {*ATTENTION_BLOCKS, FeedForwardBlock, InnerDropoutBlock}
"""Block classes whose weights stay in place during a pass. A wrapper that moves weights, as FSDP does, gives
a block another class; compiling a block in place gives it a function."""


class Encoder(nn.Module):
    """A parameter-shared transformer encoder over packed batches.

    Attributes:
        precision: format of the matrix products; parameters stay float32.
        recompute: in training keep only the input of every layer, and recompute the rest in the backward
            pass.
        compiled: compile a layer as one function where that is faster (a GPU, in training).
        backend: "auto" is the fastest; "plain" can be hooked, transformed and differentiated twice.
        loop: the loop over the layers.
        signals: coordinate embeddings, added to the input of every layer. halting: of a loop that halts.
        own: parameters of each layer beside those of its blocks.
    """

    recompute = compiled = False

    def __init__(self, config: EncoderConfig, precision: InferencePrecision = "float32") -> None:
        super().__init__()
        self.config = config
        self.precision: InferencePrecision = precision
        self.backend = "auto"
        self.signals = coordinate_embeddings(config)
        self.halting = HaltingUnit(config) if config.halts else None
        self.loop = self._loop()
        self.embeddings = Embeddings(config)
        self.attention = attention_blocks(config)
        self.feed_forward = _feed_forward_blocks(config)
        self.own = layer_parameters(config)
        hidden = config.hidden_size
        self.injection = Linear(hidden, 3 * hidden, bias=False) if config.input_injection else None
        self.final_norm = _final_norm(config)

    def _loop(self) -> LayerLoop:
        if self.halting is not None:
            return Halting(self.config, self.halting, self.signals)
        return FixedPoint(self.config.solver, self.config.tolerance) if self.config.solves else LayerLoop()

    def apply_settings(self, settings: ComputeSettings) -> None:
        """Take precision, recomputation and compilation from the settings of a run."""
        self.precision, self.recompute, self.compiled = (
            settings.precision,
            settings.recompute,
            settings.compile,
        )

    def forward_pass(self) -> AbstractContextManager[Backend]:
        """Context of one forward pass of this encoder and its heads: the current pass, or a new one."""
        return forward_pass(self, self._backend)

    def _form(self) -> ComputeFormat:
        weight, precision = self.embeddings.word.weight, self.precision
        if precision == "auto" and self.config.solves:
            precision = "float32"  # rounding to bfloat16 moves a state farther than the solver's tolerance
        return compute_format(precision, weight, self.training or torch.is_grad_enabled())

    def _backend(self) -> Backend:
        blocks = *self.attention, *self.feed_forward
        stay = {type(block._compiled_call_impl or block) for block in blocks} <= BLOCKS
        device = self.embeddings.word.weight.device
        return backend_for(self.backend, self._form(), device, weights_stay=stay, compiled=self.compiled)

    @without_autocast
    def forward(
        self,
        packed: Packed,
        *,
        depth: int | None = None,
        loops: int | None = None,
        shallow_loops: int | None = None,
        rows: Tensor | None = None,
        all_depths: bool = False,
        attention_weights: bool = False,
    ) -> EncoderOutput:
        """Encode a packed batch.

        Args:
            depth: number of layers to compute, default all, 0 none; with a solver the most iterations.
            loops: how often to compute the core of a plan that repeats one, before its coda; more than the
                plan has repeat the last loop (`SharingPlan.layer_order`). Not together with `depth`.
            shallow_loops: also compute the output with this smaller number of loops, which shares all but the
                coda with that of `loops`; not together with `all_depths` or `attention_weights`.
            rows: int64 (P,) into T, each at most twice: the only rows that the last layer computes.
            all_depths: also return the output of every layer; not together with `rows`.
            attention_weights: also return the attention weights of every layer, at a fixed point only those
                there; computed by plain operations, and not together with `rows`.

        Raises:
            SettingsError: `depth` or a sequence is out of range; `loops` with `depth`, or of a plan without
                a repeated core; `rows` with `all_depths` or `attention_weights`; attention weights with int8.
        """
        most = len(self.config.plan.attention)
        order = branch = None
        if loops is not None:
            if depth is not None:
                raise SettingsError("depth counts layers and loops repeats of the core; use one of them")
            depth = self.config.plan.depth_of(loops)
            order = self.config.plan.layer_order(depth)
            order = None if order == tuple(range(depth)) else order
        else:
            depth = most if depth is None else depth
            if not 0 <= depth <= most:
                raise SettingsError(f"depth {depth} is outside 0..{most}")
        if shallow_loops is not None:
            branch = self._branch(loops, shallow_loops)
            if all_depths or attention_weights:
                raise SettingsError("shallow_loops is of a pass without all_depths and attention_weights")
        if rows is not None and all_depths:
            raise SettingsError("all_depths computes every row; use rows or all_depths, not both")
        if rows is not None and attention_weights:
            raise SettingsError("attention weights are those of every row; leave out rows")
        self.embeddings.check_length(packed.max_length)
        if attention_weights:
            compute = self._with_attention_weights
            if is_dynamo_compiling():  # a compiled pass has its own backend, which stores no weights
                compute = torch.compiler.disable(compute)  # type: ignore[no-untyped-call]
            return self._finished(compute(packed, depth, all_depths, order), packed)
        with self.forward_pass() as ops:
            special = all_depths or order is not None or branch is not None
            out = None if special else ops.replay(self, packed, depth, rows)
            if out is None:
                batch, requested = ops.pad(packed, rows)
                call = None if is_dynamo_compiling() else between_layers()
                loop = branch if call is None else InterruptedLoop(branch or self.loop, call)
                compute = partial(
                    self.encode, ops, batch, depth, requested, all_depths, loop=loop, order=order
                )
                out = ops.isolate_non_finite(compute, lambda out: out.last_hidden)
                if batch is not packed or requested is not rows:
                    out = out.first(packed.num_tokens if rows is None else len(rows), packed.num_tokens)
        return self._finished(out, packed)

    def _branch(self, loops: int | None, shallow_loops: int) -> BranchingLoop:
        """
        Raises:
            SettingsError: not fewer than `loops`, or of an encoder that does not compute a fixed number of
                layers.
        """
        structure = self.config.plan.loop_structure
        if structure is None or loops is None or not 1 <= shallow_loops < loops:
            raise SettingsError(f"shallow_loops {shallow_loops} is outside 1..loops - 1, with loops {loops}")
        if type(self.loop) is not LayerLoop:
            raise SettingsError("an encoder that halts or solves has no output of fewer loops beside another")
        return BranchingLoop(structure, shallow_loops)

    def _finished(self, out: EncoderOutput, packed: Packed) -> EncoderOutput:
        if out.equilibrium is not None:
            out.equilibrium.finish(packed.num_sequences, warn=not self.training)
        return out

    def _with_attention_weights(
        self, packed: Packed, depth: int, all_depths: bool, order: Sequence[int] | None
    ) -> EncoderOutput:
        solves = isinstance(self.loop, FixedPoint) and not self.loop.unrolled
        ops = AttentionWeights(self._form(), only_last=solves)
        with forward_pass(ops, lambda: ops):  # a pass of its own, also within another one
            out = self.encode(ops, packed, depth, None, all_depths, order=order)
        return replace(out, attentions=ops.by_layer(packed.lengths, depth))

    def encode(
        self,
        ops: Backend,
        batch: Packed,
        depth: int,
        rows: Tensor | None,
        all_depths: bool,
        every: Rows | None = None,
        loop: LayerLoop | None = None,
        order: Sequence[int] | None = None,
    ) -> EncoderOutput:
        """Embeddings, layers and final norm of a batch that may be padded.

        Args:
            ops: the backend of the pass. depth, rows, all_depths: as of `forward`.
            every: metadata of all rows, with positions; None: that of the batch.
            loop: another loop over the layers; None: that of the encoder.
            order: the layer of the plan that each of `depth` layers is; None: the first ones.
        """
        x_TH = self.embeddings(batch, ops.form.dtype)
        if every is None:
            every = Rows.of(batch)
            if self.config.positions != "learned":
                every = with_positions(every, self.config, x_TH, self.training)
        if self.injection is not None:
            every = replace(every, injection=self.injection(x_TH))
        selected: SelectedRows | None = None if rows is None else every.select(rows)
        loop = self.loop if loop is None else loop
        layer = self.layer_function(x_TH)
        layer = layer if order is None else in_order(layer, order)
        out = loop.run(layer, x_TH, every, depth, selected, all_depths)
        return out if self.final_norm is None or not depth else out.normed(self.final_norm)

    def layer_function(self, embeddings_TH: Tensor) -> LayerFunction:
        """`run_layer`, with what is added to the input of every layer in a pass with these embeddings."""
        layer = self.run_layer
        if self.signals is not None:
            layer = with_input_addition(layer, self.signals)
        if self.own is not None and "injection" in self.config.plan.own:
            layer = with_input_addition(layer, add_embeddings(self.own, embeddings_TH))
        return layer

    def run_layer(
        self,
        d: int,
        x_RH: Tensor,
        context_TH: Tensor,
        queries: Rows,
        keys: Rows,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Layer d, (R, H) to (R, H): `x_RH` are the query tokens, `context_TH` the key/value tokens."""
        plan = self.config.plan
        attention = self.attention[plan.attention[d]]
        feed_forward = self.feed_forward[plan.feed_forward[d]]
        own = None if self.own is None else self.own[d]
        # Selected rows are the last layer's, of which there is little to recompute.
        if self.recompute and cache is None and queries.indices is keys.indices and torch.is_grad_enabled():
            return self._recomputed(attention, feed_forward, own, x_RH, context_TH, queries, keys)
        return current().run_layer(attention, feed_forward, x_RH, context_TH, queries, keys, cache, own)

    def _recomputed(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        own: nn.Module | None,
        x_RH: Tensor,
        context_TH: Tensor,
        queries: Rows,
        keys: Rows,
    ) -> Tensor:
        """A layer of which only input and output are kept (activation checkpointing, Chen et al. 2016)."""
        ops = current()
        if queries.distances is not None:  # shared by all layers, so it is not recomputed for each
            cast(AttentionBlock, attention).prepare(queries)

        def layer(x_RH: Tensor, context_TH: Tensor) -> Tensor:
            with forward_pass(self, lambda: ops):  # the backward pass runs outside of this context
                return ops.run_layer(attention, feed_forward, x_RH, context_TH, queries, keys, None, own)

        return cast(Tensor, checkpoint(layer, x_RH, context_TH, use_reentrant=False))


def _feed_forward_blocks(config: EncoderConfig) -> nn.ModuleList:
    block = InnerDropoutBlock if config.positions == "relative" else FeedForwardBlock
    return nn.ModuleList(block(config) for _ in range(config.plan.num_feed_forward_blocks))


def _final_norm(config: EncoderConfig) -> nn.Module | None:
    """What follows the last layer."""
    if config.norm == "pre":
        return hidden_norm(config)
    if config.positions == "relative":
        return nn.Dropout(config.hidden_dropout_prob)  # as in XLNet's code
    return None
