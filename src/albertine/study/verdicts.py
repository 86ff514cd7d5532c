"""Whether a conclusion of a paper holds: the sign of a difference of cells against its interval over
seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from albertine.core.quantiles import t_quantile

Expected = Literal["greater", "less", "equal"]
Verdict = Literal["holds", "does not hold", "not decided"]

RULE = (
    "A difference is computed for every seed, between cells of the same seed. Its mean has a 95 % interval "
    "by Student's t over the seeds. Expected greater (less): the conclusion holds where the whole interval "
    "is above (below) 0, does not hold where it is below (above) 0, and is not decided where it contains 0. "
    "Expected equal within m: it holds where the whole interval is within ±m, does not hold where it is "
    "outside, and is not decided otherwise. With one seed there is no interval, and a conclusion is decided "
    "only if the study states a threshold that the difference exceeds."
)


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % interval.

    Attributes:
        low, high: None for a single seed, of which there is none.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int

    def as_dict(self) -> dict[str, float | int | None]:
        """As plain data."""
        return {"mean": self.mean, "low": self.low, "high": self.high, "seeds": self.seeds}


def interval(values: Sequence[float]) -> Interval:
    """The mean of at least one value with its 95 % t-interval (Student, Biometrika 6, 1908)."""
    mean, count = fmean(values), len(values)
    if count < 2:
        return Interval(mean, None, None, count)
    half = t_quantile(count - 1) * stdev(values) / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def verdict(
    found: Interval, expected: Expected, *, within: float | None = None, threshold: float | None = None
) -> Verdict:
    """Whether a difference is as expected, by `RULE`.

    Args:
        within: the margin of `equal`. threshold: of a single seed, the difference that decides.
    """
    if found.low is None or found.high is None:
        if threshold is None:
            return "not decided"
        low, high = found.mean - threshold, found.mean + threshold
    else:
        low, high = found.low, found.high
    if expected == "equal":
        margin = within or 0.0
        if -margin <= low and high <= margin:
            return "holds"
        return "does not hold" if low > margin or high < -margin else "not decided"
    if expected == "less":
        low, high = -high, -low
    return "holds" if low > 0 else "does not hold" if high < 0 else "not decided"
