"""The settings of `albertine distill`: from teacher, corpus and the student's size to those of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from albertine.core.settings import load_partial, merge, resolve
from albertine.errors import SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.interop.model_names import model_folder
from albertine.model.model import Model
from albertine.pretraining.settings import PretrainingSettings

DEFAULTS: Mapping[str, Any] = {
    "objective": {"masking": {"ngram": 1, "whole_word": False}},
    "training": {"batch_size": 24, "optimizer": "muon", "warmup": 0.02},
}
"""Defaults below those of a recipe. Masked runs of words are of no use for soft targets, of which every
masked token has one."""
ARGUMENTS = {"corpus": "CORPUS", "model.start_from": "TEACHER", "objective.distillation.teacher": "TEACHER"}
OUTPUT_OPTIONS = {"name": "--output", "output": "--output"}
"""Settings that are arguments and options of the command."""
STEPS = 2000
RATE = 0.01
"""Of Muon; other optimizers have their published rate."""


def distillation_settings(
    teacher: Path,
    corpus: Path,
    run: Path | None = None,
    student: Mapping[str, Any] | None = None,
    config: Path | None = None,
    assignments: Iterable[str] = (),
) -> PretrainingSettings:
    """The settings of a run in which a student is initialised from its teacher and learns from it.

    Args:
        run: folder of the run; default `runs/TEACHER-student`.
        student: as `model.student`, such as {"depth": 2}; default: half of the teacher's layers.
        config: a recipe. assignments: `key.sub=value`, which take precedence.

    Raises:
        AlbertineError: there is no such teacher, or a setting is invalid or an argument of the command.
    """
    assignments = list(assignments)
    for name in (one.partition("=")[0].strip() for one in assignments):
        if word := ARGUMENTS.get(name) or (run and OUTPUT_OPTIONS.get(name)):
            raise SettingsError(f"is set by {word}", where=name, remedy=f"Leave it out, or change {word}")
    tree = load_partial(PretrainingSettings, config, assignments)
    parts = {name: part for name, part in tree.items() if isinstance(part, Mapping)}
    found = load_model(model_folder(teacher))
    changes = {name: value for name, value in (student or {}).items() if value is not None}
    if not changes and "student" not in parts.get("model", {}):
        changes = {"depth": max(1, found.config.num_hidden_layers // 2)}
    training = parts.get("training", {})
    schedule: dict[str, Any] = {} if {"steps", "minutes"} & training.keys() else {"steps": STEPS}
    if training.get("optimizer", "muon") == "muon":
        schedule["learning_rate"] = RATE
    folder = run or Path("runs") / f"{teacher.name}-student"
    place = {"name": folder.name, "output": folder.parent}
    derived: dict[str, Any] = {
        **place,
        "objective": {"pairs": _pairs(found), "distillation": {"teacher": teacher}},
        "training": schedule,
    }
    required: dict[str, Any] = {
        "corpus": corpus,
        "model": {"start_from": teacher, **({"student": changes} if changes else {})},
        "objective": {"distillation": {"teacher": teacher}},
        **(place if run else {}),
    }
    # An invalid value stays, so that `resolve` raises its error.
    invalid = {name: tree[name] for name in ("model", *DEFAULTS) if name in tree and name not in parts}
    return resolve(
        PretrainingSettings, merge(DEFAULTS, derived, tree, required) | invalid, config, assignments
    )


def _pairs(teacher: Model) -> str:
    """The sentence task of the teacher's head, which its student keeps."""
    return teacher.sentence_objective or "none"
