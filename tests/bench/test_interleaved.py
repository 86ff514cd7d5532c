"""Timing in turn, and the refusal to compare on a machine that is busy with something else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from albertine.bench import interleaved as contest_module
from albertine.bench.idle_check import Moment, others
from albertine.bench.interleaved import Contest, Times, compete
from albertine.errors import RunError


def test_everyone_in_turn() -> None:
    calls: list[str] = []
    contest = compete({name: lambda name=name: calls.append(name) for name in "ab"}, 3, 2)  # type: ignore[misc]
    there, back = ["a", "a", "b", "b"], ["b", "b", "a", "a"]  # neither is always first
    assert calls == ["a", "b", *there, *back, *there]
    assert {name: len(times.seconds) for name, times in contest.times.items()} == {"a": 3, "b": 3}
    assert [len(rates) for rates in contest.tflops.values()] in ([3], [3, 3])
    assert all(rate > 0 for rates in contest.as_dict()["tflops"].values() for rate in rates)


def test_ratios_are_of_times_of_one_round_and_refused_on_a_busy_machine() -> None:
    times = {"slow": Times((3.0, 2.0, 9.0)), "fast": Times((0.5, 0.8, 0.6))}
    assert Contest(times, 0.1, 2).ratio("slow", "fast") == 6.0
    assert Contest(times, None, 2).quiet
    busy = Contest(times, 0.8, 2)
    assert not busy.quiet
    with pytest.raises(RunError, match=r"0\.8 of 2 processors busy"):
        busy.ratio("slow", "fast")
    assert times["slow"].as_dict() == {"min_ms": 2000.0, "median_ms": 3000.0, "ms": [3000.0, 2000.0, 9000.0]}


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="the system has no /proc/stat")
def test_what_others_do_is_seen_and_what_children_did_is_not() -> None:
    spin = [sys.executable, "-c", "import time\nwhile time.process_time() < 1.0: pass"]
    other = subprocess.Popen(spin)
    begin = Moment.now()
    time.sleep(1.0)
    seen = others(begin, Moment.now())
    other.wait()
    assert seen is not None and seen > 0.4  # a whole processor on a free machine, less on a crowded one
    begin = Moment.now()
    subprocess.run(spin, check=True)
    end = Moment.now()
    assert end.own - begin.own > 0.9 and others(begin, begin) is None


def lasting(seconds: float, calls: list[float] | None = None) -> Callable[[], float]:
    def run() -> float:
        if calls is not None:
            calls.append(seconds)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:  # as a model does: call after call
            time.sleep(0.001)
        return seconds

    return run


@pytest.mark.parametrize("names", [("a", "b", "slow"), ("a", "slow", "b")])
def test_a_way_far_slower_than_all_others_is_stopped(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest_module, "FIRST", 0.3)
    monkeypatch.setattr(contest_module, "LEAST", 0.2)
    heard: list[str] = []
    ways = {name: lasting(60 if name == "slow" else 0.01) for name in names}
    begin = time.perf_counter()
    contest = compete(ways, 2, 2, heard.append, patience=10)
    assert time.perf_counter() - begin < 10
    assert set(contest.times) == set(contest.outputs) == {"a", "b"}
    assert contest.stopped == {"slow": "stopped: took 10 times as long as the slowest of the others"}
    assert f"slow {contest.stopped['slow']}" in heard
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_one_that_comes_first_is_stopped_once_the_others_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest_module, "LEAST", 0.05)
    calls: list[float] = []
    contest = compete({"slow": lasting(0.3, calls), "a": lasting(0.001)}, 3, 2, patience=10)
    assert set(contest.times) == {"a"} and set(contest.stopped) == {"slow"} and len(calls) == 2


def test_one_that_becomes_slow_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest_module, "LEAST", 0.2)
    calls: list[int] = []

    def tiring() -> None:
        calls.append(1)
        try:
            lasting(0.001 if len(calls) < 5 else 5)()
        except Exception:  # as a peer may, whatever it is for
            lasting(5)()

    contest = compete({"a": lasting(0.001), "tiring": tiring}, 3, 2, patience=10)
    assert set(contest.times) == set(contest.outputs) == {"a"}
    assert set(contest.stopped) == {"tiring"} and len(calls) == 5


def test_patience_ends_the_wait_for_slow_contestants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest_module, "FIRST", 0.05)
    monkeypatch.setattr(contest_module, "LEAST", 0.05)
    ways = {"a": lasting(0.001), "slow": lasting(0.2)}
    assert set(compete(ways, 1, 2).times) == {"a", "slow"}  # without patience, everyone
    assert set(compete(ways, 1, 2, patience=10, kept=["slow"]).times) == {"a", "slow"}
    monkeypatch.setattr(contest_module, "LEAST", 0.5)  # less than that is no trouble
    monkeypatch.setattr(contest_module, "FIRST", 0.5)
    assert set(compete(ways, 1, 2, patience=10).times) == {"a", "slow"}


def test_a_ratio_above_one_means_the_first_of_a_pair_was_faster() -> None:
    times = {"slow": Times((3.0,)), "fast": Times((0.5,))}
    assert Contest(times, 0.1, 2).ratios([("fast", "slow")]) == {"fast / slow": 6.0}
    assert Contest(times, 0.8, 2).ratios([("fast", "slow")]) == {}  # of a busy machine
