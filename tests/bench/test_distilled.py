"""What a student keeps, measured on a task that takes no time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import albertine
from albertine.pretraining.settings import Student
from albertine.pretraining.student import student_of
from benchmarks import distilled
from benchmarks.learned import distilled as section
from benchmarks.tuned.tasks import Task
from tests import stand_in

TOY = Task(
    "en",
    "accuracy",
    {"train": ["train.csv"], "dev": "dev.csv", "max_length": 32},
    rate=3e-3,
    batch=8,
    note="made up",
)


@pytest.mark.matrix
def test_end_to_end_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = stand_in.put(tmp_path, "en", seed=2)
    whole = albertine.load(teacher)
    albertine.save(
        student_of(whole, Student(depth=1), 1), albertine.load_tokenizer(teacher), tmp_path / "student"
    )
    shared = tmp_path / "shared"
    shared.mkdir()
    for name, count in (("train", 40), ("dev", 10)):
        rows = [f"the {word} cat sat,{word}" for word in ("good", "old") * (count // 2)]
        (shared / f"{name}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    monkeypatch.setitem(distilled.CHOSEN, "toy", TOY)
    monkeypatch.setitem(distilled.STEPS, "toy", 12)
    monkeypatch.setattr(distilled, "DEPTH", 1)
    saved: list[str] = []

    def save(name: str, result: dict[str, object]) -> Path:
        saved.append(name)
        path = tmp_path / f"2026-01-01-{name}.json"
        path.write_text(json.dumps(result))
        return path

    monkeypatch.setattr(distilled, "save_result", save)
    work, threads = tmp_path / "work", torch.get_num_threads()
    words = [
        "en",
        str(tmp_path / "student"),
        "--teacher",
        str(teacher),
        "--shared",
        str(shared),
        "--tasks",
        "toy",
    ]
    words += ["--beside", "cut", "untrained", "--seeds", "2", "--rounds", "2", "--work", str(work), "--save"]
    try:
        distilled.main(words)
        first = capsys.readouterr().out
        distilled.main(words)  # nothing is trained again
    finally:
        torch.set_num_threads(threads)
    assert saved == ["distilled-en"] * 2
    record = json.loads((tmp_path / "2026-01-01-distilled-en.json").read_text())
    assert [(row["task"], row["seed"]) for row in record["runs"]] == [("toy", 1), ("toy", 2)]
    for row in record["runs"]:
        assert row["kept"] == row["student"] / row["teacher"] and {"cut", "untrained"} <= row.keys()
    assert record["speed"].keys() == distilled.SHAPES.keys()
    assert "| toy | accuracy |" in first and "±" in first and "made up" in first
    taught = (work / "runs" / "toy-student-1" / "settings.yaml").read_text()
    assert "toy-teacher-1" in taught
    assert "teacher: null" in (work / "runs" / "toy-cut-1" / "settings.yaml").read_text()
    text = "".join(section(tmp_path))
    assert text.startswith("## A student of two depths") and "en, 2026-01-01" in text and "| toy |" in text
    assert "".join(section(work)) == ""
