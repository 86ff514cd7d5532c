"""Work in other processes: same results in the same order, errors as themselves, no hanging."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from albertine.corpus.loader import Loader, WorkerTraceback, pack_tensors, unpack_tensors
from albertine.corpus.reader import Corpus
from albertine.errors import DataError, ProcessError
from albertine.pretraining.stages import global_batches
from tests.corpus.handmade import write_corpus
from tests.corpus.test_workers import alive, pids_in, recording_handlers, signalled_at_birth


@dataclass(frozen=True)
class Inner:
    ids: torch.Tensor
    lengths: tuple[int, ...]


class Pair(NamedTuple):
    left: torch.Tensor
    right: str


@dataclass(frozen=True)
class Outer:
    inner: Inner
    labels: torch.Tensor | None
    notes: dict[str, Any]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (Inner, Outer)):
        return type(a) is type(b) and all(
            same(x, y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True)
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


def example(number: int) -> tuple[int, list[Outer]]:
    tensor = torch.arange(number)
    inner = Inner(tensor, tuple(range(number)))
    notes = {
        "pair": Pair(tensor.bool(), "x"),
        "half": tensor.view(1, -1, 1).bfloat16(),
        "one": torch.tensor(2.5),
    }
    return number, [Outer(inner, None if number % 2 else tensor.int(), notes)] * (number % 3)


@pytest.mark.parametrize("number", range(6))
def test_parcels_come_back_equal(number: int) -> None:
    assert same(unpack_tensors(pack_tensors(example(number))), example(number))


def test_a_parcel_is_a_single_tensor() -> None:
    """With any number of tensors: each costs a file descriptor between processes."""
    many = [torch.ones(n) for n in range(1, 2000)]
    (result,) = Loader(lambda _: many, [0], 1)
    assert same(result, many)


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_results_do_not_depend_on_workers(workers: int) -> None:
    def build(number: int) -> tuple[int, list[Outer]]:
        time.sleep(0.004 * (number % 3))
        return example(number)

    results = list(Loader(build, range(20), workers))
    assert same(results, [example(n) for n in range(20)])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_corpus(tmp_path: Path, workers: int) -> None:
    """Mapped shards are opened by each process for itself, and endless orders are read only as needed."""
    parts = write_corpus(tmp_path / "corpus", [9, 7])
    corpus = Corpus(tmp_path / "corpus")

    def build(order: Any) -> tuple[Any, torch.Tensor]:
        cursor, rows = order
        tokens = np.concatenate([corpus.span(row, row + 1)[0] for _, row in rows])
        return cursor, torch.from_numpy(tokens.astype(np.int64))

    orders = global_batches(lambda _: corpus.num_sentences, 8, seed=1)
    found = list(islice(Loader(build, orders, workers), 12))
    expected = [build(o) for o in islice(global_batches(lambda _: corpus.num_sentences, 8, seed=1), 12)]
    assert all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in zip(found, expected, strict=True))
    assert sum(len(p.tokens) for p in parts) == corpus.num_tokens


def test_orders_are_read_little_ahead() -> None:
    taken: list[int] = []

    def orders() -> Iterator[int]:
        for number in count():
            taken.append(number)
            yield number

    results = iter(Loader(lambda n: n, orders(), 2, ahead=3))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(taken) <= 5 + 2 * 3
    del results


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_of_ours_arrive_as_themselves(workers: int) -> None:
    def build(number: int) -> int:
        if number == 3:
            raise DataError("is odd", where="row 3", remedy="Remove it")
        return number

    results = iter(Loader(build, range(9), workers))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError) as caught:
        next(results)
    assert (caught.value.what, caught.value.where, caught.value.remedy) == ("is odd", "row 3", "Remove it")
    assert not multiprocessing.active_children(), "an error that is kept must not keep the processes"


def test_other_errors_name_where_they_arose() -> None:
    def build(number: int) -> float:
        return 1 / number

    with pytest.raises(RuntimeError, match="ZeroDivisionError: division by zero") as caught:
        list(Loader(build, [1, 0], 1))
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "return 1 / number" in str(caught.value.__cause__)


def test_a_killed_process_is_reported_and_does_not_hang() -> None:
    def build(number: int) -> int:
        if number == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(ProcessError, match="a loader process was killed by SIGKILL") as caught:
        list(Loader(build, range(30), 2))
    # Processes that are not forked run the main module again; only there that may be the reason.
    assert ("__main__" in str(caught.value)) == (sys.platform != "linux")
    assert not multiprocessing.active_children()


def test_a_killed_process_ends_only_the_wait_for_its_result() -> None:
    """Its exit sends a signal, which may arrive while a checkpoint is written."""
    results = iter(Loader(lambda n: (n, os.getpid()), count(), 2))
    _, pid = next(results)
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        sum(range(1000))
    with pytest.raises(ProcessError, match="killed by SIGKILL"):
        list(results)


def test_a_process_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """In the middle of its work, although it ignores the signals that end its parent."""

    def build(number: int) -> int:
        with (tmp_path / "at work").open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(60)
        return number

    parent = os.fork()
    if parent == 0:
        list(Loader(build, range(4), 2))
        os._exit(0)
    begin = time.monotonic()
    while len(pids := pids_in(tmp_path / "at work")) < 2 and time.monotonic() < begin + 30:
        time.sleep(0.05)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    while any(map(alive, pids)) and time.monotonic() < begin + 40:
        time.sleep(0.05)
    assert len(pids) == 2 and not any(map(alive, pids))


@pytest.mark.parametrize(
    "how",
    [
        "raise SystemExit(3)",
        pytest.param("results.close(); raise SystemExit(3)", marks=pytest.mark.matrix),
    ],
)
def test_a_program_does_not_wait_for_a_process_at_work(tmp_path: Path, how: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from albertine.corpus.loader import Loader\n"
        "def build(number):\n"
        "    if number:\n"
        "        time.sleep(300)\n"
        "    return os.getpid()\n"
        "results = iter(Loader(build, range(9), 1))\n"
        "print(next(results), flush=True)\n"
        f"{how}\n"
    )
    begin = time.monotonic()
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 3, done.stderr
    assert time.monotonic() - begin < 60 and not alive(int(done.stdout))


def test_processes_use_one_thread_and_ignore_signals() -> None:
    def build(_: int) -> tuple[int, bool]:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGHUP)
        return torch.get_num_threads(), signal.getsignal(signal.SIGINT) == signal.SIG_IGN

    assert list(Loader(build, [0], 1)) == [(1, True)]


def test_ctrl_c_ends_everything() -> None:
    def main() -> None:
        os.setsid()
        timer = threading.Timer(0.8, lambda: os.killpg(0, signal.SIGINT))
        timer.start()
        try:
            for _ in Loader(lambda n: time.sleep(0.05) or torch.ones(n + 1), count(), 2):
                pass
        except KeyboardInterrupt:
            os._exit(7)

    process = multiprocessing.get_context("fork").Process(target=main)
    process.start()
    process.join(20)
    assert process.exitcode == 7
    end = time.monotonic() + 15
    while True:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < end, "loader processes are left behind"
        time.sleep(0.05)


def test_signals_at_birth_are_left_to_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler of the parent must not run in a process that has not yet begun to ignore signals."""

    def build(number: int) -> tuple[int, list[int]]:
        return number, sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))

    mask = sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    with recording_handlers(*numbers), monkeypatch.context() as patch:
        signalled_at_birth(patch, *numbers)
        assert list(Loader(build, range(6), 2)) == [(number, mask) for number in range(6)]
    assert sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))) == mask


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the main module runs again")
def test_a_script_needs_no_guard_around_its_main_module(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing\n"
        "multiprocessing.set_start_method('forkserver', force=True)  # the default of Python 3.14\n"
        "from albertine.corpus.loader import Loader\n"
        "print(list(Loader(lambda n: n, range(3), 1)))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[0, 1, 2]\n"), done.stderr
