"""Memory of this process."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

MEGABYTE = 1_000_000


def resident_bytes(process: int | str = "self") -> int | None:
    """The memory that a process takes, by default this one; None where the system does not say (it is not
    Linux)."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def trim_memory() -> None:
    """Return free pages of the C library's heap to the system. With batches of changing size the heap grows
    by fragments for minutes; glibc alone returns only free pages at its end."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)
