"""Batches built ahead of time in worker processes and returned in order, the same for any number of them."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from albertine.corpus.workers import (
    GRACE_SECONDS,
    Failure,
    SignalMask,
    end_processes,
    exit_description,
    exit_with_parent,
    restore_signals,
    signals_blocked,
)
from albertine.errors import AlbertineError, ProcessError

Request = TypeVar("Request")
T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
METHOD = "fork" if sys.platform == "linux" else None
"""Start method, as in `WorkerPool`: with Python 3.14's default, a script without a guard around its main
module would run again in the worker. On macOS torch does not survive a fork."""
_ALIGN = 64


class WorkerTraceback(Exception):
    """The traceback of an error in a worker process, chained to the error that is raised here."""


@dataclass(frozen=True)
class _TensorPlace:
    """Stands for a tensor in the structure of a `TensorBuffer`."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class TensorBuffer:
    """A structure whose tensors lie in one flat `buffer`, uint8.

    torch passes every tensor to another process as a file descriptor of its own; a large batch of many
    micro-batches, prepared ahead by several processes, would exceed the limit of open files (1024 by
    default).
    """

    content: Any
    buffer: Tensor


def pack_tensors(value: Any) -> TensorBuffer:
    """Gather the tensors in tuples, lists, dicts and dataclasses, nested to any level, into one buffer."""
    tensors: list[Tensor] = []
    size = 0

    def add(tensor: Any) -> Any:
        nonlocal size
        if not isinstance(tensor, Tensor):
            return tensor
        place = _TensorPlace(size, tuple(tensor.shape), tensor.dtype)
        tensors.append(tensor.contiguous())
        size += -(-tensor.nbytes // _ALIGN) * _ALIGN
        return place

    content = _map(value, add)
    buffer = torch.empty(size, dtype=torch.uint8)
    at = 0
    for tensor in tensors:
        buffer[at : at + tensor.nbytes] = tensor.reshape(-1).view(torch.uint8)
        at += -(-tensor.nbytes // _ALIGN) * _ALIGN
    return TensorBuffer(content, buffer)


def unpack_tensors(packed: TensorBuffer) -> Any:
    """The structure that `pack_tensors` received; its tensors are views of the buffer."""

    def view(place: Any) -> Any:
        if not isinstance(place, _TensorPlace):
            return place
        count = place.dtype.itemsize
        for extent in place.shape:
            count *= extent
        return packed.buffer[place.offset : place.offset + count].view(place.dtype).view(place.shape)

    return _map(packed.content, view)


def _map(value: Any, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(value, (Tensor, _TensorPlace)):
        return leaf(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _map(getattr(value, f.name), leaf) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **changed)
    if isinstance(value, tuple):
        parts = [_map(item, leaf) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_map(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: _map(item, leaf) for key, item in value.items()}
    return value


class Loader(Generic[Request, T]):
    """Applies `build` to every request in `workers` processes; results come in the order of the requests.

    Args:
        build: a pure function of its request. Its result is sent between processes: tensors in tuples, lists,
            dicts and dataclasses, and any other value that can be pickled.
        requests: read lazily and only a little ahead, so they may be endless.
        workers: 0 builds in this process.
        ahead: results that each process prepares beyond the one in use.

    Raises:
        AlbertineError: raised by `build`, in this or a worker process.
        ProcessError: a worker process was killed.
    """

    def __init__(
        self, build: Callable[[Request], T], requests: Iterable[Request], workers: int = 0, *, ahead: int = 2
    ) -> None:
        self.build, self.requests, self.workers, self.ahead = build, requests, workers, ahead

    def __iter__(self) -> Iterator[T]:
        if self.workers == 0:
            return map(self.build, self.requests)
        return self._from_processes()

    def _from_processes(self) -> Iterator[T]:
        before = set(multiprocessing.active_children())
        with warnings.catch_warnings(), signals_blocked(*SIGNALS) as mask, _child_handler_restored():
            # torch advises against more processes than CPU cores; the number is the user's choice
            warnings.filterwarnings("ignore", "This DataLoader will create")
            results = iter(
                DataLoader(
                    _Build(self.build),
                    sampler=self.requests,
                    batch_size=None,
                    collate_fn=_same,
                    num_workers=self.workers,
                    multiprocessing_context=METHOD,
                    prefetch_factor=self.ahead,
                    worker_init_fn=partial(_start_worker, mask),
                )
            )
        processes = list(set(multiprocessing.active_children()) - before)
        # At exit Python sends SIGTERM to child processes and joins them without a timeout. These ignore
        # SIGTERM.
        end = Finalize(None, end_processes, args=(processes,), exitpriority=1)
        seconds = 0.0  # after an error its traceback keeps `results` alive, so no worker is told to stop
        try:
            while (packed := _next(results, processes)) is not None:
                if isinstance(packed, Failure):
                    raise packed.error from WorkerTraceback(packed.trace)
                yield unpack_tensors(packed)
            seconds = GRACE_SECONDS
        except GeneratorExit:
            seconds = GRACE_SECONDS
            raise
        finally:
            del results
            end_processes(processes, seconds)
            end.cancel()


def _next(
    results: Iterator[TensorBuffer | Failure], processes: Sequence[BaseProcess]
) -> TensorBuffer | Failure | None:
    try:
        return next(results, None)
    except Exception as error:
        # torch raises RuntimeError for a dead worker, and other errors if it dies while it sends a result
        if (dead := _dead(processes)) is None:
            raise
        remedy = "Out of memory is the usual reason; use fewer workers, or a new run with a smaller batch"
        if METHOD is None:
            remedy += '. A script of your own needs `if __name__ == "__main__":`, or training.workers=0'
        raise ProcessError(f"a loader process {exit_description(dead)}", remedy=remedy) from error


def _dead(processes: Sequence[BaseProcess]) -> BaseProcess | None:
    """A process that has ended or ends within a second; of several one that failed, since torch ends the
    others once one is dead."""
    sentinels = {process.sentinel: process for process in processes}
    ended = [sentinels[one] for one in wait(list(sentinels), 1.0)]  # type: ignore[index]
    return next((process for process in ended if process.exitcode), ended[0] if ended else None)


@contextlib.contextmanager
def _child_handler_restored() -> Iterator[None]:
    """Undo torch's SIGCHLD handler, which raises RuntimeError in whatever code the parent runs when a worker
    dies; `_next` reports the death at the next result."""
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, before)


class _Build(Dataset[TensorBuffer | Failure]):
    def __init__(self, build: Callable[[Any], Any]) -> None:
        self.build = build

    def __getitem__(self, request: Any) -> TensorBuffer | Failure:
        try:
            return pack_tensors(self.build(request))
        except Exception as error:
            return Failure(error, AlbertineError)


def _same(item: Any) -> Any:
    return item


def _start_worker(mask: SignalMask, _: int) -> None:
    # Signals go to the whole process group. The parent decides what they mean; a worker that obeyed them
    # would take the batches away from a parent that still has to save. Workers exit with the parent.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    restore_signals(mask)
    exit_with_parent()
    # A parent that drops results in transit breaks the connection of a thread here; errors that matter are
    # sent to the parent as results.
    sys.excepthook = _ignore_error


def _ignore_error(*error: object) -> None:
    """Print nothing."""
