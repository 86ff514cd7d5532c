"""Linear layers of inference on a processor: product, bias and what follows it in one kernel of oneDNN.

The kernels are those that torch's own compiler puts into models (`mkldnn._linear_pointwise`,
`onednn.qlinear_pointwise`). They are not part of its public interface, so each is tried once, against the
plain operations, before it is used; where it is missing or wrong the plain operations remain.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.errors import SettingsError
from albertine.model.activation import activate

KERNELS = {"gelu": ("gelu", "none"), "gelu_new": ("gelu", "tanh"), "relu": ("relu", "")}
"""oneDNN's name and algorithm of every activation."""


class Fused:
    """x·Wᵀ + b in float32 or bfloat16.

    On processors of AMD torch's own float32 product is half as fast as oneDNN's.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight, bias
        self._parts = _Parts(weight, torch.ops.mkldnn._reorder_linear_weight)

    def __call__(self, x: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """(T, in) to (T, last - first)."""
        return self._run(x, first, last, "none", "")

    def activated(self, x: Tensor, name: str) -> Tensor:
        """(T, in) to (T, out), through an activation."""
        return self._run(x, 0, None, *KERNELS[name])

    def added(self, x: Tensor, residual: Tensor, dropout: float = 0.0) -> Tensor:
        """(T, in) to (T, out), added to `residual`."""
        weight = self._parts.get(0, len(self.bias), len(x))
        run = torch.ops.mkldnn._linear_pointwise.binary
        out: Tensor = run(x, residual, weight, self.bias, "add")
        return out

    def _run(self, x: Tensor, first: int, last: int | None, kernel: str, algorithm: str) -> Tensor:
        last = len(self.bias) if last is None else last
        weight = self._parts.get(first, last, len(x))
        run = torch.ops.mkldnn._linear_pointwise
        out: Tensor = run(x, weight, self.bias[first:last], kernel, [], algorithm)
        return out


def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x·Wᵀ + b without gradients. In bfloat16 on a CPU oneDNN adds the bias within the product, torch apart
    from it, which takes a third to twice as long."""
    if x.device.type != "cpu" or x.dtype != torch.bfloat16 or not fuses(torch.bfloat16):
        return F.linear(x, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


class Int8:
    """x·Wᵀ + b with 8-bit integers: weights with a scale for each output, rounded once; activations with one
    scale for all, taken from their largest magnitude every time.

    The result therefore depends a little on what else is in a batch.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        """Round float32 weights (out, in); results are in `dtype`."""
        self.bias, self.dtype = bias.float(), dtype
        self.scales = weight.abs().amax(1).float().clamp(min=1e-12) / 127
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)
        rounded = (weight / self.scales[:, None]).round().to(torch.int8)
        self._parts = _Parts(
            rounded, lambda part, rows: torch.ops.onednn.qlinear_prepack(part, [rows, part.shape[1]])
        )

    def __call__(self, x: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """(T, in) to (T, last - first)."""
        return self._run(x, first, last, "none", "")

    def activated(self, x: Tensor, name: str) -> Tensor:
        """(T, in) to (T, out), through an activation."""
        return self._run(x, 0, None, *KERNELS[name])

    def added(self, x: Tensor, residual: Tensor, dropout: float = 0.0) -> Tensor:
        """(T, in) to (T, out), added to `residual`."""
        return residual + self(x)

    def _run(self, x: Tensor, first: int, last: int | None, kernel: str, algorithm: str) -> Tensor:
        last = len(self.bias) if last is None else last
        rows = slice(first, last)
        q, scale = rounded(x)
        run = torch.ops.onednn.qlinear_pointwise.default
        weight = self._parts.get(first, last, len(x))
        given = (q, scale, 0, weight, self.scales[rows], self.zeros[rows], self.bias[rows])
        out: Tensor = run(*given, 1.0, 0, self.dtype, kernel, [], algorithm)
        return out


def rounded(x: Tensor) -> tuple[Tensor, float]:
    """A tensor as int8 of the same shape, and the size of one step."""
    low, high = torch.aminmax(x)
    scale = max(-low.item(), high.item(), 1e-12) / 127
    return (x * (1 / scale)).round_().to(torch.int8), scale


class _Parts:
    """Rows of a weight as a kernel wants them, laid out when they are first asked for."""

    def __init__(self, weight: Tensor, lay_out: Callable[[Tensor, int], Tensor]) -> None:
        self._weight, self._lay_out = weight, lay_out
        self._known: dict[tuple[int, int], Tensor] = {}

    def get(self, first: int, last: int, rows: int) -> Tensor:
        """Outputs `first` to `last`, for about `rows` rows of input."""
        if (first, last) not in self._known:
            self._known[first, last] = self._lay_out(self._weight[first:last].contiguous(), rows)
        return self._known[first, last]


@cache
def fuses(dtype: torch.dtype) -> bool:
    """Whether this torch has the kernel of `Fused` here, and it is right."""
    return _agrees(lambda weight, bias: Fused(weight, bias), dtype, 0.02)


@cache
def counts_in_int8(dtype: torch.dtype) -> bool:
    """Whether this torch has the kernel of `Int8` here, and it is right."""
    return _agrees(lambda weight, bias: Int8(weight.float(), bias, dtype), dtype, 0.05)


def int8_of(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Int8:
    """An `Int8` of these weights.

    Raises:
        SettingsError: there is no kernel for it here.
    """
    if weight.device.type != "cpu" or not counts_in_int8(dtype):
        raise SettingsError(
            "int8 is for processors, and needs a torch with oneDNN", remedy="Use precision auto or float32"
        )
    return Int8(weight, bias, dtype)


def _agrees(make: Callable[[Tensor, Tensor], Any], dtype: torch.dtype, tolerance: float) -> bool:
    weight, bias, x, residual = (
        torch.linspace(-1, 1, a * b).cos().mul(1.5).view(a, b)
        for a, b in ((32, 16), (1, 32), (8, 16), (8, 32))
    )
    try:
        with torch.inference_mode():
            linear = make(weight.to(dtype), bias[0].to(dtype))
            found = (
                *(linear.activated(x.to(dtype), name) for name in KERNELS),
                linear(x.to(dtype), 4, 20),
                linear.added(x.to(dtype), residual.to(dtype)),
            )
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False
    plain = F.linear(x, weight, bias[0])
    wanted = (*(activate(plain, name) for name in KERNELS), plain[:, 4:20], plain + residual)
    size = plain.abs().max() * tolerance
    return all(bool((a.float() - b).abs().max() <= size) for a, b in zip(found, wanted, strict=True))
