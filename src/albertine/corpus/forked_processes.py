"""Signals while a process is being forked, errors on their way back from it, and the ends of both.

A child begins with the Python handlers of its parent. A signal that reaches it before it has put them back
runs them in the child: a handler that raises then unwinds a copy of the parent's whole stack, with all its
`finally` blocks, over files that are the parent's.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.process import BaseProcess

Mask = set[signal.Signals]

GRACE = 5.0
"""Seconds in which a process that is no longer needed may end by itself."""


@contextlib.contextmanager
def held_back(*numbers: signal.Signals) -> Iterator[Mask]:
    """Within, these signals wait, in this thread and in the processes it starts.

    Yields:
        The mask as it was; a child gives it to `let_through` when it has handlers of its own.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through(before: Mask) -> None:
    """In a child: put the mask back, so that signals which came meanwhile are answered now."""
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """In a child: end when the parent has ended, whatever this process is at. A parent that is killed cannot
    end its children, which would hold its locks and its connections to other machines."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def end_processes(processes: Sequence[BaseProcess], seconds: float = 0.0) -> None:
    """In a parent: wait so long for processes that were asked to end, then kill those that have not; none is
    left. They may ignore SIGTERM."""
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join()


def how_it_ended(process: BaseProcess) -> str:
    """Of a process that has ended."""
    code = process.exitcode or 0
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class Failure:
    """An error on its way to the parent process.

    Args:
        whole: kinds of errors that survive the journey; of any other only the text surely does.
    """

    def __init__(self, error: Exception, *whole: type[Exception]) -> None:
        self.trace = traceback.format_exc()
        told = RuntimeError(f"{type(error).__name__}: {error}")
        self.error = error if isinstance(error, whole) else told
