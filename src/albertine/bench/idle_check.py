"""Whether anything else used the processor while something was measured."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STAT = Path("/proc/stat")

BUSY = 0.15
"""Processors kept busy by other programs, of those that are there, above which ratios mean nothing."""


@dataclass(frozen=True)
class Moment:
    """A moment, by three clocks.

    Attributes:
        wall: seconds. busy: processor seconds of the whole machine, or None where it is not known.
        own: those of this process and of its children that have ended.
    """

    wall: float
    busy: float | None
    own: float

    @classmethod
    def now(cls) -> Moment:
        times = os.times()
        own = times.user + times.system + times.children_user + times.children_system
        return cls(time.perf_counter(), _busy(), own)


def others(begin: Moment, end: Moment) -> float | None:
    """Processors that other programs kept busy between two moments, on average; None if it is not known.

    In a container the machine's clock may count its neighbours too: they disturb a measurement just as much.
    """
    if begin.busy is None or end.busy is None or end.wall <= begin.wall:
        return None
    foreign = (end.busy - begin.busy) - (end.own - begin.own)
    return max(0.0, foreign / (end.wall - begin.wall))


def quiet(busy: float | None, cores: int) -> bool:
    """Whether ratios of times mean something, where `others` kept so many of the processors busy."""
    return busy is None or busy <= BUSY * cores


def load_since(begin: Moment, cores: int) -> dict[str, Any]:
    """The same of the time since then, as JSON data."""
    busy = others(begin, Moment.now())
    return {"others_busy": busy, "quiet": quiet(busy, cores)}


def _busy() -> float | None:
    """User, nice, system, irq, softirq and steal of the first line of /proc/stat, in seconds."""
    try:
        fields = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()
        ticks = [int(field) for field in fields[1:9]]
    except (OSError, ValueError):
        return None
    user, nice, system, _idle, _wait, irq, softirq, steal = ticks
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
