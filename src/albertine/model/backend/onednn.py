"""CPU backend: oneDNN's fused kernels and int8 in inference, accumulated gradients in training, and rows
padded to few sizes, for which kernels are compiled already."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.core.devices import fast_bfloat16
from albertine.core.precision import ComputeFormat
from albertine.model.backend.autotune import PLAIN, KernelChoice, LinearLayer, inference_linear
from albertine.model.backend.autotune_attention import products_are_faster
from albertine.model.backend.autotune_splits import with_row_splits
from albertine.model.backend.base import (
    Backend,
    CachedCasts,
    Memo,
    Result,
    are_plain_linears,
    bias_of,
    equal_runs,
    have_dense_weights,
    reads_past_row_end,
)
from albertine.model.backend.cpu_attention import attend, needs_gradient
from albertine.model.backend.cpu_training_attention import least_keys
from albertine.model.backend.fused_linear import activation_name
from albertine.model.backend.gradient_accumulation import AccumulatedGradients
from albertine.model.backend.weight_cache import cached

if TYPE_CHECKING:
    from albertine.model.rows import Rows


_log = logging.getLogger("albertine.model.backend")

FEWEST = 16
"""Fewer rows than this are never padded."""


def round_up(num_rows: int) -> int:
    """The padded number of rows: at most a sixteenth more, or 15.

    oneDNN compiles its kernels for every number of rows, which for a small model takes as long as the
    products; with few sizes compiled kernels are reused. Each takes 0.4 MB of memory.
    """
    multiple = 16 if num_rows < 512 else 32 if num_rows < 1024 else 64
    return -(-num_rows // multiple) * multiple


def padded_to(packed: Packed, num_tokens: int) -> Packed:
    """The batch padded to `num_tokens` by one more sequence of token, segment and position 0; the real rows
    keep their places."""
    extra = num_tokens - packed.num_tokens
    if extra <= 0:
        return packed
    ids, types, positions = (
        F.pad(x, (0, extra)) for x in (packed.input_ids, packed.token_type_ids, packed.position_ids)
    )
    end = packed.cu_seqlens.new_tensor([num_tokens])
    cu_seqlens, lengths = torch.cat([packed.cu_seqlens, end]), (*packed.lengths, extra)
    prefix = None if packed.prefix is None else (*packed.prefix, extra)
    return Packed(ids, types, positions, cu_seqlens, lengths, prefix)


def sum_is_finite(x: Tensor) -> bool:
    """Whether the sum of all numbers is finite, which implies that each of them is; True where it cannot be
    computed, in `torch.func` transforms and for tensors without values."""
    if type(x) is not Tensor or x.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(x):
        return True
    return math.isfinite(x.sum().item())


class Cpu(Backend):
    """Common base of inference and training."""

    rounds_rows = True
    """Whether rows are padded to few sizes: where oneDNN multiplies, as it does not in float32 training."""
    _unsafe_padding: bool | None = None
    """Whether padding may let non-finite rows spoil others: True in the first attempt of
    `isolate_non_finite`, False in the second; None outside, where results are not checked."""

    def activate(self, x: Tensor, name: str) -> Tensor:
        return super().activate(x, activation_name(name, x.dtype))

    def attend(
        self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float
    ) -> Tensor:
        narrow = q_RND.dtype == torch.bfloat16
        products = narrow and not needs_gradient(q_RND, k_TND, v_TND) and products_are_faster()
        return attend(q_RND, k_TND, v_TND, queries, keys, dropout, products, bool(self._unsafe_padding))

    def isolate_non_finite(self, compute: Callable[[], Result], states: Callable[[Result], Tensor]) -> Result:
        """One sum over the result costs less than a thousandth of a pass; checking the rows before every
        product would cost some hundredths. With gradients the loss is not finite in any case."""
        if torch.is_grad_enabled() or self._unsafe_padding is False:
            return compute()
        before, self._unsafe_padding = self._unsafe_padding, True
        try:
            found = compute()
            if not sum_is_finite(states(found)):
                self._unsafe_padding = False
                found = compute()
        finally:
            self._unsafe_padding = before
        return found

    def pad_columns(self, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return (x, weight) if self._unsafe_padding else super().pad_columns(x, weight)

    def pad(self, packed: Packed, rows: Tensor | None) -> tuple[Packed, Tensor | None]:
        if not self.rounds_rows:
            return packed, rows
        filled = padded_to(packed, round_up(packed.num_tokens))
        return filled, None if rows is None else self.padded_rows(rows, filled.num_tokens)

    def rounded_rows(self, rows: int) -> int:
        return round_up(rows) if self.rounds_rows else rows

    def padded_rows(self, index: Tensor, num_rows: int) -> Tensor:
        extra = self.rounded_rows(len(index)) - len(index)
        return index if extra > num_rows else torch.cat([index, torch.arange(extra, device="cpu")])

    def tied(self, x_PE: Tensor, word_VE: Tensor, bias_V: Tensor) -> Tensor:
        rows = len(x_PE)
        extra = round_up(rows) - rows if self.rounds_rows else 0
        return super().tied(F.pad(x_PE, (0, 0, 0, extra)), word_VE, bias_V)[:rows]


class Training(Cpu, AccumulatedGradients):
    """Training, with gradients."""

    def __init__(self, form: ComputeFormat, compiled: bool = False) -> None:
        if compiled:
            _warn_uncompiled()
        if form.dtype == torch.bfloat16 and not fast_bfloat16(torch.device("cpu")):
            _warn_emulated()
        fused = form.dtype == torch.bfloat16 and bias_is_fused()
        super().__init__(form, multiply_and_add if fused else F.linear)
        self.rounds_rows = form.dtype != torch.float32


@cache
def _warn_emulated() -> None:
    _log.warning(
        "this processor has no bfloat16, and emulates it several times as slowly as it computes in float32; "
        "training.precision=auto takes float32 here"
    )


@cache
def _warn_uncompiled() -> None:
    _log.warning(
        "training.compile does nothing on a CPU: gradients are accumulated inside products there, which a "
        "compiler cannot do"
    )


class Inference(Cpu, CachedCasts):
    """Inference: weights are prepacked for the kernels once, until they change."""

    float32_norms = True  # torch accepts rows of another format, and is no slower

    def __init__(self, form: ComputeFormat) -> None:
        super().__init__(form)
        self._kernels = Memo[Layers, Runs | None](partial(_kernels, form, have_dense_weights))
        self._fused = Memo[Layers, Runs | None](partial(_kernels, form, are_plain_linears))

    def rounded_rows(self, rows: int) -> int:
        # Few rows have few sizes anyway: a single text need not be padded to sixteen.
        return rows if rows < FEWEST else super().rounded_rows(rows)

    def linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        kernels = self._kernels[layer,] if self._fits(x) else None
        return super().linear(layer, x) if kernels is None else kernels[ONE](x)

    def linears(self, layers: Sequence[nn.Module], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        # One lookup for all layers, also where inputs differ: for short texts lookups are noticeable.
        kernels = self._fused[tuple(layers)] if all(map(self._fits, inputs)) else None
        if kernels is None:
            return super().linears(layers, inputs)
        found: list[Tensor] = []
        for run in equal_runs(inputs):
            first, end = run
            sizes = [layer.out_features for layer in layers[first:end]]
            found += kernels[run](inputs[first]).split_with_sizes(sizes, 1)  # type: ignore[arg-type]
        return tuple(found)

    def activated(self, layer: nn.Module, x: Tensor, name: str) -> Tensor:
        kernels = self._fused[layer,] if self._fits(x) else None
        return super().activated(layer, x, name) if kernels is None else kernels[ONE](x, name)

    def added(self, layer: nn.Module, x: Tensor, residual: Tensor, dropout: float) -> Tensor:
        kernels = self._fused[layer,] if dropout == 0 and self._fits(x) else None
        if kernels is None:
            return super().added(layer, x, residual, dropout)
        return kernels[ONE](x, None, residual)

    def _fits(self, x: Tensor) -> bool:
        fits = x.ndim == 2 and x.dtype == self.form.dtype
        return fits and (self._unsafe_padding is True or not reads_past_row_end(x))


Layers = tuple[nn.Module, ...]
Runs = Memo[tuple[int, int], LinearLayer]
"""Products of neighbouring layers (first, end) as one, prepacked at the first access."""
ONE = (0, 1)
"""The range of a single layer."""


def _kernels(form: ComputeFormat, may: Callable[[Any], bool], layers: Layers) -> Runs | None:
    """Prepacked products of the layers; None where they have to be called."""
    own = cast(tuple[nn.Linear, ...], layers)
    return cached(own, form, lambda: _of_runs(own, form)) if may(own) else None


def _of_runs(layers: Sequence[nn.Linear], form: ComputeFormat) -> Runs:
    # Holds no reference to the layers, so that the cache is freed with them.
    weights = [layer.weight.detach() for layer in layers]
    biases = [bias_of(layer).detach() for layer in layers]
    return Runs(partial(_laid_out, weights, biases, form))


def _laid_out(
    weights: list[Tensor], biases: list[Tensor], form: ComputeFormat, run: tuple[int, int]
) -> LinearLayer:
    first, end = run
    one = end - first == 1
    weight, bias = (x[first] if one else torch.cat(x[first:end]) for x in (weights, biases))
    return with_row_splits(inference_linear(weight, bias, form))


def multiply_and_add(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x·Wᵀ + b in bfloat16: oneDNN fuses the bias; torch adds it separately, which takes a third to twice as
    long."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


@cache
def bias_is_fused() -> bool:
    """Whether that kernel, which is not public, exists here and is correct."""
    x, weight = (
        torch.linspace(-9, 9, 32 * n, dtype=torch.float32, device="cpu").sin().view(n, 32).bfloat16()
        for n in (16, 48)
    )
    try:
        found = multiply_and_add(x, weight, weight[:, 0].contiguous())
    except (RuntimeError, AttributeError, TypeError):
        return False
    exact = F.linear(x.float(), weight.float(), weight[:, 0].float())
    return bool((found.float() - exact).abs().max() <= 0.02 * exact.abs().max())


def training_choice() -> KernelChoice:
    """Kernels of training in bfloat16, by the features of torch and the CPU; nothing is timed, because a
    resumed run has to compute the same bits."""
    fused, least = bias_is_fused(), least_keys()
    biases = "within the products" if fused else "apart from the products"
    form = f"biases {biases}, attention by products{f' from {least} keys on' if least else ''}"
    return KernelChoice("training", form, "mkldnn._linear_pointwise" if fused else PLAIN)
