"""Confidence intervals of means of a few runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

_T_95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
_T_95 += (2.131, 2.120, 2.110, 2.101, 2.093)
T_95 = dict(enumerate(_T_95, 2))
"""Of Student's distribution with one degree of freedom less than so many values; a little wide for more."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Their mean, and half of its 95 % interval, which one value alone has not."""
    count = len(values)
    half = T_95[min(count, max(T_95))] * statistics.stdev(values) / count**0.5 if count > 1 else math.nan
    return statistics.mean(values), half
