"""From what a model said, numbers of any size, to probabilities: NumPy alone, computed in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Of the last dimension; minus infinity has the probability 0."""
    wide = logits.astype(np.float64)
    weights = np.exp(wide - wide.max(-1, keepdims=True))
    shares: NDArray[np.float64] = weights / weights.sum(-1, keepdims=True)
    return shares


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)), by the exponential that is at most 1: nothing overflows."""
    wide = logits.astype(np.float64)
    small = np.exp(-np.abs(wide))
    chances: NDArray[np.float64] = np.where(wide < 0, small, 1.0) / (1.0 + small)
    return chances
