"""From what a model said, numbers of any size, to probabilities: NumPy alone, computed in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.errors import NotFinite


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Of the last dimension; minus infinity has the probability 0."""
    wide = logits.astype(np.float64)
    weights = np.exp(wide - wide.max(-1, keepdims=True))
    shares: NDArray[np.float64] = weights / weights.sum(-1, keepdims=True)
    return shares


def check_finite(numbers: Sequence[NDArray[Any]] | NDArray[Any], kind: str) -> None:
    """Refuse numbers of some items of a kind, an array each, where one is NaN or infinite.

    Raises:
        NotFinite: names the first of these items by its place from 1.
    """
    if isinstance(numbers, np.ndarray) and np.isfinite(numbers).all():
        return
    if bad := [place for place, own in enumerate(numbers) if not np.isfinite(own).all()]:
        raise NotFinite.of_items(kind, bad)


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)), by the exponential that is at most 1: nothing overflows."""
    wide = logits.astype(np.float64)
    small = np.exp(-np.abs(wide))
    chances: NDArray[np.float64] = np.where(wide < 0, small, 1.0) / (1.0 + small)
    return chances
