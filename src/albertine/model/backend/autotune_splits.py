"""Autotuning of products in bfloat16 that are faster when their rows are split.

With AMX and several threads oneDNN takes twice as long as it should for some numbers of rows, different ones
for each size of the weights: from 512 to 1,280 rows in the second half of ALBERT-base's feed-forward
(docs/experiments).
"""

from __future__ import annotations

from functools import cache, partial

import torch
from torch import Tensor

from albertine.core.processors import cpu_flags
from albertine.model.backend.autotune import BETTER, LinearLayer, fastest_times, fixed_form
from albertine.model.backend.fused_linear import FusedLinear
from albertine.model.backend.int8 import equal_pieces

LEAST, MOST = 512, 1536
"""Range of rows in which such slow sizes occur."""
ALIKE = 128
"""Numbers of rows are rounded up to a multiple of this for one measurement."""
PIECE = 384
"""Maximum rows of a piece."""
LARGE, NARROW = 1 << 19, 1024
"""Minimum weights and maximum outputs of products with slow sizes."""


class RowSplitLinear:
    """A linear layer that computes its rows in equal pieces where that is faster.

    Args:
        layer: the linear layer. inputs, outputs: its sizes.
    """

    def __init__(self, layer: LinearLayer, inputs: int, outputs: int) -> None:
        self.layer, self.inputs, self.outputs = layer, inputs, outputs

    def __call__(self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """Rows (T, in) to (T, out): through an activation, and then added to a residual (T, out)."""
        rows = x_TI.shape[0]  # `len` of a tensor takes four times as long
        if not LEAST <= rows < MOST or not split_is_faster(
            self.inputs, self.outputs, -(-rows // ALIKE) * ALIKE, torch.get_num_threads()
        ):
            return self.layer(x_TI, activation, residual)
        return split_rows(self.layer, x_TI, activation, residual)


def split_rows(
    layer: LinearLayer, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None
) -> Tensor:
    """The output of the layer, (T, out), computed piece by piece."""
    parts = torch.split(x_TI, piece_of(len(x_TI)))
    residuals = [None] * len(parts) if residual is None else torch.split(residual, len(parts[0]))
    return torch.cat([layer(x, activation, r) for x, r in zip(parts, residuals, strict=True)])


def with_row_splits(layer: LinearLayer) -> LinearLayer:
    """The layer, with split rows where it may gain by them on this CPU."""
    if not isinstance(layer, FusedLinear) or layer.weight.dtype != torch.bfloat16:
        return layer
    outputs, inputs = layer.weight.shape
    if "amx_bf16" not in cpu_flags() or inputs * outputs < LARGE or outputs > NARROW:
        return layer
    return RowSplitLinear(layer, inputs, outputs)


def piece_of(rows: int) -> int:
    """Rows of each of equal pieces, a multiple of 16."""
    return equal_pieces(rows, -(-rows // PIECE))


def split_is_faster(inputs: int, outputs: int, rows: int, threads: int) -> bool:
    """Whether this number of rows is faster split; with one thread there are no slow sizes, and nothing is
    measured."""
    return threads > 1 and fixed_form("bfloat16") is None and _faster(inputs, outputs, rows, threads)


@cache
def _faster(inputs: int, outputs: int, rows: int, threads: int) -> bool:
    """Whether pieces took less time, measured with the current `threads`."""
    with torch.inference_mode():
        weight = torch.full((outputs, inputs), 0.5, dtype=torch.bfloat16, device="cpu")
        x = torch.full((rows, inputs), 0.5, dtype=torch.bfloat16, device="cpu")
        layer = FusedLinear(weight, weight[:, 0])
        ways = {"whole": partial(layer, x), "pieces": partial(split_rows, layer, x)}
        times = fastest_times(ways, lambda t: t["pieces"] <= BETTER * t["whole"], rounds=2)
    return times["pieces"] <= BETTER * times["whole"]
