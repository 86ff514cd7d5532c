"""Calibration: accuracy by confidence, and the expected calibration error.

ECE = Σ_b n_b / n · |accuracy_b − confidence_b| over equal-width bins of the probability of the given answer
(Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

BINS = 10


class Bin(NamedTuple):
    """Predictions with a confidence in (low, high].

    Attributes:
        size: their number. confidence, accuracy: means, 0 for an empty bin.
    """

    low: float
    high: float
    size: int
    confidence: float
    accuracy: float


def reliability(confidences: Sequence[float], right: Sequence[bool], bins: int = BINS) -> list[Bin]:
    """Predictions by confidence in equal-width bins from 0 to 1; a value on a border is in the lower bin."""
    if len(confidences) != len(right):
        raise ValueError(f"{len(confidences)} confidences and {len(right)} answers")
    values, hits = np.asarray(confidences, dtype=np.float64), np.asarray(right, dtype=np.float64)
    borders = np.arange(bins + 1) / bins
    place = np.digitize(values, borders[1:-1], right=True)
    found = []
    for i in range(bins):
        mine = place == i
        count = int(mine.sum())
        means = (float(values[mine].mean()), float(hits[mine].mean())) if count else (0.0, 0.0)
        found.append(Bin(float(borders[i]), float(borders[i + 1]), count, *means))
    return found


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Mean distance of confidence and accuracy over all predictions, in [0, 1]; 0 without any."""
    total = sum(b.size for b in bins)
    return sum(b.size * abs(b.accuracy - b.confidence) for b in bins) / total if total else 0.0
