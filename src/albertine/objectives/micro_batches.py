"""Length-balanced sharding of a global batch into micro-batches and ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def split(
    lengths: Ints, world: int, micro_batches: int | None = None, micro_batch_tokens: int | None = None
) -> list[list[Ints]]:
    """Indices of the samples of every micro-batch of every rank, balanced by length.

    Samples are distributed from long to short, in alternating direction (serpentine), over all micro-batches
    of all ranks, so that all have nearly the same number of tokens and no rank waits.
    """
    order = np.argsort(-lengths, kind="stable")
    count = micro_batches or 1
    if micro_batches is None and micro_batch_tokens is not None:
        limit = max(micro_batch_tokens, int(lengths.max(initial=1)))
        count = max(1, -(-int(lengths.sum()) // (world * limit)))
        while np.bincount(_serpentine(len(order), world * count), lengths[order]).max(initial=0) > limit:
            count += 1 + count // 32  # by more than one, so that tight limits need few attempts
    bins = world * count
    bin_of = _serpentine(len(order), bins)
    shares = np.split(
        order[np.argsort(bin_of, kind="stable")], np.cumsum(np.bincount(bin_of, minlength=bins))[:-1]
    )
    # Neighbouring bins belong to different ranks.
    return [shares[rank::world] for rank in range(world)]


def _serpentine(count: int, bins: int) -> Ints:
    """The bin of each of `count` samples."""
    lap, place = np.divmod(np.arange(count), bins)
    return np.where(lap % 2 == 0, place, bins - 1 - place)
