"""Lock a folder for one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from albertine.core.files import FILE_MODE
from albertine.errors import RunError

LOCK_FILE = ".lock"
GRACE_SECONDS = 10.0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _holder(path: Path) -> tuple[int, str]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return int(tree["pid"]), str(tree["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, "unknown"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder.

    The kernel releases the lock when its holder and the holder's worker processes have ended in any way, so a
    leftover lock file does not lock. Workers of a killed holder get `GRACE_SECONDS` to end.

    Raises:
        RunError: another process holds it; names the process.
    """
    path = folder / LOCK_FILE
    handle = _acquire(path)
    try:
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _acquire(path: Path) -> int:
    waiting = time.monotonic() + GRACE_SECONDS
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # the last holder may have removed the file between open and flock
            if path.exists() and os.fstat(handle).st_ino == path.stat().st_ino:
                return handle
            os.close(handle)
        except BlockingIOError:
            os.close(handle)
            pid, host = _holder(path)
            orphans = pid and host == socket.gethostname() and not _alive(pid)
            if not orphans or time.monotonic() > waiting:
                raise RunError(
                    f"is in use by process {pid} on {host}",
                    where=path.parent,
                    remedy="Wait for it, stop it, or name another folder",
                ) from None
            time.sleep(0.1)
