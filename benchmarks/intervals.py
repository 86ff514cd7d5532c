"""How sure a mean of a few runs is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

T_95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 9: 2.306, 12: 2.201, 15: 2.145}
"""Of Student's distribution with one degree of freedom less than so many values."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Their mean, and half of its 95 % interval, which one value alone has not."""
    count = len(values)
    half = T_95[count] * statistics.stdev(values) / count**0.5 if count > 1 else math.nan
    return statistics.mean(values), half
