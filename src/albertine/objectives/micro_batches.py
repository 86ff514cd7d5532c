"""Which samples of a global batch go into which micro-batch of which rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def split(
    lengths: Ints, world: int, micro_batches: int | None = None, micro_batch_tokens: int | None = None
) -> list[list[Ints]]:
    """Indices of the samples of every micro-batch of every rank, balanced by length.

    Samples are dealt out from long to short, forwards and backwards in turn (a snake), over all ranks and
    micro-batches at once: so all carry nearly the same number of tokens and no rank waits for another.
    """
    order = np.argsort(-lengths, kind="stable")
    count = micro_batches or 1
    if micro_batches is None and micro_batch_tokens is not None:
        limit = max(micro_batch_tokens, int(lengths.max(initial=1)))
        count = max(1, -(-int(lengths.sum()) // (world * limit)))
        while np.bincount(_snake(len(order), world * count), lengths[order]).max(initial=0) > limit:
            count += 1 + count // 32  # by more than one, for limits so tight that many counts would be tried
    bins = world * count
    home = _snake(len(order), bins)
    dealt = np.split(
        order[np.argsort(home, kind="stable")], np.cumsum(np.bincount(home, minlength=bins))[:-1]
    )
    # Neighbours in the snake are micro-batches of different ranks.
    return [dealt[rank::world] for rank in range(world)]


def _snake(count: int, bins: int) -> Ints:
    """The bin of every one of `count` things."""
    lap, place = np.divmod(np.arange(count), bins)
    return np.where(lap % 2 == 0, place, bins - 1 - place)
