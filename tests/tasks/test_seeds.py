"""Several seeds: each its own run, one report, the best by the first metric."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from albertine.errors import SettingsError
from albertine.tasks.finetune import Result, finetune
from albertine.tasks.seeds import over_seeds
from albertine.tasks.settings import FinetuneSettings
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune


def quiet(settings: FinetuneSettings, **options: Any) -> Result:
    return finetune(settings, reporter=Reporter(quiet=True), **options)


def test_three_seeds(tune: Tune) -> None:
    settings = tune(seed=4, training={"epochs": 2})
    found = over_seeds(settings, 3, run=quiet)
    assert [r.folder.name for r in found.results] == ["toy-seed-4", "toy-seed-5", "toy-seed-6"]
    values = [r.scores["accuracy"] for r in found.results]
    spread = found.metrics["accuracy"]
    assert list(spread.values) == values
    assert spread.median == statistics.median(values)
    assert found.best == found.results[values.index(max(values))].folder
    told = json.loads(found.report.read_text())
    assert told["metrics"]["accuracy"]["deviation"] == pytest.approx(statistics.stdev(values))
    assert told["best"] == found.best.name
    heads = {(r.folder / "final" / "model.safetensors").read_bytes() for r in found.results}
    assert len(heads) == 3
    assert over_seeds(settings, 3, run=quiet).metrics == found.metrics


def test_nothing_to_compare_on_is_refused(tune: Tune, tables: dict[str, Path]) -> None:
    with pytest.raises(SettingsError, match="dev set"):
        over_seeds(tune(task={"dev": None}), 2, run=quiet)
