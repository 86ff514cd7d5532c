"""Targets of a causal stage: a share of the next tokens, so that a step costs as much as a masked one.

With a causal mask a token learns from its left neighbour at once; an encoder pretrained so attends to
neighbours before masked LM begins (AntLM, arXiv 2412.03275).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def next_tokens(
    ids: Ints, special: NDArray[np.bool_], offsets: Ints, draws: NDArray[np.float64], share: float
) -> tuple[Ints, Ints]:
    """Positions that predict the next token.

    Args:
        ids: (T,) tokens of all samples end to end.
        special: (T,) the tokens never to predict, the first of a sample among them.
        offsets: (S+1,) where the samples begin.
        draws: uniform numbers (T,).
        share: of the ordinary tokens of a sample that are predicted, at least one.

    Returns:
        The increasing rows (P,), and the tokens after them (P,).
    """
    target = np.flatnonzero(~special)
    sample = np.searchsorted(offsets, target, side="right") - 1
    count = np.bincount(sample, minlength=len(offsets) - 1)
    wanted = np.maximum(1, np.rint(count * share).astype(np.int64))
    # Halved, so that a sum cannot round up to the next sample.
    order = np.argsort(sample + draws[target] / 2)
    place = np.arange(len(target)) - np.repeat(np.cumsum(count) - count, count)
    chosen = np.sort(target[order[place < np.repeat(wanted, count)]])
    return chosen - 1, ids[chosen]
