"""CPU cores and their features: how many this process may use, and what they support."""

from __future__ import annotations

import math
import os
import platform
from functools import cache
from pathlib import Path

LOAD_FILE = "/proc/loadavg"
QUOTA_FILE, CGROUP_V1_FOLDER = "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu"
"""CPU limit of a container: a file of cgroup v2, a folder of cgroup v1."""


BFLOAT16 = frozenset(("avx512_bf16", "amx_bf16", "bf16"))
"""Flags of CPUs that multiply bfloat16 in hardware."""


@cache  # called in every forward pass
def cpu_flags() -> frozenset[str]:
    """Feature flags of the CPU by their Linux names; empty where the system does not list them."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith(("flags", "features")):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


@cache
def cpu_name() -> str:
    """The model of the CPU as the system names it; the architecture where it does not."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Number of CPU cores that this process may use, by its affinity and the limit of its container."""
    return max(1, math.ceil(min(_allowed(), _quota())))


def cpu_time_limited() -> bool:
    """Whether a container limits this process to less CPU time than its cores provide."""
    return _quota() < _allowed()


def _allowed() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quota() -> float:
    """CPU limit of the container in cores; infinity if there is none."""
    try:
        if os.path.exists(QUOTA_FILE):
            most, period = Path(QUOTA_FILE).read_text(encoding="ascii").split()
        else:
            files = (Path(CGROUP_V1_FOLDER, f"cpu.cfs_{name}_us") for name in ("quota", "period"))
            most, period = (file.read_text(encoding="ascii") for file in files)
        limit = int(most) / int(period)
        return limit if limit > 0 else math.inf  # -1: no limit
    except (OSError, ValueError):  # "max": no limit
        return math.inf


def usable_threads() -> int:
    """Number of threads for computation: OMP_NUM_THREADS, as torch reads it, else one per usable core."""
    requested = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(requested) if requested.isdecimal() and int(requested) else usable_cores()


def competing_threads() -> float:
    """Runnable threads of the machine other than this one: now or the mean of the last minute, whichever is
    less; infinity where the system reports neither."""
    mean = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.inf
    try:
        return min(mean, int(Path(LOAD_FILE).read_text(encoding="ascii").split()[3].partition("/")[0]) - 1)
    except (OSError, ValueError, IndexError):
        return mean
