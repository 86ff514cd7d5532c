"""The backend of processors: oneDNN's fused kernels and integers in inference, summed gradients in training,
and numbers of rows for which its kernels are compiled already."""

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
from albertine.model.backend.autotune import PLAIN, KernelChoice, LinearLayer, prepared
from albertine.model.backend.autotune_attention import attends_by_products
from albertine.model.backend.autotune_splits import with_pieces
from albertine.model.backend.base import Backend, Result, reads_beyond_rows
from albertine.model.backend.cpu_attention import attend, learns
from albertine.model.backend.cpu_training_attention import least_keys
from albertine.model.backend.fused_linear import formula
from albertine.model.backend.gradient_accumulation import (
    Once,
    OncePerPass,
    SummedGradients,
    bias_of,
    dense,
    runs,
    untouched,
)
from albertine.model.backend.weight_cache import cached

if TYPE_CHECKING:
    from albertine.model.rows import Rows


_log = logging.getLogger("albertine.model.backend")

FEWEST = 16
"""Rows of which any number is one of few."""


def round_up(num_rows: int) -> int:
    """The number of rows to compute for that many: at most a sixteenth more, or 15.

    oneDNN compiles its kernels anew for every number of rows, which for a small model takes as long as the
    products; with few different numbers the compiled ones are found again. Each stays in memory, 0.4 MB.
    """
    multiple = 16 if num_rows < 512 else 32 if num_rows < 1024 else 64
    return -(-num_rows // multiple) * multiple


def padded_to(packed: Packed, num_tokens: int) -> Packed:
    """The same batch and, where it has fewer than `num_tokens` tokens, one more sequence that fills it up:
    token, segment and position 0 throughout. The rows of the real tokens stay where they were."""
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
    """Whether the sum of all numbers is finite, which is so only if each of them is; True where it cannot be
    computed, within `torch.func`'s transforms and of tensors without values."""
    if type(x) is not Tensor or x.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(x):
        return True
    return math.isfinite(x.sum().item())


class Processor(Backend):
    """What inference and training have in common."""

    _shortcuts: bool | None = None
    """Whether rows may be computed so that one that is not finite spoils others. In `isolated` True at first;
    False when it computes again; None outside, where the result is not checked."""

    @property
    def rounds(self) -> bool:
        """Whether the number of rows is one of few: where oneDNN multiplies, which is not the case for
        training in float32."""
        return True

    def activate(self, x: Tensor, name: str) -> Tensor:
        return super().activate(x, formula(name, x.dtype))

    def attend(
        self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float
    ) -> Tensor:
        narrow = q_RND.dtype == torch.bfloat16
        products = narrow and not learns(q_RND, k_TND, v_TND) and attends_by_products()
        return attend(q_RND, k_TND, v_TND, queries, keys, dropout, products, bool(self._shortcuts))

    def isolated(self, compute: Callable[[], Result], states: Callable[[Result], Tensor]) -> Result:
        """One sum over the result costs less than a thousandth of a pass, where a look at the rows before
        every product would cost some hundredths. With gradients the loss is not finite in any case."""
        if torch.is_grad_enabled() or self._shortcuts is False:
            return compute()
        before, self._shortcuts = self._shortcuts, True
        try:
            found = compute()
            if not sum_is_finite(states(found)):
                self._shortcuts = False
                found = compute()
        finally:
            self._shortcuts = before
        return found

    def pad_columns(self, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return (x, weight) if self._shortcuts else super().pad_columns(x, weight)

    def run_encoder(
        self, encoder: Any, packed: Packed, depth: int, rows: Tensor | None, all_depths: bool
    ) -> Any:
        if not self.rounds:  # with gradients, so no keys are borrowed
            return super().run_encoder(encoder, packed, depth, rows, all_depths)
        filled = padded_to(packed, round_up(packed.num_tokens))
        more = None if rows is None else self.padded_rows(rows, filled.num_tokens)
        compute = partial(super().run_encoder, encoder, filled, depth, more, all_depths)
        out = self.isolated(compute, lambda out: out.last_hidden)
        return out.first(packed.num_tokens if rows is None else len(rows), packed.num_tokens)

    def padded_rows(self, index: Tensor, num_rows: int) -> Tensor:
        """The rows to compute of `num_rows`: the same, with others behind them."""
        extra = round_up(len(index)) - len(index)
        return index if extra > num_rows else torch.cat([index, torch.arange(extra, device="cpu")])

    def tied(self, x_PE: Tensor, word_VE: Tensor, bias_V: Tensor) -> Tensor:
        rows = len(x_PE)
        extra = round_up(rows) - rows if self.rounds else 0
        return super().tied(F.pad(x_PE, (0, 0, 0, extra)), word_VE, bias_V)[:rows]


class Training(Processor, SummedGradients):
    """With gradients."""

    def __init__(self, form: ComputeFormat, compiled: bool = False) -> None:
        if compiled:
            _say_uncompiled()
        if form.dtype == torch.bfloat16 and not fast_bfloat16(torch.device("cpu")):
            _say_emulated()
        fused = form.dtype == torch.bfloat16 and bias_is_fused()
        super().__init__(form, multiply_and_add if fused else F.linear)

    @property
    def rounds(self) -> bool:
        return self.form.dtype != torch.float32


@cache
def _say_emulated() -> None:
    _log.warning(
        "this processor has no bfloat16, and emulates it several times as slowly as it computes in float32; "
        "training.precision=auto takes float32 here"
    )


@cache
def _say_uncompiled() -> None:
    _log.warning(
        "training.compile does nothing on a processor: gradients are summed inside products there, which no "
        "compiler can do"
    )


class Inference(Processor, OncePerPass):
    """Without gradients: weights laid out for the kernels once, until they change."""

    def __init__(self, form: ComputeFormat) -> None:
        super().__init__(form)
        self._kernels = Once[Layers, Runs | None](partial(_kernels, form, dense))
        self._fused = Once[Layers, Runs | None](partial(_kernels, form, untouched))

    def padded_rows(self, index: Tensor, num_rows: int) -> Tensor:
        # Of few rows there are few numbers: one text alone need not wait for sixteen.
        return index if len(index) < FEWEST else super().padded_rows(index, num_rows)

    def norm_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return torch.float32  # as the parameters are: torch takes both, and is no slower than beside bfloat16

    def linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        kernels = self._kernels[layer,] if self._fits(x) else None
        return super().linear(layer, x) if kernels is None else kernels[ONE](x)

    def linears(self, layers: Sequence[nn.Module], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        # Of all layers at once, also where their inputs differ: to ask is what a short text would feel.
        kernels = self._fused[tuple(layers)] if all(map(self._fits, inputs)) else None
        if kernels is None:
            return super().linears(layers, inputs)
        found: list[Tensor] = []
        for run in runs(inputs):
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
        return fits and (self._shortcuts is True or not reads_beyond_rows(x))


Layers = tuple[nn.Module, ...]
Runs = Once[tuple[int, int], LinearLayer]
"""Of some layers, by (first, end) the products of neighbours as one, laid out when first asked for."""
ONE = (0, 1)
"""The only layer."""


def _kernels(form: ComputeFormat, may: Callable[[Any], bool], layers: Layers) -> Runs | None:
    """The products of the layers, where they may be computed so; else None."""
    own = cast(tuple[nn.Linear, ...], layers)
    return cached(own, form, lambda: _of_runs(own, form)) if may(own) else None


def _of_runs(layers: Sequence[nn.Linear], form: ComputeFormat) -> Runs:
    # Not the layers: what is cached goes when they do.
    weights = [layer.weight.detach() for layer in layers]
    biases = [bias_of(layer).detach() for layer in layers]
    return Runs(partial(_laid_out, weights, biases, form))


def _laid_out(
    weights: list[Tensor], biases: list[Tensor], form: ComputeFormat, run: tuple[int, int]
) -> LinearLayer:
    first, end = run
    one = end - first == 1
    weight, bias = (x[first] if one else torch.cat(x[first:end]) for x in (weights, biases))
    return with_pieces(prepared(weight, bias, form))


def multiply_and_add(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x·Wᵀ + b in bfloat16: oneDNN adds the bias within the product, torch apart from it, which takes a third
    to twice as long."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


@cache
def bias_is_fused() -> bool:
    """Whether this torch has that kernel here, and it is right. It is not public."""
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
    """What training in bfloat16 takes here, by what torch and the processor have: nothing of it is timed, as
    a run that is resumed has to compute the same bits."""
    fused, least = bias_is_fused(), least_keys()
    biases = "within the products" if fused else "apart from the products"
    form = f"biases {biases}, attention by products{f' from {least} keys on' if least else ''}"
    return KernelChoice("training", form, "mkldnn._linear_pointwise" if fused else PLAIN)
