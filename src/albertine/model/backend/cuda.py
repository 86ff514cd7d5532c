"""The backend of a GPU: an unpadded kernel of attention where it may be taken, a padded one where not, which
never makes the host wait; a depth compiled as one function; and passes of inference started as a whole."""

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
from albertine.model.backend.base import Backend
from albertine.model.backend.cuda_graphs import log, repeats, replayed
from albertine.model.backend.gradient_accumulation import Once, SummedGradients, hooked

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
    """The unpadded kernel where it knows such numbers and heads: half precision, heads of at most
    `WIDEST_HEAD`."""
    return PACKED_KERNEL if dtype in HALF and head_size <= WIDEST_HEAD else None


def recordable(encoder: Any, form: ComputeFormat) -> bool:
    """Whether passes that learn can be recorded: of such an encoder, with attention unpadded, as tables of
    padded attention would grow with what a batch is filled up with."""
    return repeats(encoder) and packed_kernel(form.dtype, encoder.config.head_size) is not None


def packed_kernel_for(
    dtype: torch.dtype, head_size: int, queries: Rows, dropout: float
) -> Callable[..., Any] | None:
    """The unpadded kernel where it may be taken: it has no dropout, no visibility and no scores beside
    q·kᵀ."""
    plain = dropout == 0.0 and queries.visible is None and queries.distances is None
    return packed_kernel(dtype, head_size) if plain else None


def attend(q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float) -> Tensor:
    """`Backend.attend` by the kernel for the case."""
    kernel = packed_kernel_for(q_RND.dtype, q_RND.shape[2], queries, dropout)
    if kernel is None:
        return attend_padded(q_RND, k_TND, v_TND, queries, keys, dropout)
    return attend_packed(kernel, q_RND, k_TND, v_TND, queries, keys)


def attend_packed(
    kernel: Callable[..., Any], q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows
) -> Tensor:
    """By the unpadded kernel. It wants a multiple of 8 as head size, so zeros fill it up; albert-tiny has
    26."""
    size = q_RND.shape[2]
    if extra := -size % 8:
        # The kernel divides by the square root of the filled size; its scale argument is not a stable one.
        q_RND = q_RND * ((size + extra) / size) ** 0.5
        q_RND, k_TND, v_TND = (F.pad(x, (0, extra)) for x in (q_RND, k_TND, v_TND))
    out: Tensor = kernel(
        q_RND, k_TND, v_TND, queries.cu_seqlens, keys.cu_seqlens, queries.longest, keys.longest
    )
    return out[..., :size]


def attend_padded(
    q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float
) -> Tensor:
    """By one padded call: for dropout, visibility and float32, and where the unpadded kernel is missing. The
    tables are filled without asking the device for lengths."""
    sequences = len(queries.cu_seqlens) - 1
    # Without visibility a key is seen from 0 on and a query sees up to 1: real keys alone.
    when, until = (
        (torch.zeros_like(keys.positions), torch.ones_like(queries.positions))
        if keys.visible is None or queries.visible is None
        else (keys.visible.when, queries.visible.until)
    )
    when_SM = _table(when, keys, sequences, torch.iinfo(torch.int64).max)
    until_SL = _table(until, queries, sequences, torch.iinfo(torch.int64).min)
    seen_SLM = when_SM[:, None] < until_SL[..., None]
    some_SL = seen_SLM.any(-1)
    # A query that sees nothing must still have a finite softmax: it looks at everything, and gets zeros.
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
    """Packed rows (R, …) as a table (S, L, …) with `filler` where there is no row."""
    empty = x.new_full((sequences * rows.longest, *x.shape[1:]), filler)
    return empty.index_copy(0, rows.padded_indices, x).view(sequences, rows.longest, *x.shape[1:])


class Traced(Backend):
    """Plain arithmetic with the kernels of attention: for what is compiled, and for blocks whose weights come
    and go (FSDP)."""

    def attend(
        self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float
    ) -> Tensor:
        if q_RND.device.type == "cpu":
            return super().attend(q_RND, k_TND, v_TND, queries, keys, dropout)
        return attend(q_RND, k_TND, v_TND, queries, keys, dropout)


TRACED = Traced(ComputeFormat(torch.float32))


class Cuda(SummedGradients):
    """
    Args:
        compiled: compile a depth as one function, once for all depths and batches. Every operation between
            two products costs a way to memory and back, which the compiler saves.
    """

    def __init__(self, form: ComputeFormat, compiled: bool = False) -> None:
        super().__init__(form)
        self._compiled = compiled
        self._watched = Once[tuple[nn.Module, ...], bool](_watched)

    def attend(
        self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float
    ) -> Tensor:
        return attend(q_RND, k_TND, v_TND, queries, keys, dropout)

    def run_encoder(
        self, encoder: Any, packed: Packed, depth: int, rows: Tensor | None, all_depths: bool
    ) -> Any:
        """By a recording where the kernels of a pass are always the same."""
        fits = depth > 0 and packed_kernel(self.form.dtype, encoder.config.head_size) is not None
        if not fits or all_depths or encoder.training or torch.is_grad_enabled():
            return super().run_encoder(encoder, packed, depth, rows, all_depths)
        form = self.form

        def compute(encoder: Any, batch: Packed) -> Any:
            # By a backend of its own: what this one has cast already is not recorded.
            with forward_pass(batch, lambda: Cuda(form)) as ops:
                return encoder.encode(ops, batch, depth, None, False)

        out = replayed(encoder, packed, (depth, form), compute)
        if out is None:
            return super().run_encoder(encoder, packed, depth, rows, all_depths)
        return out if rows is None else replace(out, last_hidden=out.last_hidden.index_select(0, rows))

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
        # The padded kernel has other shapes for every batch, and would be compiled for each.
        block: Any = attention
        dropout = block.attention_dropout if block.training else 0.0
        packed = packed_kernel_for(x.dtype, block.head_size, queries, dropout) is not None
        plain = cache is None and own is None and context is x
        fits = packed and plain and not self._watched[attention, feed_forward]
        if self._compiled and not fits and context is x:
            _say_left_out()
        if not (self._compiled and fits):
            return super().run_layer(attention, feed_forward, x, context, queries, keys, cache, own)
        weights = [
            {name: self.cast(p, self.form.dtype) for name, p in block.named_parameters()}
            for block in (attention, feed_forward)
        ]
        found: Tensor = _compiled_layer()(attention, feed_forward, *weights, x, queries)
        return found


@cache
def _say_left_out() -> None:
    log.warning(
        "training.compile leaves what is computed here as it is: depths are compiled in half precision, "
        "without dropout of attention or relative positions, where all tokens see one another, and without "
        "parameters of their own (as pre-norm has) or hooks"
    )


def _watched(blocks: tuple[nn.Module, ...]) -> bool:
    """Whether there are hooks anywhere in these blocks: what is compiled is not asked again whether it has
    some, and would go on without."""
    return hooked(module for block in blocks for module in block.modules())


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
    """One depth for all rows, (T, H) to (T, H), with weights that were cast before: cast inside, they would
    be cast at every depth."""
    x_TH = functional_call(attention, attention_weights, (x_TH, x_TH, rows, rows))
    return functional_call(feed_forward, feed_forward_weights, (x_TH,))  # type: ignore[no-any-return]
