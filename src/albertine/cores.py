"""The processors of this machine that this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """How many they are; where the system knows no such limit (macOS), all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
