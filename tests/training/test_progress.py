"""Printed progress: a bar on a terminal, few lines elsewhere."""

from __future__ import annotations

import errno
import io
import logging
import os
import re

import pytest
from rich.console import Console

from albertine.training.progress import Reporter, clock, summary

ROW = {
    "step": 10,
    "mlm_loss": 6.5,
    "mlm_accuracy": 0.125,
    "loss": 7.2,
    "lr": 4.4e-4,
    "tokens_per_second": 12345.6,
    "elapsed": 3.0,
}


def shown(terminal: bool, steps: int, width: int = 160, **changes: float) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=width, _environ={"TERM": "xterm"})
    with Reporter(console, **changes) as reporter:  # type: ignore[arg-type]
        reporter.metrics(ROW)
        for step in range(steps):
            reporter.step(step, step / steps, 60.0)
        logging.getLogger("albertine.training").warning("look [here]")
    return text.getvalue()


def test_a_file_gets_a_line_now_and_then() -> None:
    lines = shown(False, 1000, every=3600.0).splitlines()
    assert lines == [
        "step 0  0%  mlm loss 6.500  mlm 12.5%  loss 7.200  lr 4.40e-04  12,346 tokens/s  left 1:00",
        "warning: look [here]",
    ]
    assert len(shown(False, 5, every=0.0).splitlines()) == 6


def test_a_terminal_gets_a_bar() -> None:
    text = shown(True, 200)
    assert "step 199" in text and "mlm 12.5%" in text and "left 1:00" in text and "look [here]" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_narrow_terminal_shows_step_share_and_times(width: int) -> None:
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(True, 200, width)).replace("\r", "\n").splitlines()
    last = next(line for line in reversed(lines) if "left 1:00" in line)
    assert re.search(r"^step 199 .* 100% ml.*… 0:00:\d\d left 1:00", last), last
    assert len(last) <= width


def test_quiet_prints_nothing() -> None:
    assert shown(False, 10, quiet=True) == shown(True, 10, quiet=True) == ""


@pytest.mark.parametrize(("seconds", "text"), [(None, "?"), (0, "0:00"), (65.4, "1:05"), (3723, "1:02:03")])
def test_clock(seconds: float | None, text: str) -> None:
    assert clock(seconds) == text


def test_summary_leaves_out_what_is_no_number() -> None:
    assert summary({"mlm_loss": None, "evaluation": {}, "sentence_accuracy": 0.5}) == "sentence 50.0%"
    assert summary({"accuracy": 0.5, "macro_f1": 0.25}) == "accuracy 0.5000  macro f1 0.2500"


def test_a_dumb_terminal_gets_lines() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=160, _environ={"TERM": "dumb"})
    with Reporter(console, every=0.0) as reporter:
        reporter.metrics(ROW)
        reporter.step(1, 0.5, 60.0)
        assert "step 1  50%" in text.getvalue()


class Gone(io.StringIO):
    """A stream without a reader."""

    def __init__(self, number: int, terminal: bool) -> None:
        super().__init__()
        self.number, self.terminal = number, terminal

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO, errno.ENOSPC])
def test_a_run_with_closed_output_continues(
    number: int, terminal: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pipe without a reader, a closed terminal, a full disk; the program's own output is unaffected."""
    monkeypatch.setattr("sys.stderr", Gone(number, terminal))
    monkeypatch.setenv("TERM", "xterm")
    with Reporter(every=0.0) as reporter:
        reporter.metrics(ROW)
        reporter.step(1, 0.5, 60.0)
        logging.getLogger("albertine.training").warning("look")
        assert reporter.quiet
    os.write(1, b"heard")
    assert capfd.readouterr().out == "heard"
