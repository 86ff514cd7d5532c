"""What torch compiles for training: a whole depth, on a GPU.

Every operation between two products costs a way to memory and back there. A depth is compiled once, for all
depths and for batches of any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from albertine.model.attention import Segments
    from albertine.model.block import PreparedAttention, PreparedFeedForward


def compiles(device: torch.device) -> bool:
    """Whether a depth is. On a processor the gradients of weights are summed inside their products instead,
    which the compiler cannot."""
    return device.type != "cpu"


def depth(
    x_TH: Tensor, keys: Segments, attention: PreparedAttention, feed_forward: PreparedFeedForward
) -> Tensor:
    """One depth for all rows, (T, H) to (T, H), as one compiled function."""
    found: Tensor = _compiled_depth()(x_TH, keys, attention, feed_forward)
    return found


@cache
def _compiled_depth() -> Callable[..., Tensor]:
    return torch.compile(_depth, dynamic=True)


def _depth(
    x_TH: Tensor, keys: Segments, attention: PreparedAttention, feed_forward: PreparedFeedForward
) -> Tensor:
    return feed_forward(attention(x_TH, keys, None))
