"""Timing in turn, and the refusal to compare on a machine that is busy with something else."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from albertine.bench.contest import Contest, Times, compete
from albertine.bench.quiet import Clock, others
from albertine.errors import RunError


def test_everyone_in_turn() -> None:
    calls: list[str] = []
    contest = compete({name: lambda name=name: calls.append(name) for name in "ab"}, 3, 2)  # type: ignore[misc]
    assert calls == ["a", "b", *["a", "a", "b", "b"] * 3]
    assert {name: len(times.seconds) for name, times in contest.times.items()} == {"a": 3, "b": 3}
    assert [len(rates) for rates in contest.tflops.values()] in ([3], [3, 3])
    assert all(rate > 0 for rates in contest.told()["tflops"].values() for rate in rates)


def test_ratios_are_of_times_of_one_round_and_refused_on_a_busy_machine() -> None:
    times = {"slow": Times((3.0, 2.0, 9.0)), "fast": Times((0.5, 0.8, 0.6))}
    assert Contest(times, 0.1, 2).ratio("slow", "fast") == 6.0
    assert Contest(times, None, 2).quiet
    busy = Contest(times, 0.8, 2)
    assert not busy.quiet
    with pytest.raises(RunError, match=r"0\.8 of 2 processors busy"):
        busy.ratio("slow", "fast")
    assert times["slow"].told() == {"min_ms": 2000.0, "median_ms": 3000.0, "ms": [3000.0, 2000.0, 9000.0]}


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="the system has no /proc/stat")
def test_what_others_do_is_seen_and_what_children_did_is_not() -> None:
    spin = [sys.executable, "-c", "import time\nwhile time.process_time() < 1.0: pass"]
    other = subprocess.Popen(spin)
    begin = Clock.now()
    time.sleep(1.0)
    seen = others(begin, Clock.now())
    other.wait()
    assert seen is not None and seen > 0.4  # a whole processor on a free machine, less on a crowded one
    begin = Clock.now()
    subprocess.run(spin, check=True)
    end = Clock.now()
    assert end.own - begin.own > 0.9 and others(begin, begin) is None
