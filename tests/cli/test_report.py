"""`albertine report`: which runs are seeds of one task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tests.evaluation.test_report import made


def medians(albertine: Command, output: Path, *runs: Path) -> dict[str, tuple[int, float | None]]:
    """Number of runs and median accuracy on dev of every task of a report."""
    outcome = albertine("report", *runs, "-o", output)
    assert outcome.code == 0, outcome.err
    tasks: dict[str, Any] = json.loads((output / "report.json").read_text())["tasks"]
    return {
        name: (len(task["runs"]), task["metrics"].get("accuracy", {}).get("median"))
        for name, task in tasks.items()
    }


def judged(folder: Path, name: str, **scores: Any) -> Path:
    made(folder, 0.9, name=name, model_folder="best", **scores)
    return folder


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_evaluation_is_no_seed_of_its_run(albertine: Command) -> None:
    run = made(Path("reviews"), 0.9, seed=1).folder
    other = judged(run / "evaluation", "reviews", scores={}, test={"accuracy": 0.7})
    dev = judged(Path("dev"), "reviews")
    known = medians(albertine, Path("report"), run, other, dev)
    assert known == {
        "reviews": (1, 0.9),
        "reviews, scored again": (1, None),
        "reviews, scored again (dev)": (1, 0.9),
    }


def test_evaluations_of_seeds_are_one_task(albertine: Command) -> None:
    runs = [made(Path(f"a-seed-{seed}"), 0.5, seed=seed).folder for seed in (1, 2)]
    again = [judged(run / "evaluation", run.name) for run in runs]
    known = medians(albertine, Path("report"), *runs, *again)
    assert known == {"a": (2, 0.5), "a, scored again": (2, 0.9)}


def test_a_run_that_is_named_twice_counts_once(albertine: Command, tmp_path: Path) -> None:
    run = made(Path("reviews"), 0.9, seed=1).folder
    assert medians(albertine, Path("report"), run, tmp_path / run) == {"reviews": (1, 0.9)}
    copy = made(Path("copy"), 0.8, seed=1, name="reviews").folder
    other = made(Path("other"), 0.7, seed=2, name="reviews").folder
    known = medians(albertine, Path("all"), run, copy, other)
    assert known == {"reviews": (2, 0.8), "reviews (copy)": (1, 0.8)}
