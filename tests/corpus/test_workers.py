"""The pool of processes: everything done once, heavy jobs alone, and never much on the way."""

from __future__ import annotations

import os
import time
from itertools import pairwise

import pytest

from albertine.corpus.workers import WorkerPool

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
    assert light[1][1] < light[0][2]
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
