"""Being asked to stop: the first signal lets the run save and leave, a second one ends it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
"""Scheduler, Ctrl-C, a terminal that is closed, and the early warning that Slurm sends with --signal=USR1@60
to processes that torchrun has not started (docs/how-to/runs.md)."""


ECHO = 5.0
"""Seconds within which torchrun passes on what a scheduler has sent to its processes as well."""


class StopRequested(BaseException):
    """Raised where a run may stop. A BaseException, so that no `except Exception` on its way keeps the run
    alive.
    """


class Signals:
    """While entered, the signals `ASKING` ask the run to stop instead of ending the process.

    Outside the main thread, where Python allows no handlers, it stays deaf; so it does to signals that are
    ignored, as `nohup` and the `&` of a script have it, and to those that a program in which Python is
    embedded answers: its handler could not be put back.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._since = 0.0
        self._interruptible = False
        self._process = os.getpid()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in ASKING:
                if signal.getsignal(number) not in (None, signal.SIG_IGN):
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """128 + the signal: 143 after SIGTERM, 130 after Ctrl-C, 129 where the terminal was closed, 138 after
        SIGUSR1; 143 where only another rank was asked."""
        return 128 + (self.received or signal.SIGTERM)

    def poll(self) -> None:
        """Stop here if asked to."""
        if self.received is not None:
            raise StopRequested

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within, a signal ends even a blocking wait. Only for code that changes nothing of the run."""
        self.poll()
        self._interruptible = True
        try:
            yield
        finally:
            self._interruptible = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A forked loader process inherits this handler. Ctrl-C reaches the whole group: its parent
            # decides.
            if number == signal.SIGTERM:
                os._exit(128 + number)
            return
        if self.received is not None:
            if "TORCHELASTIC_RUN_ID" in os.environ and time.monotonic() - self._since < ECHO:
                return
            if number == signal.SIGINT:
                raise KeyboardInterrupt  # not the end of a notebook, and of all that it holds
            os._exit(128 + number)
        self.received, self._since = number, time.monotonic()
        if self._interruptible:
            self._interruptible = False
            raise StopRequested
