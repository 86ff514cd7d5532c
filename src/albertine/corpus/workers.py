"""A pool of forked worker processes with bounded memory, and handling of signals and errors around forks.

Not `concurrent.futures`: its queue is unbounded, and it cannot end its processes at once.

A forked child starts with its parent's Python signal handlers. A signal that arrives before the child has
reset them runs them in the child: a handler that raises then unwinds a copy of the parent's stack and runs
its `finally` blocks on the parent's files. So signals are blocked around each fork.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from albertine.errors import AlbertineError, ProcessError, RunError

SignalMask = set[signal.Signals]

GRACE_SECONDS = 5.0
"""Time that a process gets to end by itself before it is killed."""


@contextlib.contextmanager
def signals_blocked(*numbers: signal.Signals) -> Iterator[SignalMask]:
    """Block these signals in this thread and in the processes it starts.

    Yields:
        The mask before; a child passes it to `restore_signals` when it has installed its own handlers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def restore_signals(before: SignalMask) -> None:
    """In a child: restore the mask, so that signals blocked meanwhile are delivered now."""
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def exit_with_parent() -> None:
    """In a child: exit as soon as the parent has ended.

    A parent that is killed cannot end its children, which would hold its locks and network connections.
    """
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def end_processes(processes: Sequence[BaseProcess], seconds: float = 0.0) -> None:
    """In a parent: wait up to `seconds` for the processes to end, then kill the rest, which may ignore
    SIGTERM."""
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join()


def exit_description(process: BaseProcess) -> str:
    """How a process ended, for a message: its signal or its exit code."""
    code = process.exitcode or 0
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class Failure:
    """An error that a child process sends to its parent.

    Args:
        picklable: classes of errors that can be sent whole; of others only the text is sent.
    """

    def __init__(self, error: Exception, *picklable: type[Exception]) -> None:
        self.trace = traceback.format_exc()
        as_text = RuntimeError(f"{type(error).__name__}: {error}")
        self.error = error if isinstance(error, picklable) else as_text


J = TypeVar("J")
R = TypeVar("R")


class WorkerPool(Generic[J, R]):
    """Runs `work` on jobs in `count` processes; with one, in this process.

    Args:
        work: a function of a job. Forked processes inherit it, so it need not be picklable.
        done: called in this process with every job's result, in order of completion.
        weight: memory that a job takes, in any unit.
        budget: largest sum of weights in progress; a heavier job runs alone.

    Raises:
        AlbertineError or OSError: raised by `work`.
        ProcessError: a process was killed.
        RunError: no process can be started.
    """

    def __init__(
        self,
        work: Callable[[J], R],
        done: Callable[[R], None],
        count: int,
        *,
        weight: Callable[[J], int],
        budget: int,
    ) -> None:
        self._work, self._done = work, done
        self._weight, self._budget = weight, budget
        self._running: dict[Connection, int] = {}
        self._waiting: deque[J] = deque()
        self._processes: dict[Connection, BaseProcess] = {}
        methods = multiprocessing.get_all_start_methods()
        # a forked child needs no guard around the caller's main module, and nothing has to be sent to it
        context: Any = multiprocessing.get_context("fork" if "fork" in methods else None)
        for _ in range(count if count > 1 else 0):
            ours, theirs = context.Pipe()
            inherited = [*self._processes, ours]
            with signals_blocked(signal.SIGINT, signal.SIGTERM) as mask:
                process = context.Process(target=_serve, args=(work, theirs, inherited, mask), daemon=True)
                try:
                    process.start()
                except OSError as error:
                    why = f"no process can be started ({error.strerror or error})"
                    raise RunError(why, remedy="Use fewer workers") from error
                theirs.close()
                self._processes[ours] = process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection, process in self._processes.items():
            connection.close()
            if kind is not None:
                process.terminate()
        end_processes(list(self._processes.values()), GRACE_SECONDS)

    def put(self, job: J) -> None:
        """Submit a job; blocks while too many jobs wait for a process."""
        if not self._processes:
            self._done(self._work(job))
            return
        self._waiting.append(job)
        self.poll()
        while self._waiting and (len(self._waiting) >= len(self._processes) or self._load() > self._budget):
            self.poll(None)

    def _load(self) -> int:
        return sum(self._running.values()) + sum(map(self._weight, self._waiting))

    def finish(self) -> None:
        """Wait for all jobs."""
        while self._waiting or self._running:
            self.poll(None)

    def poll(self, timeout: float | None = 0.0) -> None:
        """Receive results that are ready and start waiting jobs; with `timeout` None, wait for a result."""
        self._start_waiting()
        for connection in wait(list(self._running), timeout) if self._running else ():
            assert isinstance(connection, Connection)
            try:
                result = connection.recv()
            except (EOFError, OSError):  # OSError: it died in the middle of a result
                raise self._death(connection) from None
            del self._running[connection]
            if isinstance(result, Failure):
                raise result.error from RuntimeError(result.trace)
            self._done(result)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < len(self._processes):
            weight = self._weight(self._waiting[0])
            if self._running and sum(self._running.values()) + weight > self._budget:
                return
            connection = next(c for c in self._processes if c not in self._running)
            self._running[connection] = weight
            try:
                connection.send(self._waiting.popleft())
            except (BrokenPipeError, ConnectionResetError):
                raise self._death(connection) from None

    def _death(self, connection: Connection) -> ProcessError:
        process = self._processes[connection]
        process.join(GRACE_SECONDS)
        remedy = "If memory ran out, use fewer workers; run the same command again, what is finished is kept"
        return ProcessError(f"a worker process {exit_description(process)}", remedy=remedy)


def _serve(
    work: Callable[[Any], Any], connection: Connection, inherited: list[Connection], mask: SignalMask
) -> None:
    # Ctrl-C reaches the whole process group; the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    restore_signals(mask)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    exit_with_parent()
    for other in inherited:
        other.close()  # else this process would keep the pipes of a dead parent open
    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            return
        try:
            result = work(job)
        except Exception as error:
            result = Failure(error, AlbertineError, OSError, MemoryError)
        try:
            connection.send(result)
        except OSError:
            return
