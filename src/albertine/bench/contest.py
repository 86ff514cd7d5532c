"""Several ways to do the same thing, timed in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from albertine.bench.quiet import Clock, others
from albertine.errors import RunError

BUSY = 0.15
"""Processors kept busy by other programs, of those that are there, above which ratios mean nothing."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Times:
    """How long one way took, round by round.

    Attributes:
        seconds: of every round, in their order.
    """

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The fastest round: other work only ever adds time."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def told(self) -> dict[str, float]:
        """As JSON data, in milliseconds."""
        return {"min_ms": 1e3 * self.best, "median_ms": 1e3 * self.median, "rounds": len(self.seconds)}


@dataclass(frozen=True)
class Contest:
    """What was measured.

    Attributes:
        times: of every way by its name.
        others: processors that other programs kept busy meanwhile; None where the system does not tell.
        cores: processors there were.
        said: what every way returned when it warmed up.
    """

    times: Mapping[str, Times]
    others: float | None
    cores: int
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def quiet(self) -> bool:
        """Whether ratios of these times mean something."""
        return self.others is None or self.others <= BUSY * self.cores

    def ratio(self, slow: str, fast: str) -> float:
        """How many times faster `fast` was, by the fastest rounds of both.

        Raises:
            RunError: the machine was busy with something else.
        """
        if not self.quiet:
            raise RunError(
                f"other programs kept {self.others:.1f} of {self.cores} processors busy: no ratio from these "
                "times",
                remedy="End them and measure again",
            )
        return self.times[slow].best / self.times[fast].best

    def ratios(self, pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
        """How many times faster the first of each pair was than the second; none if the machine was busy."""
        return {f"{fast} / {slow}": self.ratio(slow, fast) for fast, slow in pairs} if self.quiet else {}

    def told(self) -> dict[str, Any]:
        """As JSON data."""
        runs = {name: times.told() for name, times in self.times.items()}
        return {"runs": runs, "others_busy": self.others, "quiet": self.quiet}


def compete(
    ways: Mapping[str, Callable[[], object]], rounds: int, cores: int, say: Say = lambda text: None
) -> Contest:
    """Time several ways in turn, round by round, after each has run once to warm up.

    Args:
        ways: by name; each does the whole work and returns when it is done.
        cores: processors that this program may use.
        say: is told what is being warmed up.
    """
    said = {}
    for name, run in ways.items():
        say(f"warming up: {name}")
        said[name] = run()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    begin = Clock.now()
    for i in range(rounds):
        say(f"round {i + 1} of {rounds}")
        for name, run in ways.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    times = {name: Times(tuple(found)) for name, found in seconds.items()}
    return Contest(times, others(begin, Clock.now()), cores, said)
