"""Which products in bfloat16 are faster in pieces of their rows: tried out, as `proof.py` does for kernels.

With AMX and several threads oneDNN takes twice as long as it should for some numbers of rows, different ones
for each size of the weights: from 512 to 1,280 rows in the second half of ALBERT-base's feed-forward
(docs/experiments).
"""

from __future__ import annotations

from functools import cache, partial

import torch
from torch import Tensor

from albertine.core.processors import cpu_flags
from albertine.model.backend.autotune import BETTER, LinearLayer, fixed_form, least_seconds
from albertine.model.backend.fused_linear import FusedLinear
from albertine.model.backend.int8 import equal_pieces

LEAST, MOST = 512, 1536
"""Rows from which and below which such gaps are."""
ALIKE = 128
"""Numbers of rows in steps of so many are judged together."""
PIECE = 384
"""Most rows of a piece."""
LARGE, NARROW = 1 << 19, 1024
"""Weights from which and outputs up to which products have gaps."""


class InPieces:
    """A product whose rows are computed in equal pieces where that is faster.

    Args:
        layer: the product. inputs, outputs: its columns.
    """

    def __init__(self, layer: LinearLayer, inputs: int, outputs: int) -> None:
        self.layer, self.inputs, self.outputs = layer, inputs, outputs

    def __call__(self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """Rows (T, in) to (T, out): through an activation, and then added to a residual (T, out)."""
        rows = x_TI.shape[0]  # `len` of a tensor takes four times as long
        if not LEAST <= rows < MOST or not pays(
            self.inputs, self.outputs, -(-rows // ALIKE) * ALIKE, torch.get_num_threads()
        ):
            return self.layer(x_TI, activation, residual)
        return in_pieces(self.layer, x_TI, activation, residual)


def in_pieces(
    layer: LinearLayer, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None
) -> Tensor:
    """What the layer gives, (T, out), computed piece by piece."""
    parts = torch.split(x_TI, piece_of(len(x_TI)))
    residuals = [None] * len(parts) if residual is None else torch.split(residual, len(parts[0]))
    return torch.cat([layer(x, activation, r) for x, r in zip(parts, residuals, strict=True)])


def with_pieces(layer: LinearLayer) -> LinearLayer:
    """The layer, in pieces where it is one that may gain by them on this processor."""
    if not isinstance(layer, FusedLinear) or layer.weight.dtype != torch.bfloat16:
        return layer
    outputs, inputs = layer.weight.shape
    if "amx_bf16" not in cpu_flags() or inputs * outputs < LARGE or outputs > NARROW:
        return layer
    return InPieces(layer, inputs, outputs)


def piece_of(rows: int) -> int:
    """How many rows each of equal pieces has, a multiple of 16."""
    return equal_pieces(rows, -(-rows // PIECE))


def pays(inputs: int, outputs: int, rows: int, threads: int) -> bool:
    """Whether so many rows are faster in pieces; one thread has no gaps, and nothing to measure."""
    return threads > 1 and fixed_form("bfloat16") is None and _faster(inputs, outputs, rows, threads)


@cache
def _faster(inputs: int, outputs: int, rows: int, threads: int) -> bool:
    """Whether pieces took less time; that many threads are the ones that measure now."""
    with torch.inference_mode():
        weight = torch.full((outputs, inputs), 0.5, dtype=torch.bfloat16, device="cpu")
        x = torch.full((rows, inputs), 0.5, dtype=torch.bfloat16, device="cpu")
        layer = FusedLinear(weight, weight[:, 0])
        ways = {"whole": partial(layer, x), "pieces": partial(in_pieces, layer, x)}
        times = least_seconds(ways, lambda t: t["pieces"] <= BETTER * t["whole"], rounds=2)
    return times["pieces"] <= BETTER * times["whole"]
