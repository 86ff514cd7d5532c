"""Printing off a terminal: aligned columns, units, and progress as lines now and then."""

from __future__ import annotations

import io
import json

import pytest

from albertine.cli import show


def test_a_plain_table_lines_up_with_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(("name", "count"), [("模型", 1), ("b", 1000)], title="Title")
    assert capsys.readouterr().out == "Title\nname  count\n模型      1\nb      1000\n\n"


def test_facts(capsys: pytest.CaptureFixture[str]) -> None:
    show.facts("Corpus", {"language": "zh", "文件": 3})
    assert capsys.readouterr().out == "Corpus\n  language  zh\n  文件      3\n"


def test_units() -> None:
    assert [show.size(n) for n in (999, 1000, 46_734_336, 5e12)] == ["999 B", "1.0 kB", "46.7 MB", "5.0 TB"]
    assert [show.operations(n) for n in (5, 597e6, 1.5e9)] == ["5 FLOP", "597 MFLOP", "1.5 GFLOP"]
    assert show.count(11_683_584.0) == "11,683,584"


def test_progress_off_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(show.time, "monotonic", lambda: now)
    with show.progress("bytes") as update:
        for done in range(0, 100, 10):
            update(done, 100)
            now += 4.0
    assert capsys.readouterr().err.splitlines() == [
        "bytes: 30 of 100, 28 s left",
        "bytes: 60 of 100, 16 s left",
        "bytes: 90 of 100, 4 s left",
    ]


def test_time_left_is_not_of_what_an_earlier_command_did(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions into a file are appended to the rows that are there."""
    now = 0.0
    monkeypatch.setattr(show.time, "monotonic", lambda: now)
    with show.progress("rows") as update:
        for done in (900, 905, 910):
            update(done, 1000)
            now += 10.0
    assert capsys.readouterr().err.splitlines() == [
        "rows: 905 of 1,000, 190 s left",
        "rows: 910 of 1,000, 180 s left",
    ]


@pytest.mark.parametrize(("coding", "written"), [("latin-1", b"\\u9996"), ("gb18030", b"\xca\xd7")])
def test_json_loses_nothing_in_another_locale(
    monkeypatch: pytest.MonkeyPatch, coding: str, written: bytes
) -> None:
    """Catches: Chinese that is escaped where the terminal can show it."""
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding=coding, errors="replace"))
    show.as_json({"token": "首"})
    assert written in raw.getvalue() and json.loads(raw.getvalue().decode(coding)) == {"token": "首"}
