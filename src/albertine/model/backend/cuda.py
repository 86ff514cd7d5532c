"""GPU backend: unpadded attention where possible, else padded attention without synchronising; layers
compiled as one function; inference passes as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from albertine.core.precision import ComputeFormat
from albertine.model.backend import forward_pass
from albertine.model.backend.base import Backend, Memo, has_hooks
from albertine.model.backend.cuda_graphs import has_static_kernels, log, run_captured
from albertine.model.backend.gradient_accumulation import AccumulatedGradients

if TYPE_CHECKING:
    from albertine.core.batch import Packed
    from albertine.model.key_value_cache import LayerCache
    from albertine.model.rows import Rows

WIDEST_HEAD = 256
HALF = (torch.bfloat16, torch.float16)


def _packed_kernel() -> Callable[..., Any] | None:
    """The unpadded kernel. Its keyword arguments changed with every release of torch; the first seven
    positions did not. It imports torch's compiler, which takes longer than torch itself."""
    if torch.cuda.device_count() == 0:
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn


PACKED_KERNEL = _packed_kernel()


def packed_kernel(dtype: torch.dtype, head_size: int) -> Callable[..., Any] | None:
    """The unpadded kernel where it supports format and head size: half precision, at most `WIDEST_HEAD`."""
    return PACKED_KERNEL if dtype in HALF and head_size <= WIDEST_HEAD else None


def recordable(encoder: Any, form: ComputeFormat) -> bool:
    """Whether training passes of an encoder can be captured as CUDA graphs: with unpadded attention, because
    padded tables would grow with the padding of the batch."""
    return has_static_kernels(encoder) and packed_kernel(form.dtype, encoder.config.head_size) is not None


def packed_kernel_for(
    dtype: torch.dtype, head_size: int, queries: Rows, dropout: float
) -> Callable[..., Any] | None:
    """The unpadded kernel where it applies: without dropout, mask or additional scores."""
    plain = dropout == 0.0 and queries.visible is None and queries.distances is None
    return packed_kernel(dtype, head_size) if plain else None


def attend(q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float) -> Tensor:
    """`Backend.attend` by the unpadded kernel or the padded one."""
    kernel = packed_kernel_for(q_RND.dtype, q_RND.shape[2], queries, dropout)
    if kernel is None:
        return attend_padded(q_RND, k_TND, v_TND, queries, keys, dropout)
    return attend_packed(kernel, q_RND, k_TND, v_TND, queries, keys)


def attend_packed(
    kernel: Callable[..., Any], q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows
) -> Tensor:
    """Attention by the unpadded kernel. It needs a head size that is a multiple of 8, so heads are
    zero-padded; albert-tiny has 26."""
    size = q_RND.shape[2]
    if extra := -size % 8:
        # The kernel divides by the square root of the padded size; its scale argument is not stable across
        # versions.
        q_RND = q_RND * ((size + extra) / size) ** 0.5
        q_RND, k_TND, v_TND = (F.pad(x, (0, extra)) for x in (q_RND, k_TND, v_TND))
    out: Tensor = kernel(
        q_RND, k_TND, v_TND, queries.cu_seqlens, keys.cu_seqlens, queries.longest, keys.longest
    )
    return out[..., :size]


def attend_padded(
    q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float
) -> Tensor:
    """Attention by one padded call: for dropout, masks and float32, and where the unpadded kernel is missing.
    Padding needs no lengths from the device."""
    sequences = len(queries.cu_seqlens) - 1
    # Without a mask `when` is 0 and `until` 1: all real keys are visible, padding is not.
    when, until = (
        (torch.zeros_like(keys.positions), torch.ones_like(queries.positions))
        if keys.visible is None or queries.visible is None
        else (keys.visible.when, queries.visible.until)
    )
    when_SM = _table(when, keys, sequences, torch.iinfo(torch.int64).max)
    until_SL = _table(until, queries, sequences, torch.iinfo(torch.int64).min)
    seen_SLM = when_SM[:, None] < until_SL[..., None]
    some_SL = seen_SLM.any(-1)
    # A query without a visible key needs a finite softmax: it attends to all keys, and its output is set to
    # zero.
    out_SNLD = F.scaled_dot_product_attention(
        _table(q_RND, queries, sequences).transpose(1, 2),
        _table(k_TND, keys, sequences).transpose(1, 2),
        _table(v_TND, keys, sequences).transpose(1, 2),
        attn_mask=(seen_SLM | ~some_SL[..., None])[:, None],
        dropout_p=dropout,
    )
    out_SLND = out_SNLD.transpose(1, 2) * some_SL[..., None, None]
    return out_SLND.flatten(0, 1).index_select(0, queries.padded_indices)


