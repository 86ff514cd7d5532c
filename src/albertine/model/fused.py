"""Linear layers of inference on a processor: product, bias and what follows it in one kernel of oneDNN.

The kernels are those that torch's own compiler puts into models (`mkldnn._linear_pointwise`,
`onednn.qlinear_pointwise`). They are not part of its public interface, so each is tried once, against the
plain operations, before it is used; where it is missing or wrong the plain operations remain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from math import ceil
from typing import Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.errors import SettingsError
from albertine.model.activation import activate, formula
from albertine.precision import Format

KERNELS = {"gelu": ("gelu", "none"), "gelu_new": ("gelu", "tanh"), "relu": ("relu", "")}
"""oneDNN's name and algorithm of every activation."""


SLOW = {(3072, 768): (512, 1536, 384), (768, 768): (512, 1280, 256), (1024, 1024): (640, 1280, 512)}
"""Columns in and out of products in bfloat16 that oneDNN takes twice as long for with some numbers of rows:
from, to, and the pieces of rows that they are done in. These are the ones of base and large that end in the
residual."""

FIRST, NEXT = 256, 512
"""Rows of the pieces in which int8 goes from one product to the next."""

SPARE = 1.2
"""How much further than the largest activation so far a grid reaches."""

LOWEST = {"gelu": -0.1701, "relu": 0.0}
"""Lower bounds of what oneDNN's activations give."""


LEAST = 1200
"""Outputs of a product in bfloat16 below which rounding its input to 8 bits takes longer than they save."""


class Kernel(ABC):
    """A linear layer whose kernel also does what follows.

    Args:
        weight: (out, in). bias: (out,); one with gaps is copied, as oneDNN takes no notice of them.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight, bias.contiguous()
        self.every = 0, weight.shape[0]
        self._parts: dict[tuple[int, int], tuple[Tensor, ...]] = {}

    def __call__(self, x: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """(T, in) to (T, last - first)."""
        return self.run(x, (first, self.every[1] if last is None else last), "none", "")

    def activated(self, x: Tensor, name: str) -> Tensor:
        """(T, in) to (T, out), through an activation."""
        return self.run(x, self.every, *self.activation(name))

    @abstractmethod
    def added(self, x: Tensor, residual: Tensor, dropout: float = 0.0) -> Tensor:
        """(T, in) to (T, out), added to `residual`."""

    @abstractmethod
    def chained(self, x: Tensor, name: str, last: Self, residual: Tensor) -> Tensor:
        """(T, in), through an activation and another layer, added to `residual`, which it may overwrite."""

    @abstractmethod
    def run(self, x: Tensor, outputs: tuple[int, int], kernel: str, algorithm: str) -> Tensor:
        """(T, in) to the wanted outputs, through oneDNN's activation of that name."""

    @abstractmethod
    def lay_out(self, outputs: slice, rows: int) -> tuple[Tensor, ...]:
        """What the kernel wants for some outputs, for about so many rows of input: weight, bias and the
        like."""

    def part(self, outputs: tuple[int, int], x: Tensor) -> tuple[Tensor, ...]:
        """The same, laid out when it is first asked for."""
        if outputs not in self._parts:
            self._parts[outputs] = self.lay_out(slice(*outputs), x.shape[0])
        return self._parts[outputs]

    def activation(self, name: str) -> tuple[str, str]:
        """oneDNN's name and algorithm of it."""
        return KERNELS[formula(name, self.weight.dtype)]


