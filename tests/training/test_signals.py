"""Signals: the first is kept for a moment that suits, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from albertine.training.signals import Signals, StopRequested


def test_the_first_waits_for_a_poll() -> None:
    with Signals() as signals:
        signals.poll()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        assert signals.received == signal.SIGINT and signals.exit_code == 130
        with pytest.raises(StopRequested):
            signals.poll()
        with pytest.raises(StopRequested), signals.interruptible():
            pytest.fail("a wait was begun although the run is to stop")


def test_a_wait_ends_at_once() -> None:
    with Signals() as signals:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        began = time.monotonic()
        with pytest.raises(StopRequested), signals.interruptible():
            time.sleep(20)
        assert time.monotonic() - began < 5 and signals.exit_code == 143


def forked(first: int, second: int | None, longest: float = 5.0) -> int:
    """Exit code of a process that gets one or two signals in `Signals` and would leave with 7."""
    child = os.fork()
    if child == 0:
        try:
            with Signals():
                os.kill(os.getpid(), first)
                time.sleep(0.01)
                if second is not None:
                    os.kill(os.getpid(), second)
                    time.sleep(longest)
        except KeyboardInterrupt:
            os._exit(130)
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (signal.SIGTERM, None, 7),
        (signal.SIGHUP, None, 7),
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGUSR1, signal.SIGINT, 130),
    ],
)
def test_the_second_ends_it(first: int, second: int | None, code: int) -> None:
    assert forked(first, second) == code


def test_a_second_ctrl_c_does_not_end_the_program() -> None:
    """The kernel of a notebook that is interrupted twice keeps its variables."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Signals() as signals:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        pytest.fail("it was not heard")
    assert signals.exit_code == 130 and signal.getsignal(signal.SIGINT) == before


def test_a_child_process_is_not_spoken_to() -> None:
    with Signals() as signals:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            os._exit(5 if signals.received is None else 6)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


def test_outside_the_main_thread_it_is_deaf() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def work() -> None:
        with Signals() as signals:
            seen.append(signal.getsignal(signal.SIGTERM) == before and signals.received is None)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def test_what_is_ignored_stays_so() -> None:
    """Under `nohup` a terminal that is closed, and behind the `&` of a script Ctrl-C, is for others."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
            assert signals.received is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_that_cannot_be_put_back_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a program in which Python is embedded, such as R, has no name in Python."""
    put: list[object] = []
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.setattr(signal, "signal", lambda *both: put.append(both))
    with Signals():
        pass
    assert not put


def test_torchrun_repeats_what_a_scheduler_has_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a run that is ended without a checkpoint since it got two signals at once."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert forked(signal.SIGTERM, signal.SIGTERM, 0.5) == 7
    monkeypatch.setattr("albertine.training.signals.ECHO", 0.0)
    assert forked(signal.SIGTERM, signal.SIGTERM) == 143
