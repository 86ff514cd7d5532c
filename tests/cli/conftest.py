"""Running the command in this process, where that is enough."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from albertine.cli.app import run


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class Command:
    """`albertine ARGUMENTS` in this process; gives its exit code, output and error output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: object) -> Outcome:
        self.capsys.readouterr()
        code = run([str(a) for a in arguments])
        return Outcome(code, *self.capsys.readouterr())


@pytest.fixture
def albertine(capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    before = signal.getsignal(signal.SIGTERM)
    yield Command(capsys)
    signal.signal(signal.SIGTERM, before)
