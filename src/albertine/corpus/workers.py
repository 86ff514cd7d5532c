"""A few processes that work through jobs, with a bound on how much waits or is in hand.

Not `concurrent.futures`: its queue is unbounded, and it cannot end its processes at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from albertine.corpus.forked_processes import (
    GRACE,
    Failure,
    Mask,
    end_processes,
    end_with_parent,
    held_back,
    how_it_ended,
    let_through,
)
from albertine.errors import AlbertineError, ProcessError, RunError

J = TypeVar("J")
R = TypeVar("R")


class WorkerPool(Generic[J, R]):
    """Runs `work` on jobs in `count` processes; with one, in this process.

    Args:
        work: a function of a job; forked processes have it as it is here.
        done: called in this process with every job's result, in the order in which they are ready.
        weight: how much memory a job takes, in any unit.
        budget: most weight given out at a time; a job that is heavier goes out alone.

    Raises:
        AlbertineError or OSError: as `work` raised it.
        ProcessError: a process was killed.
        RunError: none can be started.
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
        self._in_hand: dict[Connection, int] = {}
        self._waiting: deque[J] = deque()
        self._processes: dict[Connection, BaseProcess] = {}
        methods = multiprocessing.get_all_start_methods()
        # a forked child needs no guard around the caller's main module and nothing sent to it
        context: Any = multiprocessing.get_context("fork" if "fork" in methods else None)
        for _ in range(count if count > 1 else 0):
            ours, theirs = context.Pipe()
            inherited = [*self._processes, ours]
            with held_back(signal.SIGINT, signal.SIGTERM) as mask:
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
        end_processes(list(self._processes.values()), GRACE)

    def put(self, job: J) -> None:
        """Take a job; waits while too many jobs are waiting for a process."""
        if not self._processes:
            self._done(self._work(job))
            return
        self._waiting.append(job)
        self.poll()
        while self._waiting and (len(self._waiting) >= len(self._processes) or self._load() > self._budget):
            self.poll(None)

    def _load(self) -> int:
        return sum(self._in_hand.values()) + sum(map(self._weight, self._waiting))

    def finish(self) -> None:
        """Wait for all jobs."""
        while self._waiting or self._in_hand:
            self.poll(None)

    def poll(self, timeout: float | None = 0.0) -> None:
        """Take results that are ready and give waiting jobs out; `timeout` None waits for one result."""
        self._give_out()
        for connection in wait(list(self._in_hand), timeout) if self._in_hand else ():
            assert isinstance(connection, Connection)
            try:
                result = connection.recv()
            except (EOFError, OSError):  # the latter in the middle of a result
                raise self._death(connection) from None
            del self._in_hand[connection]
            if isinstance(result, Failure):
                raise result.error from RuntimeError(result.trace)
            self._done(result)
        self._give_out()

    def _give_out(self) -> None:
        while self._waiting and len(self._in_hand) < len(self._processes):
            weight = self._weight(self._waiting[0])
            if self._in_hand and sum(self._in_hand.values()) + weight > self._budget:
                return
            connection = next(c for c in self._processes if c not in self._in_hand)
            self._in_hand[connection] = weight
            try:
                connection.send(self._waiting.popleft())
            except (BrokenPipeError, ConnectionResetError):
                raise self._death(connection) from None

    def _death(self, connection: Connection) -> ProcessError:
        process = self._processes[connection]
        process.join(GRACE)
        remedy = "If memory ran out, use fewer workers; run the same command again, what is finished is kept"
        return ProcessError(f"a worker process {how_it_ended(process)}", remedy=remedy)


def _serve(
    work: Callable[[Any], Any], connection: Connection, inherited: list[Connection], mask: Mask
) -> None:
    # Ctrl-C reaches the whole process group; the parent answers it for all.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    let_through(mask)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    end_with_parent()
    for other in inherited:
        other.close()  # or this process would keep the pipes of a dead parent open
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
