"""Work done ahead of time in other processes, handed over in order: the same for any number of them."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader, Dataset

from albertine.corpus.forking import Failure, Mask, held_back, let_through
from albertine.corpus.parcel import Parcel, unwrap, wrap
from albertine.errors import AlbertineError, RunError

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
        RunError: a process was killed.
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
        with warnings.catch_warnings(), held_back(*SIGNALS) as mask:
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
        try:
            while (parcel := _next(results)) is not None:
                if isinstance(parcel, Failure):
                    raise parcel.error from WorkerTraceback(parcel.trace)
                yield unwrap(parcel)
        finally:
            # An error keeps this frame, and with it the processes, which heed no signal and would be waited
            # for when the program ends.
            del results


def _next(results: Iterator[Parcel | Failure]) -> Parcel | Failure | None:
    try:
        return next(results, None)
    except RuntimeError as error:
        # torch reports a dead process only by the text of its message
        if "worker" in str(error):
            remedy = "Out of memory is the usual reason; use fewer workers, or a new run with a smaller batch"
            if METHOD is None:
                remedy += '. A script of your own needs `if __name__ == "__main__":`, or training.workers=0'
            raise RunError(f"a loader process died ({error})", remedy=remedy) from error
        raise


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
