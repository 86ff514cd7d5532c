"""Median and spread of a metric over the seeds of a run, as the ALBERT paper reports its scores."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A metric over the runs of several seeds.

    Attributes:
        values: in the order of the seeds, at least one.
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the sample; None for one run."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def as_dict(self) -> dict[str, object]:
        """As JSON data."""
        return {"median": self.median, "deviation": self.deviation, "values": self.values}
