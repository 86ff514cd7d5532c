from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from albertine.core.settings import merge
from albertine.errors import AlbertineError, SettingsError
from albertine.study.definition import (
    BUILTIN,
    builtin_names,
    cells_of,
    check_metric,
    chosen_cells,
    read_study,
    study_file,
)
from albertine.study.units import plan_of
from tests.study.conftest import Write

SCALES = ("two-core", "gpu")
TABLE = {
    *(
        "embedding-size",
        "sharing",
        "sentence-task",
        "depth",
        "width",
        "dropout",
        "data",
        "speed",
        "same-time",
    ),
    *("unshare", "oscillation", "objectives", "bytes-or-time"),
}


def test_there_are_the_studies_of_the_table() -> None:
    assert set(builtin_names()) == TABLE


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", builtin_names())
def test_a_study_of_the_package_has_cells_for_its_conclusions(name: str, scale: str) -> None:
    study = read_study(name, scale)
    assert study.name == name
    assert study.conclusions
    cells = cells_of(study)
    for conclusion in study.conclusions:
        for side in (conclusion.of, conclusion.minus):
            if not isinstance(side, float):
                chosen_cells(name, cells, side, conclusion)
        check_metric(study, conclusion)


@pytest.mark.parametrize("scale", ["two-core", pytest.param("gpu", marks=pytest.mark.matrix)])
@pytest.mark.parametrize("name", builtin_names())
def test_settings_and_files_of_a_study_of_the_package_are_right(
    name: str, scale: str, shared_data: Path
) -> None:
    plan = plan_of(read_study(name, scale), shared_data)
    assert len(plan.trials) == len(plan.cells) * len(plan.study.seeds)


def test_studies_have_cells_in_common(shared_data: Path) -> None:
    sharing, embedding = (
        plan_of(read_study(name), shared_data).units for name in ("sharing", "embedding-size")
    )
    assert len([key for key in sharing.keys() & embedding.keys() if key.startswith("pretrain-")]) == 12


def test_combinations_and_named_cells(write: Write) -> None:
    axes = {"layers": {"setting": "pretrain.model.change.num_hidden_layers", "values": {1: 1, "many": 4}}}
    study = read_study(write(axes=axes, cells={"groups": {"pretrain.model.sharing": 2}}))
    assert [cell.name for cell in cells_of(study)] == [
        "sharing all, layers 1",
        "sharing all, layers many",
        "sharing none, layers 1",
        "sharing none, layers many",
        "groups",
    ]


def test_a_cell_has_its_settings_and_the_budget(write: Write, data: Path) -> None:
    cells = {"long": {"pretrain.training.steps": 20}, "timed": {"pretrain.training.minutes": 2}}
    plan = plan_of(read_study(write(cells=cells)), data)
    work = {unit.label: unit.work["settings"] for unit in plan.units.values() if unit.kind == "pretrain"}
    found = {
        name: (one["training"]["steps"], one["training"]["minutes"], one["seed"])
        for name, one in work.items()
    }
    assert found == {
        "sharing all, seed 1": (8, None, 1),
        "sharing all, seed 2": (8, None, 2),
        "sharing none, seed 1": (8, None, 1),
        "sharing none, seed 2": (8, None, 2),
        "long, seed 1": (20, None, 1),
        "long, seed 2": (20, None, 2),
        "timed, seed 1": (None, 2.0, 1),
        "timed, seed 2": (None, 2.0, 2),
    }
    assert work["sharing none, seed 1"]["model"]["sharing"] == "none"


def test_one_encoder_serves_all_seeds_of_fine_tuning(write: Write, data: Path) -> None:
    task = {"task": {"train": "train.csv", "dev": "dev.csv", "text": "sentence", "label": "season"}}
    judged = {"tasks": {"season": task}, "held_out": None, "cost": False}
    file = write(base={"pretrain": {"seed": 7}}, judged=judged, conclusions=None)
    kinds = [unit.kind for unit in plan_of(read_study(file), data).units.values()]
    assert (kinds.count("pretrain"), kinds.count("finetune")) == (2, 4)


def keys(write: Write, data: Path, threads: int = 1, **changes: Any) -> set[str]:
    return set(plan_of(read_study(write(**changes)), data, threads).units)


def test_what_determines_a_result_determines_its_key(write: Write, data: Path, tmp_path: Path) -> None:
    data = shutil.copytree(data, tmp_path / "data")
    (data / "pairs").mkdir()
    (data / "pairs" / "a.jsonl").write_text("{}", encoding="utf-8")
    task = {"task": {"train": "train.csv", "dev": "dev.csv", "text": "sentence", "label": "season"}}
    how: dict[str, Any] = {"judged": {"suites": {"blimp": {"folder": "pairs"}}, "tasks": {"t": task}}}
    before = keys(write, data, **how)
    assert before == keys(write, data, threads=2, **how)
    for quiet in ({"log_every": 3}, {"report": False}):
        assert before == keys(write, data, **merge(how, {"base": {"finetune": {"watching": quiet}}}))
    changed = keys(write, data, **merge(how, {"base": {"finetune": {"watching": {"evaluations": 2}}}}))
    assert {key.partition("-")[0] for key in before ^ changed} == {"finetune"}
    (data / "pairs" / "a.jsonl").write_text('{"x": 1}', encoding="utf-8")
    assert {key.partition("-")[0] for key in before ^ keys(write, data, **how)} == {"suite"}

    timed = {"budget": {"steps": None, "minutes": 1}}
    one, two = (keys(write, data, threads, **timed) for threads in (1, 2))
    assert {key.partition("-")[0] for key in one ^ two} == {"pretrain", "held_out"}