class Fused(Kernel):
    """x·Wᵀ + b in float32 or bfloat16.

    With AVX2 alone oneDNN's GELU of float32 takes three to eight times as long as torch's, apart from the
    product.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(weight, bias)
        self.apart = weight.dtype == torch.float32 and torch.backends.cpu.get_cpu_capability() == "AVX2"
        slow = SLOW.get((weight.shape[1], weight.shape[0])) if weight.dtype == torch.bfloat16 else None
        self.low, self.high, self.size = slow or (0, 0, 0)

    def activated(self, x: Tensor, name: str) -> Tensor:
        return activate(self(x), name) if self.apart else super().activated(x, name)

    def added(self, x: Tensor, residual: Tensor, dropout: float = 0.0) -> Tensor:
        def run(x: Tensor, residual: Tensor) -> Tensor:
            weight, bias = self.part(self.every, x)
            out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, weight, bias, "add")
            return out

        return self._in_pieces(run, x, residual)

    def chained(self, x: Tensor, name: str, last: Self, residual: Tensor) -> Tensor:
        def run(x: Tensor, residual: Tensor) -> Tensor:
            return last.added(self.activated(x, name), residual)

        return last._in_pieces(run, x, residual)

    def _in_pieces(self, run: Callable[[Tensor, Tensor], Tensor], x: Tensor, residual: Tensor) -> Tensor:
        """What ends in this product, for so many rows at a time as suits it."""
        if not self.low <= x.shape[0] < self.high:
            return run(x, residual)
        pairs = zip(torch.split(x, self.size), torch.split(residual, self.size), strict=True)
        return torch.cat([run(*pair) for pair in pairs])

    def run(self, x: Tensor, outputs: tuple[int, int], kernel: str, algorithm: str) -> Tensor:
        weight, bias = self.part(outputs, x)
        out: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, kernel, [], algorithm)
        return out

    def lay_out(self, outputs: slice, rows: int) -> tuple[Tensor, ...]:
        part = self.weight[outputs].contiguous()
        return torch.ops.mkldnn._reorder_linear_weight(part, rows), self.bias[outputs]


class Grid(NamedTuple):
    """What integers stand for: `step` times their distance from `zero`."""

    step: float
    zero: int = 0

    @classmethod
    def between(cls, lowest: float, largest: float) -> Grid:
        """For 8 bits without a sign. Activations have hardly anything below zero, so this has twice as many
        steps for them as a sign would leave; the last one, 255, is beyond the largest."""
        step = max(largest - lowest, 1e-12) / 254
        return cls(step, ceil(-lowest / step))

    def places(self, x: Tensor) -> Tensor:
        """Of numbers within its bounds, as uint8. torch converts to int8 five times as fast: the first bit,
        turned, makes up for the 128 that are taken away."""
        signed = (x * (1 / self.step)).round_().add_(self.zero - 128).to(torch.int8)
        return signed.view(torch.uint8).bitwise_xor_(128)


class Int8(Kernel):
    """x·Wᵀ + b with 8-bit integers: weights with a scale for each output, rounded once; activations with one
    scale for all, taken from their largest magnitude every time.

    The result therefore depends a little on what else is in a batch.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        """Round float32 weights (out, in); results are in `dtype`."""
        self.dtype = dtype
        self.scales = weight.abs().amax(1).float().clamp(min=1e-12) / largest_weight()
        whole = (weight / self.scales[:, None]).round().to(torch.int8)
        super().__init__(whole, bias.float())

    def added(self, x: Tensor, residual: Tensor, dropout: float = 0.0) -> Tensor:
        return self._add(*rounded(x), residual, "add")

    def chained(self, x: Tensor, name: str, last: Self, residual: Tensor) -> Tensor:
        """The first rows tell how far the activations reach. From then on they leave their product as
        integers; rows that reach further are computed again, so that nothing is cut off."""
        q, fine = rounded(x)
        then = self.every, *self.activation(name)
        lowest, reach = LOWEST[then[1]], 0.0
        sizes = [min(FIRST, x.shape[0]), *(min(NEXT, x.shape[0] - i) for i in range(FIRST, x.shape[0], NEXT))]
        pieces = zip(torch.split(q, sizes), torch.split(residual, sizes), strict=True)
        for i, (rows, beside) in enumerate(pieces):
            grid = Grid.between(lowest, reach)
            y = self._multiply(rows, fine, *then, grid) if i else None
            if y is None or y.max().item() == 255:
                exact = self._multiply(rows, fine, *then)
                largest = exact.max().item()
                grid, reach = Grid.between(lowest, largest), max(reach, SPARE * largest)
                y = grid.places(exact)
            last._add(y, grid, beside, "sum")
        return residual

    def run(self, x: Tensor, outputs: tuple[int, int], kernel: str, algorithm: str) -> Tensor:
        return self._multiply(*rounded(x), outputs, kernel, algorithm)

    def _multiply(
        self,
        q: Tensor,
        grid: Grid,
        outputs: tuple[int, int],
        kernel: str,
        algorithm: str,
        then: Grid | None = None,
    ) -> Tensor:
        """(T, in) on a grid to the wanted outputs; as uint8 on another grid, if that is given."""
        form = (1.0, 0, self.dtype) if then is None else (*then, torch.uint8)
        multiply = torch.ops.onednn.qlinear_pointwise.default
        out: Tensor = multiply(q, *grid, *self.part(outputs, q), *form, kernel, [], algorithm)
        return out

    def _add(self, q: Tensor, grid: Grid, residual: Tensor, how: Literal["add", "sum"]) -> Tensor:
        """(T, in) on a grid to all outputs, added to `residual`; with "sum" in its place."""
        *weight, bias = self.part(self.every, q)
        add = torch.ops.onednn.qlinear_pointwise.binary
        given = (q, *grid, *weight, residual, bias, 1.0, 0, self.dtype)
        out: Tensor = add(*given, 1.0, 0, how, 1.0, "none", [], "")
        return out

    def lay_out(self, outputs: slice, rows: int) -> tuple[Tensor, ...]:
        part, scales = self.weight[outputs].contiguous(), self.scales[outputs]
        laid_out = torch.ops.onednn.qlinear_prepack(part, [rows, part.shape[1]])
        return laid_out, scales, torch.zeros(len(part), dtype=torch.int64), self.bias[outputs]


