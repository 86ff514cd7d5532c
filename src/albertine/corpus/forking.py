"""Signals while a process is being forked, and errors on their way back from it.

A child begins with the Python handlers of its parent. A signal that reaches it before it has put them back
runs them in the child: a handler that raises then unwinds a copy of the parent's whole stack, with all its
`finally` blocks, over files that are the parent's.
"""

from __future__ import annotations

import contextlib
import signal
import traceback
from collections.abc import Iterator

Mask = set[signal.Signals]


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


class Failure:
    """An error on its way to the parent process.

    Args:
        whole: kinds of errors that survive the journey; of any other only the text surely does.
    """

    def __init__(self, error: Exception, *whole: type[Exception]) -> None:
        self.trace = traceback.format_exc()
        told = RuntimeError(f"{type(error).__name__}: {error}")
        self.error = error if isinstance(error, whole) else told
