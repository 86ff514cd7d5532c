"""The record of a released model on the runs behind it, including the previous release."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import albertine
from albertine.core.released import FOLDER
from benchmarks import release
from benchmarks.release import (
    Part,
    corpus_record,
    curve,
    lineage,
    parts_lines,
    settings_of,
    settings_text,
    training_rows,
)

BEFORE = "albertine-mini-en"


def put_run(folder: Path, start_from: str | None, steps: range, stages: int = 1) -> Path:
    folder.mkdir(parents=True)
    settings = {
        "name": folder.name,
        "output": str(folder.parent),
        "corpus": str(folder / "corpus"),
        "model": {"start_from": start_from},
    }
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    rows = [
        {
            "step": step,
            "stage": stages * (step - steps[0]) // len(steps),
            "tokens": 100 * step,
            "elapsed": 6.0 * step,
            "mlm_loss": 5.0,
            "mlm_accuracy": 0.1,
        }
        for step in steps
    ]
    rows.append({"step": steps[-1], "heldout_mlm_loss": 4.0})  # of an evaluation, which counts no tokens
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return put_run(tmp_path / "runs" / "mine", BEFORE, range(1, 11), stages=2)


def test_a_run_may_begin_with_the_release_before(run: Path, tmp_path: Path) -> None:
    parts = lineage(run)
    assert parts == [Part(FOLDER / BEFORE), Part(run)]
    earlier = training_rows(FOLDER / BEFORE)[-1]
    took = curve(parts, tmp_path)
    assert took["steps"] == earlier["step"] + 10 and took["tokens"] == earlier["tokens"] + 1000
    assert took["minutes"] == pytest.approx(earlier["elapsed"] / 60 + 1)
    with (tmp_path / "curve.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with (FOLDER / BEFORE / "curve.csv").open(encoding="utf-8") as file:
        before = list(csv.DictReader(file))
    assert rows[: len(before)] == before and len(rows) == len(before) + 10  # to the last digit


def test_files_of_settings_are_counted_through(run: Path) -> None:
    parts = lineage(run)
    files = [file for part in parts for file in settings_of(part.run)]
    assert files[-1] == run / "settings.yaml" and files[-2] == FOLDER / BEFORE / "settings.yaml"
    names = parts_lines(parts, BEFORE)
    assert f"`settings-{len(files) - 1}.yaml`" in names[0] and f"`settings-{len(files)}.yaml`" not in names[0]
    assert f"{training_rows(FOLDER / BEFORE)[-1]['step']:,} updates" in names[0]


@pytest.mark.parametrize("folder", sorted(FOLDER.glob("albertine-*")), ids=lambda folder: folder.name)
def test_the_command_of_a_card_has_the_processes_of_its_run(folder: Path) -> None:
    ran = json.loads((folder / "environment.json").read_text())
    (command,) = parts_lines([Part(folder)], folder.name, ran["world_size"])
    assert command.endswith(" --processes 2`") == (ran["world_size"] == 2)
    assert command in (folder / "README.md").read_text().splitlines()


def test_settings_name_no_place_of_this_machine(run: Path) -> None:
    tree = yaml.safe_load(settings_text(run / "settings.yaml", BEFORE))
    assert tree["corpus"] == "corpora/en" and tree["output"] == "runs" and tree["name"] == BEFORE
    assert tree["model"]["start_from"] == BEFORE
    (known,) = {file for file in settings_of(FOLDER / BEFORE) if file.name == "settings.yaml"}
    assert settings_text(known, BEFORE) == known.read_text(encoding="utf-8")


def test_a_run_that_begins_with_another_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "final").mkdir()
    second = put_run(run.with_name("second"), str(run / "final"), range(1, 4))
    assert lineage(second) == [Part(FOLDER / BEFORE), Part(run), Part(second)]
    assert yaml.safe_load(settings_text(second / "settings.yaml", BEFORE))["model"]["start_from"] == (
        "runs/mine/final"
    )
    monkeypatch.setattr(release, "FOLDER", run.parent)  # where no release has that name
    assert lineage(second) == [Part(run), Part(second)]


def test_a_corpus_record_suffices_to_find_its_held_out_documents(tmp_path: Path) -> None:
    text = tmp_path / "text.jsonl"
    documents = [" ".join(f"Word{i} walks {i} miles to town {j}." for j in range(20)) for i in range(60)]
    text.write_text("".join(json.dumps({"text": x}) + "\n" for x in documents), encoding="utf-8")

    def record_of(name: str, **rules: float) -> dict[str, Any]:
        folder = tmp_path / name
        albertine.prepare([text], folder, tokenizer=FOLDER / BEFORE, language="en", **rules)  # type: ignore[arg-type]
        return corpus_record(folder)

    first = record_of("first", held_out=0.2)
    assert first == record_of("again", held_out=0.2)
    assert first["sources"][0]["path"] == text.name  # and not where it lay
    fewer = record_of("fewer", held_out=0.1)
    assert fewer["splits"]["heldout"]["text"] != first["splits"]["heldout"]["text"]
    assert record_of("another draw", held_out=0.2, seed=2)["splits"] != first["splits"]


@pytest.mark.parametrize("name", sorted(release.UNABLE))
def test_what_documents_state_of_a_released_model_is_in_its_card(name: str) -> None:
    card = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    assert f"their prejudices included.{release.UNABLE[name]}\n" in card


@pytest.mark.parametrize("name", sorted(path.parent.name for path in FOLDER.glob("*/README.md")))
def test_a_card_states_training_and_evaluation(name: str) -> None:
    card = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    language = name.rpartition("-")[2]
    assert f"of an encyclopedia and of {release.BOOKS[language]}. " in card
    assert f"| {release.SUITES[{'en': 'blimp', 'zh': 'sling'}[language]]} (" in card
