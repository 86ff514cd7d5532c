"""A depth whose inner states are not kept in training, but computed again in the backward pass."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from albertine.model.backend import computing, current
from albertine.model.relative_attention import RelativeAttentionBlock
from albertine.model.rows import Rows


def recomputed(
    encoder: nn.Module,
    attention: nn.Module,
    feed_forward: nn.Module,
    own: nn.Module | None,
    x_RH: Tensor,
    context_TH: Tensor,
    queries: Rows,
    keys: Rows,
) -> Tensor:
    """A depth, (R, H) to (R, H), of which only input and output stay (Chen et al. 2016)."""
    ops = current()
    if queries.distances is not None:  # what depths share is not computed again for each of them
        block = cast(RelativeAttentionBlock, attention)
        queries.distances.projected(block.position, block.num_heads)

    def again(x_RH: Tensor, context_TH: Tensor) -> Tensor:
        with computing(encoder, lambda: ops):  # also in the backward pass, which is outside of this one
            return ops.depth(attention, feed_forward, x_RH, context_TH, queries, keys, None, own)

    return cast(Tensor, checkpoint(again, x_RH, context_TH, use_reentrant=False))
