"""Processes of a run on one machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from albertine.training import launch


def test_the_others_take_their_modules_from_where_the_first_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not from the working directory, where a `tokenize.py` may lie."""
    (tmp_path / "tokenize.py").write_text("raise SystemExit('of the person')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["/somewhere/bin", *sys.path[1:]])
    other = launch._ChildProcess(["--version"], {})
    try:
        assert other.process.wait(60) == 0
        other.output.seek(0)
        assert other.output.read().startswith(b"albertine ")
    finally:
        other.end()


def test_a_process_that_fails_late_is_still_the_reason() -> None:
    """Its partner meets an error of the collective seconds before the process itself has ended."""
    other = launch._ChildProcess(["info", "no such model"], {})
    try:
        assert launch._first_failure([other], 0.0) is None
        how = launch._first_failure([other], 60.0)
        assert how is not None and how.startswith("with exit code 2: ")
    finally:
        other.end()
