"""Several seeds: each its own run, one report, the best by the first metric."""

from __future__ import annotations

import csv
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from albertine.errors import DataError, SettingsError
from albertine.tasks import seeds
from albertine.tasks.dataset_files import Data
from albertine.tasks.finetune import FinetuneResult, finetune
from albertine.tasks.run_record import contents, matching_record, stamp
from albertine.tasks.seeds import over_seeds
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import once, read_data
from albertine.training.job import Outcome
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune


def quiet(settings: FinetuneSettings, **options: Any) -> FinetuneResult:
    return finetune(settings, reporter=Reporter(quiet=True), **options)


def test_three_seeds(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tune(seed=4, training={"epochs": 2}, watching={"report": True})
    calls = []

    def counted(*arguments: Any) -> Data:
        calls.append(arguments)
        return read_data(*arguments)

    monkeypatch.setattr(seeds, "once", lambda: once(counted))
    found = over_seeds(settings, 3, run=quiet)
    assert len(calls) == 1  # read and encoded once
    assert [r.folder.name for r in found.results] == ["toy-seed-4", "toy-seed-5", "toy-seed-6"]
    values = [r.scores["accuracy"] for r in found.results]
    spread = found.metrics["accuracy"]
    assert list(spread.values) == values
    assert spread.median == statistics.median(values)
    assert found.best == found.results[values.index(max(values))].folder
    summary = json.loads(found.summary.read_text())
    assert summary["metrics"]["accuracy"]["deviation"] == pytest.approx(statistics.stdev(values))
    assert summary["best"] == found.best.name
    heads = {(r.folder / "final" / "model.safetensors").read_bytes() for r in found.results}
    assert len(heads) == 3
    text = (found.report / "report.md").read_text()
    assert f"| toy | accuracy | 3 | {spread.median:.4f} |" in text and found.best.name in text
    assert (found.best / "report" / "report.md").is_file()
    assert over_seeds(settings, 3, run=quiet).metrics == found.metrics
    assert len(calls) == 1  # what is done is not even read again


def test_a_file_that_changes_between_seeds_is_named(
    tune: Tune, tables: dict[str, Path], tmp_path: Path
) -> None:
    dev = tmp_path / "dev.csv"
    dev.write_bytes(tables["dev"].read_bytes())
    settings = tune(seed=4, task={"dev": dev}, training={"epochs": 0.1})

    def mended(own: FinetuneSettings, **options: Any) -> FinetuneResult:
        result = quiet(own, **options)
        dev.write_bytes(dev.read_bytes().replace(b"poor", b"fine", 1))
        return result

    with pytest.raises(DataError, match=r"dev\.csv: changed between two seeds"):
        over_seeds(settings, 2, run=mended)
    assert (settings.output / "toy-seed-4").is_dir() and not (settings.output / "toy-seed-5").exists()


def test_runs_may_lie_in_the_folder_of_their_data(
    tune: Tune, tables: dict[str, Path], tmp_path: Path
) -> None:
    """`cd SST-2` and `task.folder=.`: what a run writes is not what it is made of."""
    (folder := tmp_path / "SST-2").mkdir()
    for split in ("train", "dev"):
        rows = csv.DictReader(tables[split].open())
        lines = [f"{row['review']}\t{int(row['verdict'] == 'fine')}\n" for row in rows]
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    data = {"train": None, "dev": None, "dataset": "sst-2", "folder": folder}
    settings = tune(task=data, output=folder, training={"steps": 1})
    found = over_seeds(settings, 2, run=quiet)
    assert [result.folder.name for result in found.results] == ["toy-seed-1", "toy-seed-2"]
    assert {path.parent for path in contents(settings)} == {folder, settings.encoder.folder}
    first = settings.model_copy(update={"seed": 1, "name": "toy-seed-1"})
    assert matching_record(first, stamp(first)) is not None
    (folder / "dev.tsv").write_text((folder / "train.tsv").read_text())
    assert matching_record(first, stamp(first)) is None


@pytest.mark.parametrize(
    ("dataset", "read"),
    [
        ("sst-2", ["train.tsv.gz", "dev.tsv", "test.tsv"]),
        ("race", ["RACE/train/high/1.txt", "RACE/dev/middle/10.txt"]),
        ("race-high", ["train/high/1.txt", "test/high/2.txt"]),
        ("race", ["RACE.tar"]),
        ("fewclue-tnews", ["fewclue.tar"]),
        ("duie", ["train_data.json", "dev_data.json", "all_50_schemas"]),
        ("own.yaml", ["own.yaml", "a.csv", "b.csv"]),
    ],
)
def test_a_run_is_made_of_the_files_that_readers_look_for(
    tune: Tune, tmp_path: Path, dataset: str, read: list[str]
) -> None:
    folder = tmp_path / "data"
    for name in (*read, "runs/x/final/model.safetensors", "notes.txt", "train.bak"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(
            "{files: {train: a.csv, test: [b.csv, gone.csv]}}" if ".yaml" in name else name
        )
    data = {"train": None, "dev": None, "dataset": dataset, "folder": folder}
    if dataset == "own.yaml":
        data = {**data, "dataset": str(folder / dataset), "folder": None}
    found = contents(tune(task=data))
    assert {str(path.relative_to(folder)) for path in found if path.is_relative_to(folder)} == set(read)


def test_nothing_to_compare_on_is_refused(tune: Tune, tables: dict[str, Path]) -> None:
    with pytest.raises(SettingsError, match="dev set"):
        over_seeds(tune(task={"dev": None}), 2, run=quiet)


@pytest.mark.parametrize(
    ("stopped", "runs", "best"),
    [(None, [1, 2, 3], 2), (3, [1, 2], 2), (2, [1], 1), (1, [], None)],
)
def test_the_best_seed_has_the_best_first_score(
    tune: Tune, stopped: int | None, runs: list[int], best: int | None
) -> None:
    """Of those that are done: a seed that was stopped half-way is none of the values."""
    settings = tune()
    settings.output.mkdir()
    values = {1: 0.5, 2: 0.9, 3: 0.7}

    def result_of(own: FinetuneSettings, **options: Any) -> FinetuneResult:
        scores = {"step": 3.0, "accuracy": values[own.seed], "other": -values[own.seed]}
        done = own.seed != stopped
        return FinetuneResult(own.folder, Outcome(done, 0, 3, 9, 1.0, scores), scores, (), {})

    found = over_seeds(settings, 3, run=result_of)
    assert found.done == (stopped is None) and found.summary.is_file() == bool(runs)
    if runs:
        tree = json.loads(found.summary.read_text())
        assert tree["runs"] == [f"toy-seed-{seed}" for seed in runs]
        assert tree["metrics"]["accuracy"]["values"] == [values[seed] for seed in runs]
        assert tree["best"] == found.best.name == f"toy-seed-{best}"


def test_a_card_beside_the_encoder_changes_no_run(tune: Tune, pretrained: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(pretrained, model)
    settings = tune(encoder={"folder": model})
    before = stamp(settings)
    (model / "README.md").write_text("# A card\n")
    (model / "scores.json").write_text("[]")
    assert stamp(settings) == before
    (model / "config.json").write_bytes((model / "config.json").read_bytes() + b"\n")
    assert stamp(settings) != before
