"""From the width of the depths back to that of the embeddings, through the mapping that words went in by: so
do heads that are tied to both factors (ModernBERT's order, brightmart's, XLNet's)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from albertine.model.backend import current
from albertine.model.layers import Linear


def way_back(mapping: nn.Module, x_PH: Tensor) -> Tensor:
    """Rows (P, H) to (P, E) through the transposed mapping, in the format of the rows."""
    ops = current()
    return F.linear(*ops.apart(x_PH, ops.cast(_matrix(mapping), x_PH.dtype).T))


def _matrix(mapping: nn.Module) -> Tensor:
    """(H, E), what a mapping multiplies by. Of a layer that was put in its place, as an adapter is, `weight`
    may be but a part of it, so such a layer is asked."""
    weight: Tensor = mapping.weight  # type: ignore[assignment]
    if type(mapping) is Linear:
        return weight
    width = weight.shape[1]
    found: Tensor = mapping(weight.new_zeros(width + 1, width).fill_diagonal_(1))
    return (found[:-1] - found[-1]).T
