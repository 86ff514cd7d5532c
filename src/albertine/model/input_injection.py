"""Input injection: the embeddings once more, at every depth.

u = W_u·x, three times as wide as x, is added to queries, keys and values (Bai et al. 2019, 1909.01377; in
locuslab/deq `inject_conv`). It is computed once a pass, whatever the number of depths.

A loop that runs to its fixed point needs it. Where a block is contractive, every start ends in the same
point, so what stood at the start is forgotten, and the input has to be in the map itself. `own: injection` of
a plan is another thing: each depth has its own factor of the embeddings in its input, so its depths differ.
"""

from __future__ import annotations

from torch import Tensor

from albertine.model.rows import Rows


def injected(found: tuple[Tensor, ...], queries: Rows, keys: Rows) -> tuple[Tensor, ...]:
    """Queries (R, N, D), keys and values (T, N, D) with the shares that their rows were given.

    Args:
        keys: rows of the keys that are new, without those that were kept.
    """
    if queries.injection is None or keys.injection is None:
        return found
    width = queries.injection.shape[1] // 3
    shares = (queries.injection[:, :width], *keys.injection[:, width:].tensor_split(2, 1))
    return tuple(y + share.view_as(y) for y, share in zip(found, shares, strict=True))
