"""Training: weight gradients are accumulated inside the products.

Autograd would allocate a gradient of the size of the weight for every layer and add them; for a shared block
that traffic costs more than some of the products. Here the backward of each layer accumulates into one sum
(the `beta = 1` of a matrix product), which becomes the gradient of the weight once (docs/decisions/009).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from albertine.core.precision import ComputeFormat
from albertine.model.backend.base import (
    CachedCasts,
    Memo,
    are_plain_linears,
    bias_of,
    equal_runs,
    have_dense_weights,
)

Multiply = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(x, weight, bias) → x·Wᵀ + b without gradients."""


class AccumulatedGradients(CachedCasts):
    """Computes layers of the same input as one product, and accumulates gradients inside the products."""

    def __init__(self, form: ComputeFormat, multiply: Multiply = F.linear) -> None:
        super().__init__(form)
        self._multiply = multiply
        self._untouched = Memo[tuple[nn.Module, ...], bool](are_plain_linears)
        self._products: dict[tuple[tuple[nn.Module, ...], bool], Product | None] = {}

    def linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        product = self._product((layer,), x)
        return super().linear(layer, x) if product is None else product(x)

    def linears(self, layers: Sequence[nn.Module], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        together = tuple(layers)
        product = self._product(together, *inputs) if self._untouched[together] else None
        if product is None:
            return super().linears(layers, inputs)
        sizes = [cast(nn.Linear, layer).out_features for layer in layers]
        found: list[Tensor] = []
        for first, end in equal_runs(inputs):
            y = product(inputs[first], sum(sizes[:first]), sum(sizes[:end]))
            found += y.split_with_sizes(sizes[first:end], 1)
        return tuple(found)

    def _product(self, layers: tuple[nn.Module, ...], *inputs: Tensor) -> Product | None:
        """The layers as one product, cached for the pass; None where layers or inputs do not allow it."""
        key = layers, torch.is_grad_enabled()
        if key not in self._products:
            own = cast(tuple[nn.Linear, ...], layers)
            self._products[key] = self._stacked(own) if have_dense_weights(own) else None
        product = self._products[key]
        fits = product is not None and all(x.ndim == 2 and x.dtype == product.weight.dtype for x in inputs)
        return product if fits else None

    def _stacked(self, layers: Sequence[nn.Linear]) -> Product:
        dtype = self.form.dtype
        weights = [layer.weight.to(dtype) for layer in layers]
        biases = [bias_of(layer).to(dtype) for layer in layers]
        if len(layers) == 1:
            return Product(weights[0], biases[0], self._multiply)
        return Product(torch.cat(weights), torch.cat(biases), self._multiply)


class Product:
    """x·Wᵀ + b for rows `first` to `last` of the stacked weight (out, in) and bias (out,).

    Attributes:
        weight, bias: the whole stack, in the compute format.
    """

    def __init__(self, weight: Tensor, bias: Tensor, multiply: Multiply = F.linear) -> None:
        summed = torch.is_grad_enabled() and weight.requires_grad
        self._total = _GradientSum(multiply) if summed else None
        self.weight, self.bias = weight, bias
        if self._total is not None:
            self.weight, self.bias = cast(tuple[Tensor, Tensor], _ReturnSum.apply(weight, bias, self._total))  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """(T, in) to (T, last - first)."""
        last = len(self.bias) if last is None else last
        if self._total is None:
            return F.linear(x, self.weight[first:last], self.bias[first:last])
        return cast(Tensor, _Apply.apply(x, self.weight, self.bias, self._total, first, last))  # type: ignore[no-untyped-call]


class _GradientSum:
    """Accumulated gradient of a weight in the current backward pass.

    In bfloat16 on a CPU a product with a transposed operand takes half as long again as with a transposed
    copy, so the narrower operand is copied, and the sum may be that of the transposed weight.
    """

    weight: Tensor | None = None
    bias: Tensor | None = None

    def __init__(self, multiply: Multiply) -> None:
        self.multiply = multiply

    def add(self, first: int, like: Tensor, dy: Tensor, x: Tensor) -> None:
        outputs, inputs = like.shape
        copies = dy.device.type == "cpu" and dy.dtype == torch.bfloat16
        self.turned = copies and inputs < outputs
        if self.weight is None or self.bias is None:
            shape = (inputs, outputs) if self.turned else (outputs, inputs)
            self.weight, self.bias = like.new_zeros(shape), like.new_zeros(outputs)
        rows = slice(first, first + dy.shape[1])
        if self.turned:
            self.weight[:, rows].addmm_(_transposed(x), dy)
        else:
            self.weight[rows].addmm_(_transposed(dy) if copies and outputs < inputs else dy.T, x)
        self.bias[rows] += dy.sum(0)

    def take(self) -> tuple[Tensor | None, Tensor | None]:
        weight, bias = self.weight, self.bias
        self.weight = self.bias = None
        return _transposed(weight) if weight is not None and self.turned else weight, bias


def _transposed(x: Tensor) -> Tensor:
    """A copy of the transposed matrix; in pieces of 64 columns it takes half the time."""
    return torch.cat([piece.T for piece in torch.split(x, 64)], 1)


class _ReturnSum(torch.autograd.Function):
    """Identity; its backward runs after that of every use, and returns their sum."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, total: _GradientSum) -> tuple[Tensor, Tensor]:
        ctx.total = total
        ctx.set_materialize_grads(False)
        return weight.view_as(weight), bias.view_as(bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *direct: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        # `direct`: gradients of uses that did not go through `Product`.
        weight, bias = (
            a if b is None else b if a is None else a + b
            for a, b in zip(direct, ctx.total.take(), strict=True)
        )
        return weight, bias, None


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, total: _GradientSum, first: int, last: int
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.total, ctx.rows, ctx.hand = total, (first, last), weight.grad_fn
        return total.multiply(x, weight[first:last], bias[first:last])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        first, last = ctx.rows
        # Where only gradients of activations are requested, the sum would never be returned.
        if torch._C._will_engine_execute_node(ctx.hand):
            ctx.total.add(first, weight, dy, x)
        dx = dy @ weight[first:last] if ctx.needs_input_grad[0] else None
        return dx, None, None, None, None, None