def _table(x: Tensor, rows: Rows, sequences: int, filler: int = 0) -> Tensor:
    """Packed rows (R, …) as a padded table (S, L, …) with `filler` at padding."""
    empty = x.new_full((sequences * rows.longest, *x.shape[1:]), filler)
    return empty.index_copy(0, rows.padded_indices, x).view(sequences, rows.longest, *x.shape[1:])


class Traced(Backend):
    """Plain operations with attention kernels: for compiled models, and for blocks whose weights move
    (FSDP)."""

    def attend(
        self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float
    ) -> Tensor:
        if q_RND.device.type == "cpu":
            return super().attend(q_RND, k_TND, v_TND, queries, keys, dropout)
        return attend(q_RND, k_TND, v_TND, queries, keys, dropout)


TRACED = Traced(ComputeFormat(torch.float32))


class Cuda(AccumulatedGradients):
    """
    Args:
        compiled: compile a layer as one function, once for all layers and batches: fusing the operations
            between products saves memory traffic.
    """

    def __init__(self, form: ComputeFormat, compiled: bool = False) -> None:
        super().__init__(form)
        self._compiled = compiled
        self._hooks_on = Memo[tuple[nn.Module, ...], bool](_hooks_on)

    def attend(
        self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float
    ) -> Tensor:
        return attend(q_RND, k_TND, v_TND, queries, keys, dropout)

    def replay(self, encoder: Any, packed: Packed, depth: int, rows: Tensor | None) -> Any:
        """By a CUDA graph where the kernels of a pass are always the same."""
        fits = depth > 0 and packed_kernel(self.form.dtype, encoder.config.head_size) is not None
        if not fits or encoder.training or torch.is_grad_enabled():
            return None
        form = self.form

        def compute(encoder: Any, batch: Packed) -> Any:
            # By its own backend: casts that this one has cached would not be captured.
            with forward_pass(batch, lambda: Cuda(form)) as ops:
                return encoder.encode(ops, batch, depth, None, False)

        out = run_captured(encoder, packed, (depth, form), compute)
        if out is None or rows is None:
            return out
        return replace(out, last_hidden=out.last_hidden.index_select(0, rows))

    def run_layer(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        x: Tensor,
        context: Tensor,
        queries: Rows,
        keys: Rows,
        cache: LayerCache | None = None,
        own: nn.Module | None = None,
    ) -> Tensor:
        # The padded kernel has different shapes for every batch, and would be compiled for each.
        block: Any = attention
        dropout = block.attention_dropout if block.training else 0.0
        packed = packed_kernel_for(x.dtype, block.head_size, queries, dropout) is not None
        plain = cache is None and own is None and context is x
        fits = packed and plain and not self._hooks_on[attention, feed_forward]
        if self._compiled and not fits and context is x:
            _warn_not_compiled()
        if not (self._compiled and fits):
            return super().run_layer(attention, feed_forward, x, context, queries, keys, cache, own)
        weights = [
            {name: self.cast(p, self.form.dtype) for name, p in block.named_parameters()}
            for block in (attention, feed_forward)
        ]
        found: Tensor = _compiled_layer()(attention, feed_forward, *weights, x, queries)
        return found


@cache
def _warn_not_compiled() -> None:
    log.warning(
        "training.compile does not apply here: layers are compiled in half precision, "
        "without dropout of attention or relative positions, where all tokens see one another, and without "
        "parameters of their own (as pre-norm has) or hooks"
    )


def _hooks_on(blocks: tuple[nn.Module, ...]) -> bool:
    """Whether modules of these blocks have hooks, which a compiled function would ignore."""
    return has_hooks(module for block in blocks for module in block.modules())


@cache
def _compiled_layer() -> Callable[..., Tensor]:
    return torch.compile(plain_layer, dynamic=True)


def plain_layer(
    attention: nn.Module,
    feed_forward: nn.Module,
    attention_weights: dict[str, Tensor],
    feed_forward_weights: dict[str, Tensor],
    x_TH: Tensor,
    rows: Rows,
) -> Tensor:
    """One layer for all rows, (T, H) to (T, H), with weights cast beforehand: inside, they would be cast in
    every layer."""
    # The two calls of `Backend.run_layer`, written again: to take these weights there, each block would have
    # to be wrapped in a function, which is longer than the calls.
    x_TH = functional_call(attention, attention_weights, (x_TH, x_TH, rows, rows))
    return functional_call(feed_forward, feed_forward_weights, (x_TH,))  # type: ignore[no-any-return]
