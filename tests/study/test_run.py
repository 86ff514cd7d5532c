"""Running a study in one process: what is computed, what is not computed again, what fails."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import Future
from pathlib import Path
from threading import Timer

import pytest

from albertine.core.files import read_json, write_json
from albertine.errors import RunError
from albertine.study.definition import read_study
from albertine.study.results import collect
from albertine.study.runner import (
    claim_folder,
    recorded_threads,
    run_plan,
    status_of,
    unit_folder,
)
from albertine.study.units import Plan, plan_of
from albertine.study.work import RESULT, speed_of_updates
from tests.study.conftest import Here, Write


@pytest.fixture
def plan(write: Write, data: Path) -> Plan:
    return plan_of(read_study(write(seeds=[1])), data)


def test_a_study_is_computed_once_and_shares_cells_with_others(
    plan: Plan, write: Write, data: Path, tmp_path: Path
) -> None:
    first, again, other = Here(), Here(), Here()
    assert run_plan(plan, tmp_path, first)
    assert sorted(one.partition("-")[0] for one in first.computed) == sorted(
        ["corpus", *["cost", "pretrain", "held_out"] * 2]
    )
    assert {one.state for one in status_of(plan, tmp_path)} == {"done"}
    assert run_plan(plan, tmp_path, again)
    assert again.computed == []

    fewer = {"axes": {"sharing": {"values": ["all"]}}, "conclusions": None}
    half = plan_of(read_study(write("half.yaml", name="half", seeds=[1, 2], **fewer)), data)
    assert run_plan(half, tmp_path, other)
    assert sorted(one.partition("-")[0] for one in other.computed) == ["held_out", "pretrain"]  # of seed 2

    for key in plan.units:
        assert not (unit_folder(tmp_path, key) / "run" / "checkpoints").exists()
    scores = collect(plan, tmp_path, scale="two-core", command="")["cells"][0]["seeds"]["1"]["scores"]
    assert scores["steps"] == 8
    assert 0 < scores["mask_loss"] < 10
    assert 0 <= scores["mlm_accuracy"] <= 1
    assert scores["parameters"] > 1000


def test_a_task_is_tuned_from_the_cell(write: Write, data: Path, tmp_path: Path) -> None:
    task = {
        "task": {
            "train": "train.csv",
            "dev": "dev.csv",
            "text": "sentence",
            "label": "season",
            "max_length": 16,
        },
        "training": {"epochs": 2, "batch_size": 8},
        "watching": {"tensorboard": False, "report": False},
    }
    axes = {"sharing": {"setting": "finetune.encoder.unshare", "values": {"shared": "no", "unshared": "all"}}}
    judged = {"tasks": {"season": task}, "held_out": None, "cost": None}
    file = write(seeds=[1], axes=axes, judged={**judged, "cost": False}, conclusions=None)
    plan = plan_of(read_study(file), data)
    assert run_plan(plan, tmp_path, Here()), status_of(plan, tmp_path)
    for cell in collect(plan, tmp_path, scale="two-core", command="")["cells"]:
        assert 0 <= cell["seeds"]["1"]["scores"]["season"] <= 1
        assert cell["seeds"]["1"]["facts"]["season.seconds"] > 0


def test_seconds_of_updates_are_without_evaluations(tmp_path: Path) -> None:
    rows = [
        {"step": 10, "tokens": 1000, "tokens_per_second": 500.0, "elapsed": 2.0},
        {"step": 10, "evaluation": {"accuracy": 0.5}, "elapsed": 62.0},
        {"step": 20, "tokens": 3000, "tokens_per_second": 1000.0, "elapsed": 64.0},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert speed_of_updates(path, "t.seconds") == {"t.seconds": pytest.approx(4.0 / 20)}
    assert speed_of_updates(path, "speed", tokens=True) == {"speed": pytest.approx(3000 / 4.0)}


class Waiting(Here):
    """An engine that ends a unit when the next is looked for, and records what ran at once."""

    slots = 3

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan, self.running, self.together = plan, dict[str, Future[int]](), list[set[str]]()

    def submit(self, folder: Path) -> Future[int]:
        self.running[folder.name] = Future()
        self.together.append({self.plan.units[key].kind for key in self.running})
        Timer(0.05, self._end, [folder]).start()
        return self.running[folder.name]

    def _end(self, folder: Path) -> None:
        write_json(folder / RESULT, {})
        self.running.pop(folder.name).set_result(0)


def test_measured_steps_run_alone(write: Write, data: Path, tmp_path: Path) -> None:
    plan = plan_of(read_study(write(seeds=[1], judged={"step": {"rounds": 1}})), data)
    engine = Waiting(plan)
    assert run_plan(plan, tmp_path, engine)
    assert {"step"} in engine.together
    assert all(kinds == {"step"} for kinds in engine.together if "step" in kinds)
    assert max(map(len, engine.together)) > 1


def test_minutes_go_on_with_the_same_threads(write: Write, data: Path, tmp_path: Path) -> None:
    study, folder = read_study(write(budget={"steps": None, "minutes": 1})), tmp_path / "toy"
    claim_folder(plan_of(study, data, threads=2), folder)
    assert recorded_threads(folder) == 2
    with pytest.raises(RunError, match="was computed with 2 threads a cell, now 1"):
        claim_folder(plan_of(study, data, threads=1), folder)


def test_a_failed_cell_does_not_stop_the_others_and_is_tried_again(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from albertine.study import work

    real = work.KINDS["pretrain"]

    def failing(given: object, folder: Path, needs: list[str]) -> object:
        if given["settings"]["model"]["sharing"] == "all":  # type: ignore[index]
            raise RunError("the disk is full", remedy="Free some space")
        return real(given, folder, needs)  # type: ignore[arg-type]

    monkeypatch.setitem(work.KINDS, "pretrain", failing)
    assert not run_plan(plan, tmp_path, Here())
    states = {one.cell: one for one in status_of(plan, tmp_path)}
    assert states["sharing none"].state == "done"
    assert (states["sharing all"].state, states["sharing all"].reason) == (
        "failed",
        "the disk is full. Free some space",
    )
    missing = collect(plan, tmp_path, scale="two-core", command="")["missing"]
    assert [one["cell"] for one in missing] == ["sharing all"]

    monkeypatch.setitem(work.KINDS, "pretrain", real)
    assert run_plan(plan, tmp_path, Here())
    assert {one.state for one in status_of(plan, tmp_path)} == {"done"}


def test_a_folder_of_another_study_is_refused(plan: Plan, write: Write, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    claim_folder(plan, folder)
    claim_folder(plan_of(read_study(write(seeds=[1, 2, 3])), data), folder)  # more seeds
    for changes, message in (
        ({"name": "other"}, "belongs to another study, `toy`"),
        ({"budget": {"steps": 9}}, "its cell `sharing all` has other settings"),
        (
            {"axes": {"sharing": {"values": {"all": "ffn", "none": "none"}}}},
            "its cell `sharing all` has other settings",
        ),
    ):
        with pytest.raises(RunError, match=message):
            claim_folder(plan_of(read_study(write("other.yaml", **changes)), data), folder)
    shutil.rmtree(folder)
    folder.mkdir()
    write_json(folder / "notes.json", {})
    with pytest.raises(RunError, match="holds something else than a study"):
        claim_folder(plan, folder)
    assert read_json(folder / "notes.json") == {}
    assert [path.name for path in folder.iterdir()] == ["notes.json"]


def test_every_measurement_of_a_pretrained_cell(write: Write, data: Path, tmp_path: Path) -> None:
    judged = {
        "held_out": {"sequences": 16, "sentence": ["sop", "nsp"]},
        "texts": {"files": ["text"], "passages": 4},
        "layers": {"texts": 3, "max_length": 16},
    }
    changes = {"base": {"pretrain": {"objective": {"pairs": "sop"}}}, "corpus": {"held_out": 0.6}}
    file = write(seeds=[1], axes={"sharing": {"values": ["all"]}}, judged=judged, conclusions=None, **changes)
    plan = plan_of(read_study(file), data)
    assert run_plan(plan, tmp_path, Here()), status_of(plan, tmp_path)
    found = collect(plan, tmp_path, scale="two-core", command="")["cells"][0]["seeds"]["1"]
    scores = found["scores"]
    assert {"nats_per_character", "distance_last", "turning"} <= scores.keys()
    assert scores["nsp_above_baseline"] == pytest.approx(scores["nsp_accuracy"] - scores["nsp_baseline"])
    least = max(scores["sop_baseline"], scores["sop_by_length"])
    assert scores["sop_above_baseline"] == pytest.approx(scores["sop_accuracy"] - least)
    assert 0 < scores["nats_per_character"] < 20
    assert 0 <= scores["turning"] <= 180
    assert len(found["layers"]["distance"]) == 2
    assert found["layers"]["norm"][1:] == pytest.approx([32**0.5] * 2, rel=0.3)  # each leaves a LayerNorm


def test_other_objectives_have_a_loss_of_their_own(write: Write, data: Path, tmp_path: Path) -> None:
    causal = {"pretrain.objective.kind": "causal", "pretrain.model.change.positions": "relative"}
    changes = {"axes": None, "conclusions": None, "judged": {"cost": False}}
    plan = plan_of(read_study(write(seeds=[1], cells={"causal": causal}, **changes)), data)
    assert run_plan(plan, tmp_path, Here()), status_of(plan, tmp_path)
    scores = collect(plan, tmp_path, scale="two-core", command="")["cells"][0]["seeds"]["1"]["scores"]
    assert 0 < scores["mlm_loss"] < 10
    assert "mask_loss" not in scores


@pytest.mark.matrix
def test_measured_steps(write: Write, data: Path, tmp_path: Path) -> None:
    judged = {"held_out": None, "step": {"sequences": 1, "length": 16, "rounds": 1}}
    plan = plan_of(read_study(write(seeds=[1], judged=judged, corpus=None, conclusions=None)), data)
    assert {unit.kind for unit in plan.units.values()} == {"cost", "step"}
    assert run_plan(plan, tmp_path, Here()), status_of(plan, tmp_path)
    for cell in collect(plan, tmp_path, scale="two-core", command="")["cells"]:
        assert cell["seeds"]["1"]["scores"]["tokens_per_second"] > 0