def test_a_model_to_start_from_is_known_by_its_weights(write: Write, data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}", encoding="utf-8")
    (model / "model.safetensors").write_bytes(b"1")
    cells = {"more": {"pretrain.model.start_from": str(model), "pretrain.objective.pairs": "none"}}
    how: dict[str, Any] = {"base": None, "axes": None, "cells": cells, "conclusions": None}
    how["judged"] = {"cost": False}
    before = keys(write, data, **how)
    (model / "model.safetensors").write_bytes(b"2")
    assert {key.partition("-")[0] for key in before ^ keys(write, data, **how)} == {"pretrain", "held_out"}
    with pytest.raises(SettingsError, match=r"are of a preset, and pretrain.model.start_from names a model"):
        keys(write, data, **merge(how, {"judged": {"cost": True}}))


def test_a_scale_is_laid_over_the_study(write: Write) -> None:
    file = write(scales={"gpu": {"budget": {"steps": 500}}})
    assert read_study(file).budget != read_study(file, "gpu").budget
    assert read_study(file, "gpu", ["budget.steps=7"]).budget.steps == 7  # type: ignore[union-attr]


def test_axes_and_cells_are_changed_from_the_command_line(write: Write) -> None:
    changes = ["axes.sharing.values={all: all, some: ffn}", "cells.x={pretrain.model.sharing: 2}"]
    cells = cells_of(read_study(write(conclusions=None), "two-core", changes))
    assert [(cell.name, cell.changes["pretrain.model.sharing"]) for cell in cells] == [
        ("sharing all", "all"),
        ("sharing some", "ffn"),
        ("x", 2),
    ]
    with pytest.raises(SettingsError, match="not readable as YAML"):
        read_study(write(), "two-core", ["axes.sharing.values=[a"])


def test_values_named_by_numbers_are_changed_from_the_command_line() -> None:
    study = read_study("width", "two-core", ["axes.hidden size.values.512=null"])
    assert [cell.name for cell in cells_of(study)] == [f"hidden size {width}" for width in (64, 128, 256)]
    with pytest.raises(SettingsError, match=r"budget\.steps=null takes the steps of a study out"):
        read_study("width", "two-core", ["budget.minutes=3"])
    minutes = read_study("width", "two-core", ["budget.minutes=3", "budget.steps=null"]).budget
    assert minutes is not None
    assert minutes.minutes == 3


UNKNOWN_KEY = {"judgd": {}}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": (UNKNOWN_KEY, "unknown setting `judgd`; did you mean `judged`?"),
    "unknown setting": (
        {"axes": {"width": {"setting": "pretrain.model.change.hiden_size", "values": [32]}}},
        "did you mean `model.change.hidden_size`?",
    ),
    "unknown part": (
        {"cells": {"x": {"pretrane.model.sharing": "all"}}},
        "Did you mean `pretrain.model.sharing`?",
    ),
    "wrong value": ({"cells": {"x": {"pretrain.model.sharing": "some"}}}, "should be preset, all"),
    "same settings": (
        {"cells": {"x": {"pretrain.model.sharing": "all"}}},
        "the cells `sharing all` and `x` have the same settings",
    ),
    "no such cell": (
        {
            "conclusions": [
                {"claim": "c", "metric": "mask_loss", "of": "sharing al", "minus": 0.5, "expected": "less"}
            ]
        },
        "Did you mean `sharing all`?",
    ),
    "no such score": (
        {"conclusions": [{"claim": "c", "metric": "mask_los", "of": {}, "minus": 0.5, "expected": "less"}]},
        "Did you mean `mask_loss`?",
    ),
    "no text": ({"corpus": {"text": ["texts"]}}, "Name the folder of texts and data sets with --data"),
    "no margin": (
        {"conclusions": [{"claim": "c", "metric": "m", "of": "x", "minus": 0.5, "expected": "equal"}]},
        "`within` is the margin",
    ),
    "no cells": ({"axes": None}, "needs axes or cells"),
    "row of a table": ({"source": {"rows": [["all"]]}}, "row 1 has 1 values for 2 columns"),
    "no task file": (
        {"judged": {"tasks": {"t": {"task": {"train": "no.csv", "dev": "dev.csv"}}}}},
        "there is no",
    ),
    "unknown setting of a task": (
        {"judged": {"tasks": {"t": {"task": {"trian": "train.csv", "dev": "dev.csv"}}}}},
        "did you mean `task.train`?",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named_with_its_remedy(case: str, write: Write, data: Path) -> None:
    changes, message = BAD[case]
    with pytest.raises(AlbertineError) as raised:
        plan_of(read_study(write(**changes)), data)
    assert message in str(raised.value)


def test_a_study_is_suggested() -> None:
    assert study_file("sharing") == BUILTIN / "sharing.yaml"
    with pytest.raises(SettingsError, match="Did you mean `sentence-task`"):
        study_file("sentence-tasks")
    with pytest.raises(SettingsError, match=r"no scale `gpus`.*Did you mean `gpu`"):
        read_study("sharing", "gpus")
