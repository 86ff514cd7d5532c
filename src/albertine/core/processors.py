"""The processors of this machine: how many this process may use, and what they can do."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path

RUNNING = "/proc/loadavg"
QUOTA, OLDER_QUOTA = "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu"
"""Where a container's limit is told: a file, and in the first version of control groups a folder."""


BFLOAT16 = frozenset(("avx512_bf16", "amx_bf16", "bf16"))
"""Flags of processors that multiply in bfloat16."""


@cache  # asked in every forward pass
def cpu_flags() -> frozenset[str]:
    """What the processor can do, as Linux names it; empty where it is not told."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith(("flags", "features")):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def usable_cores() -> int:
    """How many they are, by the limit of a container too; where the system knows no limit (macOS), all."""
    return max(1, math.ceil(min(_allowed(), _quota())))


def cpu_time_limited() -> bool:
    """Whether a container gives this process less time than its processors have."""
    return _quota() < _allowed()


def _allowed() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quota() -> float:
    """The time that a container gives, in processors."""
    try:
        if os.path.exists(QUOTA):
            most, period = Path(QUOTA).read_text(encoding="ascii").split()
        else:
            files = (Path(OLDER_QUOTA, f"cpu.cfs_{name}_us") for name in ("quota", "period"))
            most, period = (file.read_text(encoding="ascii") for file in files)
        limit = int(most) / int(period)
        return limit if limit > 0 else math.inf  # -1: there is none
    except (OSError, ValueError):  # "max": there is none
        return math.inf


def usable_threads() -> int:
    """How many threads a computation may have: one for each of these processors, or as many as the variable
    OMP_NUM_THREADS says, which torch goes by too."""
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(told) if told.isdecimal() and int(told) else usable_cores()


def competing_threads() -> float:
    """How many threads other than this one want a processor of the machine: at this moment or in the mean of
    the last minute, whichever is less, as far as the system tells."""
    mean = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.inf
    try:
        return min(mean, int(Path(RUNNING).read_text(encoding="ascii").split()[3].partition("/")[0]) - 1)
    except (OSError, ValueError, IndexError):
        return mean
