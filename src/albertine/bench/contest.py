"""Several ways to do the same thing, timed in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from albertine.bench.ceilings import tflops
from albertine.bench.quiet import Clock, others, quiet
from albertine.errors import RunError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Times:
    """How long one way took, round by round.

    Attributes:
        seconds: of every round, in their order.
    """

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def told(self) -> dict[str, Any]:
        """As JSON data, in milliseconds."""
        rounds = [round(1e3 * seconds, 4) for seconds in self.seconds]
        return {"min_ms": min(rounds), "median_ms": statistics.median(rounds), "ms": rounds}


@dataclass(frozen=True)
class Contest:
    """What was measured.

    Attributes:
        times: of every way by its name.
        others: processors that other programs kept busy meanwhile; None where the system does not tell.
        cores: processors there were.
        said: what every way returned when it warmed up.
        tflops: by format, what the machine's own matrix product made before every round.
    """

    times: Mapping[str, Times]
    others: float | None
    cores: int
    said: Mapping[str, Any] = field(default_factory=dict)
    tflops: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def quiet(self) -> bool:
        """Whether ratios of these times mean something."""
        return quiet(self.others, self.cores)

    def ratio(self, slow: str, fast: str) -> float:
        """How many times faster `fast` was in a round, the median of all rounds.

        A machine that is shared with others changes its speed within minutes, by a factor of two. The two
        times of one round are close together; the fastest rounds of both may not be.

        Raises:
            RunError: the machine was busy with something else.
        """
        if not self.quiet:
            raise RunError(
                f"other programs kept {self.others:.1f} of {self.cores} processors busy: no ratio from these "
                "times",
                remedy="End them and measure again",
            )
        pairs = zip(self.times[slow].seconds, self.times[fast].seconds, strict=True)
        return statistics.median(a / b for a, b in pairs)

    def ratios(self, pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
        """How many times faster the first of each pair was than the second; none if the machine was busy."""
        return {f"{fast} / {slow}": self.ratio(slow, fast) for fast, slow in pairs} if self.quiet else {}

    def told(self) -> dict[str, Any]:
        """As JSON data."""
        runs = {name: times.told() for name, times in self.times.items()}
        made = {name: [round(rate, 3) for rate in rates] for name, rates in self.tflops.items()}
        return {"runs": runs, "others_busy": self.others, "quiet": self.quiet, "tflops": made}


def compete(
    ways: Mapping[str, Callable[[], object]], rounds: int, cores: int, say: Say = lambda text: None
) -> Contest:
    """Time several ways in turn, round by round. Each runs once before it is timed, in every round: the one
    before it leaves other data in the caches, and some leave threads that wait busily for more.

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
    made: list[dict[str, float]] = []
    begin = Clock.now()
    for i in range(rounds):
        say(f"round {i + 1} of {rounds}")
        made.append(tflops())
        for name, run in ways.items():
            run()
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    times = {name: Times(tuple(found)) for name, found in seconds.items()}
    rates = {name: tuple(each[name] for each in made) for name in made[0]}
    return Contest(times, others(begin, Clock.now()), cores, said, rates)
