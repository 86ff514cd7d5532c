"""A linear layer applied at several depths, with the gradient of its weight summed inside the product.

Autograd would make one gradient of the size of the weight for every depth and add them one by one; for a
shared block that traffic costs more than some of the products. Here each depth's backward adds its share
straight into one sum (the `beta = 1` of a matrix product), which is handed to the weight once.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from albertine.model.activation import activate
from albertine.model.fused import product


class Product:
    """x·Wᵀ + b for rows `first` to `last` of the stacked weight (out, in) and bias (out,).

    Attributes:
        weight, bias: the whole stack, in the compute format.

    Args:
        plain: leave the gradient to autograd, as what is compiled must.
    """

    def __init__(self, weight: Tensor, bias: Tensor, plain: bool = False) -> None:
        plain |= torch.compiler.is_compiling() or not (torch.is_grad_enabled() and weight.requires_grad)
        self._total = None if plain else _Total()
        self.weight, self.bias = weight, bias
        if self._total is not None:
            self.weight, self.bias = cast(tuple[Tensor, Tensor], _Hand.apply(weight, bias, self._total))  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """(T, in) to (T, last - first)."""
        last = len(self.bias) if last is None else last
        if self._total is None:
            return F.linear(x, self.weight[first:last], self.bias[first:last])
        return cast(Tensor, _Apply.apply(x, self.weight, self.bias, self._total, first, last))  # type: ignore[no-untyped-call]

    def activated(self, x: Tensor, name: str) -> Tensor:
        """(T, in) to (T, out), through an activation."""
        return activate(self(x), name)

    def added(self, x: Tensor, residual: Tensor, dropout: float = 0.0) -> Tensor:
        """(T, in) to (T, out), added to `residual`."""
        y = self(x)
        return residual + (F.dropout(y, dropout) if dropout > 0 else y)


class _Total:
    """The sum of what the uses of a weight contributed in the backward pass under way.

    In bfloat16 on a CPU a product of which one side is transposed takes half as long again as one of a copy,
    which pays where the copy is of the narrower side: then either side of the product is copied, and the sum
    may be that of the transposed weight.
    """

    weight: Tensor | None = None
    bias: Tensor | None = None

    def add(self, first: int, like: Tensor, dy: Tensor, x: Tensor) -> None:
        outputs, inputs = like.shape
        copies = dy.device.type == "cpu" and dy.dtype == torch.bfloat16
        self.turned = copies and inputs < outputs
        if self.weight is None or self.bias is None:
            shape = (inputs, outputs) if self.turned else (outputs, inputs)
            self.weight, self.bias = like.new_zeros(shape), like.new_zeros(outputs)
        rows = slice(first, first + dy.shape[1])
        if self.turned:
            self.weight[:, rows].addmm_(_turned(x), dy)
        else:
            self.weight[rows].addmm_(_turned(dy) if copies and outputs < inputs else dy.T, x)
        self.bias[rows] += dy.sum(0)

    def take(self) -> tuple[Tensor | None, Tensor | None]:
        weight, bias = self.weight, self.bias
        self.weight = self.bias = None
        return _turned(weight) if weight is not None and self.turned else weight, bias


def _turned(x: Tensor) -> Tensor:
    """A copy of the transposed matrix; in pieces of 64 columns torch makes it in half the time."""
    return torch.cat([piece.T for piece in torch.split(x, 64)], 1)


class _Hand(torch.autograd.Function):
    """Identity; its backward runs after that of every use and hands their sum on."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, total: _Total) -> tuple[Tensor, Tensor]:
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
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, total: _Total, first: int, last: int
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.total, ctx.rows, ctx.hand = total, (first, last), weight.grad_fn
        return product(x, weight[first:last], bias[first:last])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        first, last = ctx.rows
        # Somebody may ask for gradients of activations alone; then nobody would collect the sum.
        if torch._C._will_engine_execute_node(ctx.hand):
            ctx.total.add(first, weight, dy, x)
        dx = dy @ weight[first:last] if ctx.needs_input_grad[0] else None
        return dx, None, None, None, None, None
