"""Which next tokens a causal stage predicts: some of them, so that a step costs as much as a masked one.

A token that sees nothing after it has a neighbour it can learn from at once, the one before it; an encoder
that begins so has learned to look at neighbours when it is to fill gaps (AntLM, arXiv 2412.03275).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def next_tokens(
    ids: Ints, special: NDArray[np.bool_], offsets: Ints, draws: NDArray[np.float64], share: float
) -> tuple[Ints, Ints]:
    """Rows that are to predict the token after them.

    Args:
        ids: (T,) tokens of all samples end to end.
        special: (T,) the tokens never to predict, the first of a sample among them.
        offsets: (S+1,) where the samples begin.
        draws: uniform numbers (T,).
        share: of the ordinary tokens of a sample, how many are predicted; at least one is.

    Returns:
        The increasing rows (P,), and the tokens after them (P,).
    """
    target = np.flatnonzero(~special)
    sample = np.searchsorted(offsets, target, side="right") - 1
    count = np.bincount(sample, minlength=len(offsets) - 1)
    wanted = np.maximum(1, np.rint(count * share).astype(np.int64))
    # Halved, lest a sum round up to the next sample.
    order = np.argsort(sample + draws[target] / 2)
    place = np.arange(len(target)) - np.repeat(np.cumsum(count) - count, count)
    chosen = np.sort(target[order[place < np.repeat(wanted, count)]])
    return chosen - 1, ids[chosen]
