"""Linear layers of inference on a processor: product, bias and what follows it in one kernel of oneDNN.

The kernels are those that torch's own compiler puts into models (`mkldnn._linear_pointwise`,
`onednn.qlinear_pointwise`). They are not part of its public interface, so each is tried once, against the
plain operations, before it is used; where it is missing or wrong the plain operations remain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.errors import SettingsError
from albertine.model.activation import activate

KERNELS = {"gelu": ("gelu", "none"), "gelu_new": ("gelu", "tanh"), "relu": ("relu", "")}
"""oneDNN's name and algorithm of every activation."""


IN_PIECES = {(3072, 768): (512, 1536, 256)}
"""Columns in and out of a product in bfloat16 that oneDNN takes twice as long for with some numbers of rows:
from, to, and the pieces of rows that it is done in. That is the second half of the feed-forward of base."""


class Kernel(ABC):
    """A linear layer whose kernel also does what follows.

    Args:
        bias: (out,). lay_out: turns some rows of the weight, for about so many rows of input, into what the
            kernel wants; done when they are first asked for.
    """

    def __init__(self, weight: Tensor, bias: Tensor, lay_out: Callable[[Tensor, int], Tensor]) -> None:
        self.bias = bias
        self._weight, self._lay_out = weight, lay_out
        self._parts: dict[tuple[int, int], Tensor] = {}

    def __call__(self, x: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """(T, in) to (T, last - first)."""
        return self.run(x, slice(first, len(self.bias) if last is None else last), "none", "")

    def activated(self, x: Tensor, name: str) -> Tensor:
        """(T, in) to (T, out), through an activation."""
        return self.run(x, slice(0, len(self.bias)), *KERNELS[name])

    def added(self, x: Tensor, residual: Tensor, dropout: float = 0.0) -> Tensor:
        """(T, in) to (T, out), added to `residual`."""
        return residual + self(x)

    @abstractmethod
    def run(self, x: Tensor, outputs: slice, kernel: str, algorithm: str) -> Tensor:
        """(T, in) to the wanted outputs, through oneDNN's activation of that name."""

    def laid_out(self, outputs: slice, rows: int) -> Tensor:
        """The weight of the wanted outputs."""
        key = (outputs.start, outputs.stop)
        if key not in self._parts:
            self._parts[key] = self._lay_out(self._weight[outputs].contiguous(), rows)
        return self._parts[key]


class Fused(Kernel):
    """x·Wᵀ + b in float32 or bfloat16.

    On processors of AMD torch's own float32 product is half as fast as oneDNN's.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(weight, bias, torch.ops.mkldnn._reorder_linear_weight)

    def added(self, x: Tensor, residual: Tensor, dropout: float = 0.0) -> Tensor:
        weight = self.laid_out(slice(0, len(self.bias)), len(x))
        add = torch.ops.mkldnn._linear_pointwise.binary
        first, last, size = IN_PIECES.get((x.shape[1], len(self.bias)), (0, 0, 0))
        if first <= len(x) < last and x.dtype == torch.bfloat16:
            pairs = zip(torch.split(x, size), torch.split(residual, size), strict=True)
            return torch.cat([add(a, b, weight, self.bias, "add") for a, b in pairs])
        out: Tensor = add(x, residual, weight, self.bias, "add")
        return out

    def run(self, x: Tensor, outputs: slice, kernel: str, algorithm: str) -> Tensor:
        weight, bias = self.laid_out(outputs, len(x)), self.bias[outputs]
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, kernel, [], algorithm)
        return out


class Int8(Kernel):
    """x·Wᵀ + b with 8-bit integers: weights with a scale for each output, rounded once; activations with one
    scale for all, taken from their largest magnitude every time.

    The result therefore depends a little on what else is in a batch.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        """Round float32 weights (out, in); results are in `dtype`."""
        self.dtype = dtype
        self.scales = weight.abs().amax(1).float().clamp(min=1e-12) / 127
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)
        whole = (weight / self.scales[:, None]).round().to(torch.int8)
        super().__init__(whole, bias.float(), _lay_out_int8)

    def activated(self, x: Tensor, name: str) -> Tensor:
        # Both forms of GELU are within 5e-4, a small part of a step of 8 bits; that of erf takes less time.
        return super().activated(x, "gelu" if name == "gelu_new" else name)

    def run(self, x: Tensor, outputs: slice, kernel: str, algorithm: str) -> Tensor:
        (q, scale), weight = rounded(x), self.laid_out(outputs, len(x))
        given = (q, scale, 0, weight, self.scales[outputs], self.zeros[outputs], self.bias[outputs])
        multiply = torch.ops.onednn.qlinear_pointwise.default
        out: Tensor = multiply(*given, 1.0, 0, self.dtype, kernel, [], algorithm)
        return out


def _lay_out_int8(part: Tensor, rows: int) -> Tensor:
    out: Tensor = torch.ops.onednn.qlinear_prepack(part, [rows, part.shape[1]])
    return out


def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x·Wᵀ + b without gradients. In bfloat16 on a CPU oneDNN adds the bias within the product, torch apart
    from it, which takes a third to twice as long."""
    if x.device.type != "cpu" or x.dtype != torch.bfloat16 or not fuses(torch.bfloat16):
        return F.linear(x, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def rounded(x: Tensor) -> tuple[Tensor, float]:
    """A tensor as int8 of the same shape, and the size of one step."""
    low, high = torch.aminmax(x)
    scale = max(-low.item(), high.item(), 1e-12) / 127
    return (x * (1 / scale)).round_().to(torch.int8), scale


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


def _agrees(make: Callable[[Tensor, Tensor], Kernel], dtype: torch.dtype, tolerance: float) -> bool:
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
    except (RuntimeError, AttributeError, TypeError):
        return False
    plain = F.linear(x, weight, bias[0])
    wanted = (*(activate(plain, name) for name in KERNELS), plain[:, 4:20], plain + residual)
    size = plain.abs().max() * tolerance
    return all(bool((a.float() - b).abs().max() <= size) for a, b in zip(found, wanted, strict=True))
