"""Softmax and sigmoid of logits, in NumPy and float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.errors import NotFinite


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Softmax over the last dimension; minus infinity has probability 0."""
    wide = logits.astype(np.float64)
    weights = np.exp(wide - wide.max(-1, keepdims=True))
    probabilities: NDArray[np.float64] = weights / weights.sum(-1, keepdims=True)
    return probabilities


def check_finite(numbers: Sequence[NDArray[Any]] | NDArray[Any], kind: str) -> None:
    """Check the numbers of items of a kind, one array for each item.

    Raises:
        NotFinite: a number is NaN or infinite; names the first such item by its place from 1.
    """
    if isinstance(numbers, np.ndarray) and np.isfinite(numbers).all():
        return
    if bad := [place for place, own in enumerate(numbers) if not np.isfinite(own).all()]:
        raise NotFinite.of_items(kind, bad)


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)), computed with exp(-|x|), which cannot overflow."""
    wide = logits.astype(np.float64)
    small = np.exp(-np.abs(wide))
    probabilities: NDArray[np.float64] = np.where(wide < 0, small, 1.0) / (1.0 + small)
    return probabilities
