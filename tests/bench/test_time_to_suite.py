"""Time to a score, from the checkpoints of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import time_to_suite
from benchmarks.time_to_suite import minutes_to


def point(minutes: float, right: float) -> dict[str, float]:
    return {"step": int(100 * minutes), "minutes": minutes, "tokens": 1e6 * minutes, "right": right}


def test_the_time_to_a_level_lies_between_the_checkpoints_around_it() -> None:
    points = [point(5, 0.52), point(10, 0.58), point(15, 0.62), point(20, 0.61), point(25, 0.63)]
    assert minutes_to(points, 0.60) == pytest.approx(12.5)
    assert minutes_to(points, 0.62) == 15 and minutes_to(points, 0.65) is None
    assert minutes_to(points, 0.5) == 5, "the first checkpoint, before which nothing is known"


def test_the_page_has_a_row_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_to_suite, "RESULTS", tmp_path)
    folder = tmp_path / "2-core-x"
    folder.mkdir()
    assert time_to_suite.page(str.upper) == ""
    result = {
        "settings": {"suite": "blimp", "limit": None, "scoring": "pll"},
        "run": "mini",
        "points": [point(10, 0.55), point(20, 0.65), point(150, 0.66)],
    }
    (folder / "2026-01-02-time-to-mini.json").write_text(json.dumps(result))
    page = time_to_suite.page(str.upper)
    assert "## 2-CORE-X" in page
    row = "| `mini`, 2026-01-02 | blimp, pll, all pairs | 15.0 | 20.0 |  | 66.0% after 150 | 150 M |"
    assert row in page
