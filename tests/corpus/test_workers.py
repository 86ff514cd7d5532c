"""The pool of processes: every job runs once, heavy jobs alone, with a bounded number in flight."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from albertine.corpus.workers import WorkerPool
from albertine.errors import RunError

Span = tuple[int, float, float, int]


def timed(job: tuple[int, int]) -> Span:
    begin = time.monotonic()
    time.sleep(0.05)
    return job[0], begin, time.monotonic(), os.getpid()


def work_through(jobs: list[tuple[int, int]], count: int, budget: int) -> list[Span]:
    done: list[Span] = []
    with WorkerPool(timed, done.append, count, weight=lambda job: job[1], budget=budget) as pool:
        for job in jobs:
            pool.put(job)
        pool.finish()
    return sorted(done)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_job_is_done_once(count: int) -> None:
    done = work_through([(i, 1) for i in range(9)], count, 100)
    assert [span[0] for span in done] == list(range(9))
    assert len({span[3] for span in done}) == count
    assert (os.getpid() in {span[3] for span in done}) == (count == 1)


def test_light_jobs_run_side_by_side_and_heavy_ones_alone() -> None:
    light = work_through([(i, 10) for i in range(4)], 2, 20)
    light.sort(key=lambda span: span[1])
    assert any(b[1] < a[2] for a, b in pairwise(light))  # on a busy machine not the first two
    heavy = work_through([(i, 11 + 100 * (i % 2)) for i in range(4)], 2, 20)
    assert all(a[2] <= b[1] for a, b in pairwise(heavy))


def test_a_job_waits_until_there_is_room() -> None:
    """`put` must not take in a whole corpus while the processes work on its first part."""
    begin = time.monotonic()
    with WorkerPool(timed, lambda _: None, 2, weight=lambda job: job[1], budget=100) as pool:
        for number in range(12):
            pool.put((number, 1))
        waited = time.monotonic() - begin
        pool.finish()
    assert waited > 3.5 * 0.05


# A signal that reaches a child before it has handlers of its own.


@contextmanager
def recording_handlers(*numbers: signal.Signals) -> Iterator[int]:
    """While entered, a handler of this process that runs in another one ends that one with code 99.

    Raising there, as the command line's handler does, would unwind a copy of the test's own stack.
    """
    parent = os.getpid()

    def handle(number: int, frame: Any) -> None:
        if os.getpid() != parent:
            os._exit(99)

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield parent
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def signalled_at_birth(monkeypatch: pytest.MonkeyPatch, *numbers: signal.Signals) -> None:
    """Every child gets these signals first."""
    real = os.fork

    def fork() -> int:
        child = real()
        if child == 0:
            for number in numbers:
                os.kill(os.getpid(), number)
        return child

    monkeypatch.setattr(os, "fork", fork)


def blocked(_: object = None) -> set[int]:
    return set(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))


def test_a_process_ended_at_birth_dies_of_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    before = blocked()
    with recording_handlers(signal.SIGTERM, signal.SIGINT), monkeypatch.context() as patch:
        signalled_at_birth(patch, signal.SIGINT, signal.SIGTERM)
        with WorkerPool(timed, lambda _: None, 4, weight=lambda job: job[1], budget=100) as pool:
            processes = list(pool._processes.values())
            for process in processes:
                process.join(10)
    assert [process.exitcode for process in processes] == [-signal.SIGTERM] * 4
    assert blocked() == before


def test_an_interruption_at_birth_is_left_to_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording_handlers(signal.SIGINT), monkeypatch.context() as patch:
        signalled_at_birth(patch, signal.SIGINT)
        assert [span[0] for span in work_through([(i, 1) for i in range(4)], 2, 100)] == [0, 1, 2, 3]


@pytest.mark.parametrize("held", [set(), {signal.SIGTERM, signal.SIGHUP}])
def test_a_process_has_the_mask_of_its_parent(held: set[signal.Signals]) -> None:
    masks: list[set[int]] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        with WorkerPool(blocked, masks.append, 2, weight=lambda _: 1, budget=9) as pool:
            for number in range(4):
                pool.put(number)
            pool.finish()
        assert masks == [blocked()] * 4 and blocked() == set(map(int, before | held))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_process_killed_while_sending_is_reported() -> None:
    """Its result is larger than what a pipe holds, so that the parent has the beginning of it."""

    def long(job: int) -> bytes:
        return b"x" * 20_000_000

    with (
        pytest.raises(RunError, match=r"killed by SIGKILL\. If memory ran out, use fewer workers"),
        WorkerPool(long, lambda _: None, 2, weight=lambda _: 1, budget=4) as pool,
    ):
        pool.put(1)
        time.sleep(1)
        for process in pool._processes.values():
            os.kill(process.pid or 0, signal.SIGKILL)
        pool.finish()


def test_a_process_that_cannot_be_started_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", none)
    with pytest.raises(RunError, match=r"no process can be started \(Resource .*Use fewer workers"):
        WorkerPool(timed, lambda _: None, 2, weight=lambda _: 1, budget=4)


def test_a_process_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """In the middle of its job: it would run on for as long as that takes, and hold the locks of its
    parent."""

    def long(job: int) -> int:
        with (tmp_path / "at work").open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(60)
        return job

    parent = os.fork()
    if parent == 0:
        with WorkerPool(long, lambda _: None, 3, weight=lambda _: 1, budget=9) as pool:
            for number in range(3):
                pool.put(number)
            pool.finish()
        os._exit(0)
    begin = time.monotonic()
    while len(pids := pids_in(tmp_path / "at work")) < 3 and time.monotonic() < begin + 30:
        time.sleep(0.05)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    while any(map(alive, pids)) and time.monotonic() < begin + 40:
        time.sleep(0.05)
    assert len(pids) == 3 and not any(map(alive, pids))


def pids_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
