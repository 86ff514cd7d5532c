"""Work done ahead of time in other processes, handed over in order: the same for any number of them."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader, Dataset

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
from albertine.corpus.tensor_buffer import Parcel, unwrap, wrap
from albertine.errors import AlbertineError, ProcessError

Order = TypeVar("Order")
T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
METHOD = "fork" if sys.platform == "linux" else None
"""As `WorkerPool` has it; Python 3.14 would run a script without a guard around its main module once more. On
macOS torch does not survive a fork."""


class WorkerTraceback(Exception):
    """Where in a loader process an error arose."""


class Loader(Generic[Order, T]):
    """Applies `build` to every order, in `workers` processes; results come in the order of the orders.

    Args:
        build: a pure function of its order. What it returns crosses a process border: tensors in tuples,
            lists, dicts and dataclasses, and anything plain.
        orders: read lazily and never far ahead, so they may be endless.
        workers: 0 builds in this process.
        ahead: results that each process prepares beyond the one in use.

    Raises:
        AlbertineError: as `build` raised it, in this process, whichever process it arose in.
        ProcessError: a process was killed.
    """

    def __init__(
        self, build: Callable[[Order], T], orders: Iterable[Order], workers: int = 0, *, ahead: int = 2
    ) -> None:
        self.build, self.orders, self.workers, self.ahead = build, orders, workers, ahead

    def __iter__(self) -> Iterator[T]:
        if self.workers == 0:
            return map(self.build, self.orders)
        return self._from_processes()

    def _from_processes(self) -> Iterator[T]:
        before = set(multiprocessing.active_children())
        with warnings.catch_warnings(), held_back(*SIGNALS) as mask, _handler_of_children_kept():
            # torch advises against more processes than processors; their number was asked for
            warnings.filterwarnings("ignore", "This DataLoader will create")
            results = iter(
                DataLoader(
                    _Build(self.build),
                    sampler=self.orders,
                    batch_size=None,
                    collate_fn=_same,
                    num_workers=self.workers,
                    multiprocessing_context=METHOD,
                    prefetch_factor=self.ahead,
                    worker_init_fn=partial(_start_worker, mask),
                )
            )
        processes = list(set(multiprocessing.active_children()) - before)
        # They ignore SIGTERM, by which Python ends processes that are left when the program ends, and it
        # would wait for them without a limit.
        end = Finalize(None, end_processes, args=(processes,), exitpriority=1)
        seconds = 0.0  # after an error its traceback keeps `results`, so that they get no signal to end
        try:
            while (parcel := _next(results, processes)) is not None:
                if isinstance(parcel, Failure):
                    raise parcel.error from WorkerTraceback(parcel.trace)
                yield unwrap(parcel)
            seconds = GRACE
        except GeneratorExit:
            seconds = GRACE
            raise
        finally:
            del results
            end_processes(processes, seconds)
            end.cancel()


def _next(results: Iterator[Parcel | Failure], processes: Sequence[BaseProcess]) -> Parcel | Failure | None:
    try:
        return next(results, None)
    except Exception as error:
        # torch has a RuntimeError for it, and other errors for a process that ends while it hands over
        if (dead := _dead(processes)) is None:
            raise
        remedy = "Out of memory is the usual reason; use fewer workers, or a new run with a smaller batch"
        if METHOD is None:
            remedy += '. A script of your own needs `if __name__ == "__main__":`, or training.workers=0'
        raise ProcessError(f"a loader process {how_it_ended(dead)}", remedy=remedy) from error


def _dead(processes: Sequence[BaseProcess]) -> BaseProcess | None:
    """A process that has ended, or is about to."""
    sentinels = {process.sentinel: process for process in processes}
    ended = wait(list(sentinels), 1.0)
    return sentinels[ended[0]] if ended else None  # type: ignore[index]


@contextlib.contextmanager
def _handler_of_children_kept() -> Iterator[None]:
    """torch answers the death of a loader process by a RuntimeError in whatever its parent is doing then; the
    next result that is waited for tells the same."""
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, before)


class _Build(Dataset[Parcel | Failure]):
    def __init__(self, build: Callable[[Any], Any]) -> None:
        self.build = build

    def __getitem__(self, order: Any) -> Parcel | Failure:
        try:
            return wrap(self.build(order))
        except Exception as error:
            return Failure(error, AlbertineError)


def _same(item: Any) -> Any:
    return item


def _start_worker(mask: Mask, _: int) -> None:
    # Signals go to the whole process group. The parent decides what they mean; a loader process that obeyed
    # them would take the batches away from a parent that still wants to save. It ends when the parent does.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    let_through(mask)
    end_with_parent()
    # A parent that lets go of results that are on their way breaks the connection of a thread here.
    sys.excepthook = _ignore_error


def _ignore_error(*error: object) -> None:
    """Errors that matter are sent to the parent."""
