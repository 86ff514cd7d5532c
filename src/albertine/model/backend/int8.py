"""Linear layers for inference on a CPU in 8-bit integers.

    y = (q_TI · w_OIᵀ) · step_T · scale_O + bias_O        q = round(x / step), w = round(weight / scale)

Every row of activations has its own step, so the result of a row does not depend on the batch: sums of
integers are exact in any order. Every output has its own scale.

torch's kernels take one step for all rows, so they compute sums times the scales of the outputs, in float32;
the rest follows in pieces of rows that stay in the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from albertine.errors import SettingsError

Sums = Callable[[Tensor], Tensor]
"""Integers -127 to 127 (R, in), int8, to (R, out), float32: products with the integer weights, summed and
scaled."""

Int8Form = Callable[[Tensor, Tensor], Sums]
"""(weights (out, in), int8, scales (out,)) → `Sums`."""

_IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": torch.ops.aten.gelu_.default,
    "gelu_new": torch.ops.aten.gelu_.default,
    "relu": torch.relu_,
    "relu2": lambda y: torch.relu_(y).square_(),
}

PIECE = 3 << 19
"""Maximum bytes of a piece of sums."""

SMALLEST = 1e-30
"""Minimum assumed magnitude of a row, so that the step of a row of zeros is finite."""


def signed(whole: Tensor, scales: Tensor) -> Sums:
    """oneDNN's product of signed integers: the fastest with AMX, a scalar loop with AVX-512."""
    return _pointwise(whole, scales, 0)


def unsigned(whole: Tensor, scales: Tensor) -> Sums:
    """oneDNN's product of integers with zero point 128, which it subtracts from the sums."""
    return _pointwise(whole, scales, 128)


def plain_integers(whole: Tensor, scales: Tensor) -> Sums:
    """torch's product to 32-bit integers, faster than oneDNN's with AVX2."""
    weight_IO = whole.t()
    surplus = 128 * whole.sum(1, dtype=torch.int32)

    def sums(q: Tensor) -> Tensor:
        return torch._int_mm(_shifted(q), weight_IO).sub_(surplus).to(torch.float32).mul_(scales)

    return sums


def _pointwise(whole: Tensor, scales: Tensor, zero: int) -> Sums:
    laid_out = torch.ops.onednn.qlinear_prepack(whole, None)
    zeros = torch.zeros(len(whole), dtype=torch.int64, device="cpu")
    multiply = torch.ops.onednn.qlinear_pointwise.default
    rest: tuple[Any, ...] = laid_out, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""

    def sums(q: Tensor) -> Tensor:
        out: Tensor = multiply(_shifted(q) if zero else q, 1.0, zero, *rest)
        return out

    return sums


def _shifted(q: Tensor) -> Tensor:
    """Plus 128, in place, as uint8, by flipping the first bit: torch converts float32 to int8 five times as
    fast as to uint8."""
    return q.view(torch.uint8).bitwise_xor_(128)


def check_place(name: str, device: torch.device, *, compiling: bool, weights_stay: bool) -> None:
    """Refuse int8 where a pass would not use it.

    Args:
        name: of the backend. compiling: whether torch's compiler is tracing. weights_stay: as of
            `backend_for`.

    Raises:
        SettingsError: another device or backend, compilation, or blocks that are wrapped or of another class.
    """
    other = "precision auto or float32"
    if device.type != "cpu":
        raise SettingsError("int8 is for processors", remedy=f"Use {other}")
    if name != "onednn":
        raise SettingsError(f"the backend `{name}` has no int8", remedy=f'Use the backend "auto", or {other}')
    if compiling:
        raise SettingsError("what torch.compile makes has no int8", remedy=f"Leave it out, or use {other}")
    if not weights_stay:
        what = "a block that is wrapped, compiled or of another class has no int8"
        raise SettingsError(what, remedy=f"Use {other}")


@cache
def largest_weight(form: Int8Form) -> int:
    """Largest magnitude of an 8-bit weight that the CPU multiplies correctly: 127; without VNNI 64, because
    two products are then added in 16 bits, and 255·64·2 is below 2¹⁵.

    Raises:
        RuntimeError, AttributeError: there is no such kernel here.
    """
    largest = torch.full((64, 64), 127, dtype=torch.int8, device="cpu")
    sums = form(largest, torch.ones(64, dtype=torch.float32, device="cpu"))
    out = sums(largest.clone())  # a copy: rows are shifted in place
    return 127 if bool((out == 64 * 127 * 127).all()) else 64


def rounded(x_RI: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as integers -127 to 127, int8, and the step of each row, (R, 1)."""
    x_RI = x_RI.float()
    places_RI = x_RI.abs()  # allocating another temporary of this size would cost as much as the arithmetic
    reach_R1 = places_RI.amax(1, keepdim=True).clamp_(min=SMALLEST)
    torch.mul(x_RI, 127 / reach_R1, out=places_RI)
    return places_RI.round_().to(torch.int8), reach_R1.mul_(1 / 127)


def piece_of(rows: int, outputs: int) -> int:
    """Rows computed at once, in equal pieces of a multiple of 16: a last piece of few rows would read all
    weights again."""
    pieces = max(1, -(-4 * rows * outputs // PIECE))
    return max(32, equal_pieces(rows, pieces))


def equal_pieces(rows: int, pieces: int) -> int:
    """Rows of each of so many equal pieces, a multiple of 16; the last may have fewer."""
    return -(-rows // (16 * pieces)) * 16


class Int8Linear:
    """x·Wᵀ + b with 8-bit integers, without gradients.

    Args:
        weight: (out, in), float32; rounded once, with a scale for each output.
        bias: (out,).
        dtype: of results, float32 or bfloat16.
        form: the integer product.

    Raises:
        RuntimeError, AttributeError: there is no such kernel here.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, form: Int8Form = unsigned) -> None:
        weight = weight.detach().float()
        scales = (weight.abs().amax(1) / largest_weight(form)).clamp(min=SMALLEST)
        self.form, self.dtype, self.bias = form, dtype, bias.detach().float().contiguous()
        self.sums = form((weight / scales[:, None]).round().to(torch.int8), scales)

    def __call__(self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """Rows (T, in) to (T, out): through an activation, and then added to a residual (T, out).

        GELU always has the erf form; the two differ by at most 5e-4, less than the rounding (decision 015).
        """
        y_TO = torch.empty(len(x_TI), len(self.bias), dtype=self.dtype, device="cpu")
        piece = piece_of(*y_TO.shape)
        for first in range(0, len(x_TI), piece):
            rows = slice(first, first + piece)
            q, step_R1 = rounded(x_TI[rows])
            sums_RO, y_RO = self.sums(q), y_TO[rows]
            work_RO = y_RO if self.dtype == torch.float32 else sums_RO
            torch.addcmul(self.bias, sums_RO, step_R1, out=work_RO)
            if activation is not None:
                _IN_PLACE[activation](work_RO)
            if residual is not None:
                work_RO.add_(residual[rows])
            if work_RO is not y_RO:
                y_RO.copy_(work_RO)
        return y_TO
