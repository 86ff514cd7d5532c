"""The processors of this machine that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

RUNNING = "/proc/loadavg"


def usable_cores() -> int:
    """How many they are; where the system knows no such limit (macOS), all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_threads() -> int:
    """How many threads a computation may have: one for each of these processors, or as many as the variable
    OMP_NUM_THREADS says, which torch goes by too."""
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(told) if told.isdecimal() and int(told) else usable_cores()


def others_running() -> float:
    """How many threads other than this one want a processor of the machine: at this moment or in the mean of
    the last minute, whichever is less, as far as the system tells."""
    mean = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.inf
    try:
        return min(mean, int(Path(RUNNING).read_text(encoding="ascii").split()[3].partition("/")[0]) - 1)
    except (OSError, ValueError, IndexError):
        return mean
