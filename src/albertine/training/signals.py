"""Stop signals: after the first the run saves and ends, a second one ends the process at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
"""Of a scheduler, of Ctrl-C, of a closed terminal, and Slurm's early warning --signal=USR1@60 to processes
that torchrun has not started (docs/how-to/runs.md)."""


ECHO = 5.0
"""Seconds within which torchrun repeats a signal that the scheduler has sent to its processes, too."""


class StopRequested(BaseException):
    """Raised where a run may stop. A BaseException, which no `except Exception` catches."""


class Signals:
    """While entered, the signals `STOP_SIGNALS` request the end of the run instead of ending the process.

    Without effect outside the main thread, where Python allows no handlers, for ignored signals (`nohup`, `&`
    in a script), and for those handled by a program that embeds Python, whose handler could not be restored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._since = 0.0
        self._interruptible = False
        self._process = os.getpid()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
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
        """128 + the signal: 143 for SIGTERM, 130 for Ctrl-C, 129 for a closed terminal, 138 for SIGUSR1; 143
        if only another rank received one."""
        return 128 + (self.received or signal.SIGTERM)

    def poll(self) -> None:
        """Raise StopRequested if a signal was received."""
        if self.received is not None:
            raise StopRequested

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within, a signal interrupts blocking calls. Only for code that does not change the run."""
        self.poll()
        self._interruptible = True
        try:
            yield
        finally:
            self._interruptible = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A forked loader process inherits this handler. Ctrl-C reaches the whole process group, and its
            # parent handles it.
            if number == signal.SIGTERM:
                os._exit(128 + number)
            return
        if self.received is not None:
            if "TORCHELASTIC_RUN_ID" in os.environ and time.monotonic() - self._since < ECHO:
                return
            if number == signal.SIGINT:
                raise KeyboardInterrupt  # ends the run, but not the kernel of a notebook
            os._exit(128 + number)
        self.received, self._since = number, time.monotonic()
        if self._interruptible:
            self._interruptible = False
            raise StopRequested