def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x·Wᵀ + b without gradients. In bfloat16 on a CPU oneDNN adds the bias within the product, torch apart
    from it, which takes a third to twice as long."""
    if x.device.type != "cpu" or x.dtype != torch.bfloat16 or not fuses(torch.bfloat16):
        return F.linear(x, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def rounded(x: Tensor) -> tuple[Tensor, Grid]:
    """A tensor as 8-bit integers of the same shape, as far below zero as above, and what they stand for.

    They have a sign; without VNNI they have none, since the product would take the sign from them every time.
    """
    low, high = torch.aminmax(x)
    step = max(-low.item(), high.item(), 1e-12) / 127
    if largest_weight() < 127:
        grid = Grid(step, 128)
        return grid.places(x), grid
    return (x * (1 / step)).round_().to(torch.int8), Grid(step)


@cache
def largest_weight() -> int:
    """Largest magnitude of an 8-bit weight that the processor multiplies right.

    127; without VNNI 64, since two products are then added in 16 bits, and 255·64·2 is below 2¹⁵.

    Raises:
        RuntimeError, AttributeError: there is no kernel for integers here.
    """
    q, weight = torch.full((64, 64), 255, dtype=torch.uint8), torch.full((64, 64), 127, dtype=torch.int8)
    laid_out = torch.ops.onednn.qlinear_prepack(weight, [64, 64])
    plain = torch.ones(64), torch.zeros(64, dtype=torch.int64), torch.zeros(64)
    multiply = torch.ops.onednn.qlinear_pointwise.default
    out: Tensor = multiply(q, 1.0, 0, laid_out, *plain, 1.0, 0, torch.float32, "none", [], "")
    return 127 if bool((out == 64 * 255 * 127).all()) else 64


@cache
def fuses(dtype: torch.dtype) -> bool:
    """Whether this torch has the kernel of `Fused` here, and it is right."""
    return _agrees(lambda weight, bias: Fused(weight, bias), dtype, 1e-5 if dtype == torch.float32 else 0.02)


@cache
def counts_in_int8(dtype: torch.dtype) -> bool:
    """Whether this torch has the kernel of `Int8` here, and it is right."""
    return _agrees(lambda weight, bias: Int8(weight.float(), bias, dtype), dtype, 0.05)


def worth_rounding(outputs: int, form: Format) -> Format:
    """Of a product with so many outputs: 8-bit integers only where they save more than rounding costs."""
    return form if outputs >= LEAST or form.dtype != torch.bfloat16 else form._replace(int8=False)


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
    sizes = (32, 16), (16, 32), (640, 16), (640, 32)
    given = [torch.linspace(-300, 300, a * b).sin().view(a, b).to(dtype) for a, b in sizes]
    weight, back, x, residual = given
    bias = weight[:, 0]
    try:
        with torch.inference_mode():
            linear, last = make(weight, bias), make(back, bias[:16])
            found = (
                *(linear.activated(x, name) for name in KERNELS),
                linear(x, 4, 20),
                linear.added(x, residual),
                linear.chained(x, "gelu", last, x.clone()),
            )
    except (RuntimeError, AttributeError, TypeError):
        return False
    weight, back, x, residual = (each.float() for each in given)
    bias = weight[:, 0]
    plain = F.linear(x, weight, bias)
    chained = F.linear(F.gelu(plain), back, bias[:16]) + x
    wanted = (*(activate(plain, name) for name in KERNELS), plain[:, 4:20], plain + residual, chained)
    pairs = zip(found, wanted, strict=True)
    return all(bool((a.float() - b).abs().max() <= tolerance * b.abs().max()) for a, b in pairs)
