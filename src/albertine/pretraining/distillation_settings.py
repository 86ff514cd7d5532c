"""The settings of a distillation by a few words: teacher, corpus, and what is to be smaller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from albertine.core.settings import load_partial, merge, resolve
from albertine.errors import SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.interop.model_location import model_folder
from albertine.model.model import Model
from albertine.pretraining.settings import PretrainingSettings

USUAL: Mapping[str, Any] = {
    "objective": {"masking": {"ngram": 1, "whole_word": False}},
    "training": {"batch_size": 24, "optimizer": "muon", "warmup": 0.02},
}
"""Where neither a recipe nor the person says otherwise. One masked token is as good a question as another;
words need not be hidden whole to ask a teacher."""
NAMED = {"corpus": "CORPUS", "model.start_from": "TEACHER", "objective.distillation.teacher": "TEACHER"}
PLACED = {"name": "--output", "output": "--output"}
"""Settings that have words of their own in the command."""
STEPS = 2000
RATE = 0.01
"""Of Muon; any other optimizer has its published rate."""


def distillation_settings(
    teacher: Path,
    corpus: Path,
    run: Path | None = None,
    student: Mapping[str, Any] | None = None,
    config: Path | None = None,
    assignments: Iterable[str] = (),
) -> PretrainingSettings:
    """The settings of a run in which a student learns from a teacher whose weights it begins with.

    Args:
        run: folder of the run; default `runs/TEACHER-student`.
        student: as `model.student` has it, such as {"depth": 2}; default: half of the teacher's depths.
        config: a recipe. assignments: `key.sub=value`, which win over all else.

    Raises:
        AlbertineError: there is no such teacher, or a setting is wrong or has a word of its own here.
    """
    assignments = list(assignments)
    for name in (one.partition("=")[0].strip() for one in assignments):
        if word := NAMED.get(name) or (run and PLACED.get(name)):
            raise SettingsError(f"is what {word} says", where=name, remedy=f"Leave it out, or change {word}")
    tree = load_partial(PretrainingSettings, config, assignments)
    parts = {name: part for name, part in tree.items() if isinstance(part, Mapping)}
    found = load_model(model_folder(teacher))
    asked = {name: value for name, value in (student or {}).items() if value is not None}
    if not asked and "student" not in parts.get("model", {}):
        asked = {"depth": max(1, found.config.num_hidden_layers // 2)}
    training = parts.get("training", {})
    usual: dict[str, Any] = {} if {"steps", "minutes"} & training.keys() else {"steps": STEPS}
    if training.get("optimizer", "muon") == "muon":
        usual["learning_rate"] = RATE
    folder = run or Path("runs") / f"{teacher.name}-student"
    place = {"name": folder.name, "output": folder.parent}
    known: dict[str, Any] = {
        **place,
        "objective": {"pairs": _pairs(found), "distillation": {"teacher": teacher}},
        "training": usual,
    }
    said: dict[str, Any] = {
        "corpus": corpus,
        "model": {"start_from": teacher, **({"student": asked} if asked else {})},
        "objective": {"distillation": {"teacher": teacher}},
        **(place if run else {}),
    }
    # A part that is none is not covered by what is known of it: it is for `resolve` to refuse.
    wrong = {name: tree[name] for name in ("model", *USUAL) if name in tree and name not in parts}
    return resolve(PretrainingSettings, merge(USUAL, known, tree, said) | wrong, config, assignments)


def _pairs(teacher: Model) -> str:
    """The sentence task that the teacher has a head for, which its student keeps."""
    return teacher.sentence_objective or "none"
