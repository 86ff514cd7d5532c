"""95 % confidence intervals of scores over examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from albertine.core.quantiles import Z
from albertine.core.randomness import generator
from albertine.evaluation.metrics import METRICS

DRAWS, FEWEST, WORK = 1000, 200, 2_000_000
"""Bootstrap: DRAWS resamples, fewer with many examples (WORK), at least FEWEST."""
SAME = 5e-4


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, and the method."""

    low: float
    high: float
    how: str


def of_share(share: float, count: int) -> Interval:
    """The interval of a share of independent examples (Wilson, JASA 22, 1927); valid near 0 and 1 too.

    Args:
        share: in [0, 1]. count: examples, at least one.
    """
    middle = (share + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = Z / (1 + Z * Z / count) * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return Interval(middle - half, middle + half, "Wilson")


def of_error(value: float, error: float) -> Interval:
    """The interval of a value with a known standard error."""
    return Interval(value - Z * error, value + Z * error, "standard error")


def of_predictions(metric: str, value: float, lines: Sequence[dict[str, Any]]) -> Interval | None:
    """The interval of a metric over a run's predictions, by Wilson or by the percentiles of Efron's
    bootstrap.

    Args:
        value: the recorded score. lines: `prediction` and `label` of every example.

    Returns:
        None where the lines do not reproduce that value, as for a metric of more than these fields, or where
        all resamples have the same score.
    """
    known = [line for line in lines if "label" in line and "prediction" in line]
    gold, predicted = ([_hashable(line[key]) for line in known] for key in ("label", "prediction"))
    if metric not in METRICS or not known:
        return None
    try:
        if abs(METRICS[metric](gold, predicted) - value) > SAME:
            return None
        if metric == "accuracy" or metric.endswith("_exact"):  # shares of examples that are right
            return of_share(value, len(known))
        draws = max(FEWEST, min(DRAWS, WORK // len(known)))
        found = []
        for number in range(draws):
            rows = generator(0, "bootstrap", number).integers(0, len(known), len(known)).tolist()
            found.append(METRICS[metric]([gold[i] for i in rows], [predicted[i] for i in rows]))
    except (TypeError, ValueError, KeyError, AttributeError, IndexError):
        return None
    low, high = np.quantile(found, [0.025, 0.975]).tolist()
    return Interval(low, high, f"bootstrap of {draws:,}") if low < high else None


def _hashable(value: Any) -> Any:
    """Several right answers as a set; things that are lists themselves, such as entities, as tuples."""
    if not isinstance(value, list):
        return value
    texts = all(isinstance(x, str) for x in value)
    return frozenset(value) if texts else [tuple(x) if isinstance(x, list) else x for x in value]
