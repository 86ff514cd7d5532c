"""Timing of several implementations of the same work in interleaved rounds."""

from __future__ import annotations

import signal
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from albertine.bench.idle_check import Moment, others, quiet
from albertine.core.devices import fast_bfloat16
from albertine.errors import RunError

Log = Callable[[str], None]

PATIENCE = 10.0
"""Most time of an implementation, as a multiple of the slowest of the others."""

FIRST, LEAST = 10.0, 1.0
"""Seconds that a first run, which may include preparation, and any other run may always take."""


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

    def as_dict(self) -> dict[str, Any]:
        """As JSON data, in milliseconds."""
        rounds = [round(1e3 * seconds, 4) for seconds in self.seconds]
        return {"min_ms": min(rounds), "median_ms": statistics.median(rounds), "ms": rounds}


@dataclass(frozen=True)
class Contest:
    """The results of a measurement.

    Attributes:
        times: of every implementation, by name.
        others: processors that other programs kept busy; None if the system does not report it.
        cores: number of processors.
        outputs: return values of the warm-up.
        tflops: by format, the speed of a plain matrix product before every round.
        stopped: implementations that were too slow or failed, which are in no other attribute, with the
            reason.
    """

    times: Mapping[str, Times]
    others: float | None
    cores: int
    outputs: Mapping[str, Any] = field(default_factory=dict)
    tflops: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)

    @property
    def quiet(self) -> bool:
        """Whether the machine was idle enough for ratios of these times."""
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
        """How many times faster the first of each pair was than the second, where both took part; none if the
        machine was busy."""
        there = ((fast, slow) for fast, slow in pairs if fast in self.times and slow in self.times)
        return {f"{fast} / {slow}": self.ratio(slow, fast) for fast, slow in there} if self.quiet else {}

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        runs = {name: times.as_dict() for name, times in self.times.items()}
        made = {name: [round(rate, 3) for rate in rates] for name, rates in self.tflops.items()}
        found = {"runs": runs, "others_busy": self.others, "quiet": self.quiet, "tflops": made}
        return {**found, "left_out": dict(self.stopped)}


class _TooSlow(BaseException):
    """Not an `Exception`, which the code of a peer might catch."""


def compete(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    cores: int,
    log: Log = lambda text: None,
    *,
    patience: float | None = None,
    kept: Collection[str] = (),
) -> Contest:
    """Time several implementations in interleaved rounds. In every round each runs once before it is timed:
    the one before it leaves other data in the caches, and some leave busily waiting threads. Every second
    round is in reverse order, as the first of a round may be a quarter slower than in another position.

    Args:
        ways: implementations by name; each does the whole work.
        cores: processors that this program may use.
        log: called with a message for every step.
        patience: an implementation that takes this many times as long as the slowest of the others is
            stopped, as soon as its current native call returns, and left out, as is one that fails in the
            warm-up; default: none is.
        kept: implementations that are never left out; their failures are raised.
    """
    outputs: dict[str, Any] = {}
    lasted: dict[str, float] = {}
    stopped: dict[str, str] = {}

    def limit(name: str, least: float) -> float | None:
        others = [seconds for other, seconds in lasted.items() if other != name]
        return None if patience is None or name in kept or not others else max(patience * max(others), least)

    def stop(name: str, error: Exception | None = None) -> None:
        lasted.pop(name, None)
        slow = f"stopped: took {patience:g} times as long as the slowest of the others"
        stopped[name] = slow if error is None else in_a_line(error)
        log(f"{name} {stopped[name]}")

    for name, run in ways.items():
        log(f"warming up: {name}")
        try:
            with _at_most(limit(name, FIRST)):
                outputs[name] = run()
            if patience is not None:  # what follows is a time without preparations
                with _at_most(limit(name, LEAST)):
                    lasted[name] = _seconds(run)
        except _TooSlow:
            stop(name)
        except Exception as error:  # a guest's own failure must not keep the others from being measured
            if patience is None or name in kept:
                raise
            stop(name, error)
    for name in sorted(lasted, key=lasted.__getitem__, reverse=True):
        most = limit(name, LEAST)  # now that all of the others are known
        if most is not None and lasted[name] > most:
            stop(name)
    seconds: dict[str, list[float]] = {name: [] for name in ways if name not in stopped}
    made: list[dict[str, float]] = []
    begin = Moment.now()
    for i in range(rounds):
        log(f"round {i + 1} of {rounds}")
        made.append(tflops())
        for name in list(reversed(seconds) if i % 2 else seconds):
            try:
                with _at_most(limit(name, LEAST)):
                    ways[name]()
                with _at_most(limit(name, LEAST)):
                    seconds[name].append(_seconds(ways[name]))
            except _TooSlow:
                stop(name)
                del seconds[name]
    times = {name: Times(tuple(found)) for name, found in seconds.items()}
    rates = {name: tuple(each[name] for each in made) for name in made[0]}
    outputs = {name: found for name, found in outputs.items() if name in times}
    return Contest(times, others(begin, Moment.now()), cores, outputs, rates, stopped)


def in_a_line(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    first, _, _ = str(error).partition("\n")
    return f"{type(error).__name__}: {first[:200]}"


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@contextmanager
def _at_most(seconds: float | None) -> Iterator[None]:
    """Stops what is done within it after so many seconds, between two of Python's instructions.

    Signals do it, so only in the main thread and where the system has such clocks; elsewhere nothing is
    stopped.

    Raises:
        _TooSlow: it was stopped.
    """
    here = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if seconds is None or not here:
        yield
        return

    def ring(*_: object) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


SIZE = 1536


def tflops() -> dict[str, float]:
    """TFLOP/s of a large matrix product by format, fastest of three; in bfloat16 where the processor has it.

    A virtual machine that shares its cores may have half of them for minutes, which no clock shows.
    """
    formats = {"float32": torch.float32}
    if fast_bfloat16(torch.device("cpu")):
        formats["bfloat16"] = torch.bfloat16
    return {name: _tflops(dtype) for name, dtype in formats.items()}


@torch.inference_mode()
def _tflops(dtype: torch.dtype) -> float:
    a = torch.ones(SIZE, SIZE, dtype=dtype)
    seconds = []
    for _ in range(4):  # the first compiles a kernel
        begin = time.perf_counter()
        torch.mm(a, a)
        seconds.append(time.perf_counter() - begin)
    return 2 * SIZE**3 / min(seconds[1:]) / 1e12
