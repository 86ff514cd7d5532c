"""A study as data: what is varied, what is measured, and which conclusions of a paper are checked.

A study is a YAML file. `docs/how-to/run-a-study.md` describes its keys; those that come with the package are
in `study/builtin/`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from albertine.core.settings import (
    YAML_ERRORS,
    Settings,
    apply_overrides,
    merge,
    read_recipe,
    read_yaml,
    resolve,
)
from albertine.errors import SettingsError
from albertine.study import DEFAULT_SCALE
from albertine.study.verdicts import Expected

BUILTIN = Path(__file__).parent / "builtin"
PARTS = ("pretrain", "finetune", "corpus")
"""What a setting of a cell begins with: settings of `albertine pretrain`, of `albertine finetune`, or the
text."""
Cells = str | dict[str, str]
"""The cells of a comparison: the name of one, or values of axes that all of them have."""


class Source(Settings):
    """What a study repeats: the paper, its table, and the figures in it."""

    paper: str = Field(description="authors, year, title or number")
    table: str = Field(description="table, figure or section")
    columns: tuple[str, ...] = Field((), description="names of the columns of its figures")
    rows: tuple[tuple[str | int | float | None, ...], ...] = Field((), description="its figures, row by row")
    note: str = Field("", description="what a reader of the figures should know")

    @model_validator(mode="after")
    def _rows_have_all_columns(self) -> Source:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"source.rows: row {number} has {len(row)} values for {len(self.columns)} columns"
                )
        return self


class Corpus(Settings):
    """The text of a study, prepared once for all of its cells."""

    text: tuple[Path, ...] = Field(min_length=1, description="files and folders, below --data")
    vocab_size: int | None = Field(None, ge=1, description="tokens of the vocabulary that is trained from it")
    kind: Literal["sentencepiece", "wordpiece", "xlnet"] | None = Field(
        None, description="of that vocabulary"
    )
    language: Literal["auto", "en", "zh"] = Field("auto", description="language of the text")
    held_out: float = Field(0.02, gt=0, lt=1, description="share of the documents that is held out")


class Budget(Settings):
    """How long a cell trains: updates or minutes."""

    steps: int | None = Field(None, ge=1, description="updates of every pretraining run")
    minutes: float | None = Field(
        None, gt=0, description="minutes of every pretraining run; such runs do not resume bit by bit"
    )

    @model_validator(mode="after")
    def _one(self) -> Budget:
        if (self.steps is None) == (self.minutes is None):
            both = "" if self.steps is None else "; budget.steps=null takes the steps of a study out"
            raise ValueError(f"give budget.steps or budget.minutes, and not both{both}")
        return self


class Axis(Settings):
    """One thing that is varied.

    Either `setting` with `values`, or `values` by name, each several settings.
    """

    setting: str | None = Field(
        None, description="the setting that is varied, such as pretrain.model.sharing"
    )
    values: list[Any] | dict[Any, Any] = Field(
        description="its values, or names with a value each; without `setting`, names with settings each, "
        "null to leave out one of another scale"
    )

    @property
    def points(self) -> dict[str, dict[str, Any]]:
        """Settings by the names of the values."""
        named = (
            self.values if isinstance(self.values, dict) else {_name(value): value for value in self.values}
        )
        if self.setting is not None:
            return {_name(name): {self.setting: value} for name, value in named.items()}
        return {_name(name): dict(value) for name, value in named.items() if value is not None}

    @model_validator(mode="after")
    def _named(self) -> Axis:
        if not self.values:
            raise ValueError("an axis needs values")
        if self.setting is None and not (
            isinstance(self.values, dict) and all(isinstance(v, dict | None) for v in self.values.values())
        ):
            raise ValueError("an axis without `setting` has `values` by name, each with its settings")
        names = list(map(_name, self.values))
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two values of an axis are called `{twice[0]}`")
        return self


def _name(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class HeldOut(Settings):
    """Scores on held-out documents, as `albertine score`: of single passages, the same for every model."""

    max_length: int | None = Field(
        None, ge=8, description="tokens of a passage; default: the run's, as always of pairs"
    )
    sequences: int = Field(1024, ge=1, description="most samples")
    sentence: tuple[Literal["sop", "nsp"], ...] = Field(
        (), description="also pairs of these objectives, whatever a model was trained with"
    )


class FixedTexts(Settings):
    """Words masked in texts of their own, the same for every vocabulary, as `albertine score --texts`."""

    files: tuple[Path, ...] = Field(min_length=1, description="files and folders, below --data")
    max_length: int | None = Field(None, ge=8, description="tokens of a sample; default: the run's")
    passages: int = Field(512, ge=1, description="most passages")


class SuiteData(Settings):
    """Minimal pairs, as `albertine suite`."""

    folder: Path = Field(description="its files, below --data")
    limit: int | None = Field(None, ge=1, description="most pairs of a paradigm")


class LayerTexts(Settings):
    """Statistics of hidden states over layers, as `albertine analyze layers`."""

    texts: int = Field(64, ge=2, description="held-out passages")
    max_length: int = Field(64, ge=8, description="tokens of a passage")


class StepSpeed(Settings):
    """Measured training steps (masked LM and sentence head, AdamW, full sequences)."""

    sequences: int = Field(4, ge=1, description="sequences of a step")
    length: int = Field(128, ge=8, description="tokens of a sequence")
    rounds: int = Field(3, ge=1, description="steps, of which the fastest counts")


class Judged(Settings):
    """What is measured of every cell."""

    held_out: HeldOut | None = Field(None, description="scores on held-out text")
    texts: FixedTexts | None = Field(None, description="masked words of other text")
    suites: dict[Literal["blimp", "sling"], SuiteData] = Field({}, description="minimal pairs")
    tasks: dict[str, dict[str, Any] | None] = Field(
        {}, description="settings of `albertine finetune` by task, files below --data; null: left out"
    )
    layers: LayerTexts | None = Field(None, description="statistics of hidden states over layers")
    cost: bool = Field(False, description="parameters, bytes and floating-point operations a token")
    step: StepSpeed | None = Field(None, description="measured training steps")

    @property
    def needs_training(self) -> bool:
        """Whether a cell has to be pretrained for it."""
        return bool(self.held_out or self.texts or self.suites or self.tasks or self.layers)

    @model_validator(mode="after")
    def _something(self) -> Judged:
        if not (self.needs_training or self.cost or self.step):
            raise ValueError("judged names nothing to measure")
        return self

    @property
    def scores(self) -> frozenset[str]:
        """The names of all scores; of a task also those that begin with its name and a point."""
        names = set[str]()
        if self.needs_training:
            names |= {"tokens", "steps", "tokens_per_second"}
        if self.held_out is not None:
            names |= {"mask_accuracy", "mask_loss", "mlm_accuracy", "mlm_loss", "context_gain"}
            kinds = ("accuracy", "baseline", "above_baseline")
            names |= {f"{task}_{kind}" for task in self.held_out.sentence for kind in kinds}
            names |= {"sop_by_length"} if "sop" in self.held_out.sentence else set()
        if self.texts is not None:
            names |= {"nats_per_character", "words_right"}
        if self.layers is not None:
            names |= {"distance_last", "distance_change", "turning", "cosine_last"}
        if self.cost:
            names |= {"parameters", "megabytes", "training_flops", "inference_flops"}
        if self.step is not None:
            names |= {"tokens_per_second"}
        tasks = {name for name, task in self.tasks.items() if task is not None}
        return frozenset(names | self.suites.keys() | tasks | ({"tasks"} if len(tasks) > 1 else set()))


class Conclusion(Settings):
    """A conclusion of the source as a comparison of cells."""

    claim: str = Field(description="the conclusion in words")
    metric: str = Field(description="what is compared, a score of `judged`")
    of: Cells = Field(description="the first cells: a name, or values of axes; several are averaged")
    minus: Cells | float = Field(description="the cells that are subtracted, or a number")
    expected: Expected = Field(description="greater, less or equal: the difference by the source")
    within: float | None = Field(
        None, gt=0, description="of equal: the largest difference that counts as none"
    )
    threshold: float | None = Field(None, gt=0, description="of one seed: the difference that decides")

    @field_validator("of", "minus", mode="before")
    @classmethod
    def _texts(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            return {str(key): _name(value) for key, value in given.items()}
        return given

    @model_validator(mode="after")
    def _has_a_margin(self) -> Conclusion:
        if (self.expected == "equal") != (self.within is not None):
            raise ValueError("`within` is the margin of `expected: equal`; give both or neither")
        return self


class Study(Settings):
    """A study: cells, seeds, what is measured, and conclusions."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="name of the study and of its folder")
    title: str = Field(description="the question in words")
    source: Source = Field(description="what it repeats")
    corpus: Corpus | None = Field(None, description="the text that is prepared for it")
    base: dict[Literal["recipe", "pretrain", "finetune"], Any] = Field(
        {}, description="settings of all cells: a recipe, and settings of pretrain and of finetune over it"
    )
    axes: dict[str, Axis] = Field({}, description="what is varied; every combination is a cell")
    cells: dict[str, dict[str, Any] | None] = Field(
        {}, description="further cells: names with settings; null leaves one of another scale out"
    )
    seeds: tuple[int, ...] = Field((1,), min_length=1, description="every cell is run with each of them")
    budget: Budget | None = Field(None, description="updates or minutes of a pretraining run")
    judged: Judged = Field(description="what is measured of every cell")
    conclusions: tuple[Conclusion, ...] = Field((), description="what is compared")
    notes: tuple[str, ...] = Field((), description="remarks for the report")

    @model_validator(mode="after")
    def _distinct(self) -> Study:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError("seeds: one is given twice")
        if not self.axes and not self.cells:
            raise ValueError("a study needs axes or cells")
        return self


@dataclass(frozen=True)
class Cell:
    """One combination of settings.

    Attributes:
        name: its values, or its own name. at: values by axis; of a named cell {"cell": name}.
        changes: dotted settings over those of the study's base.
    """

    name: str
    at: Mapping[str, str]
    changes: Mapping[str, Any]


def builtin_names() -> tuple[str, ...]:
    """The studies that come with the package."""
    return tuple(sorted(path.stem for path in BUILTIN.glob("*.yaml")))


def study_file(what: str | Path) -> Path:
    """The file of a study by its path or the name of one in the package.

    Raises:
        SettingsError: there is neither; with the nearest name.
    """
    path = Path(what).expanduser()
    if path.is_file():
        return path
    if str(what) in builtin_names():
        return BUILTIN / f"{what}.yaml"
    near = difflib.get_close_matches(path.stem, builtin_names(), n=1)
    meant = f"Did you mean `{near[0]}`? " if near else ""
    raise SettingsError(
        "there is no such study",
        where=what,
        remedy=f"{meant}Give a YAML file, or one of {', '.join(builtin_names())}",
    )


def read_study(what: str | Path, scale: str = DEFAULT_SCALE, assignments: Iterable[str] = ()) -> Study:
    """A study at one of its scales, with `key.sub=value` over it.

    Raises:
        SettingsError: there is no such study or scale, or a key or value is wrong.
    """
    file, assignments = study_file(what), list(assignments)
    tree = read_yaml(file, "study")
    scales = tree.pop("scales", None) or {}
    if not isinstance(scales, dict) or not all(isinstance(one, dict | None) for one in scales.values()):
        raise SettingsError("`scales` has names with settings each", where=file)
    if scale != DEFAULT_SCALE and scale not in scales:
        known = [DEFAULT_SCALE, *(name for name in scales if name != DEFAULT_SCALE)]
        near = difflib.get_close_matches(scale, known, n=1)
        meant = f"Did you mean `{near[0]}`? " if near else ""
        raise SettingsError(
            f"the study has no scale `{scale}`", where=file, remedy=f"{meant}It has {', '.join(known)}"
        )
    free = [text for text in assignments if text.partition("=")[0].split(".")[0] in ("axes", "cells")]
    tree = merge(*map(_with_names, (tree, scales.get(scale) or {}, *map(_as_yaml, free))))
    tree = apply_overrides(tree, [text for text in assignments if text not in free])
    study = resolve(Study, tree, file, assignments)
    return study.model_copy(update={"base": _with_recipe(study, file)})


def _with_names(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A tree whose values of axes are named by texts, as on the command line; YAML reads numbers."""
    axes = tree.get("axes")
    if not isinstance(axes, dict):
        return dict(tree)
    return {**tree, "axes": {name: _with_text_keys(axis) for name, axis in axes.items()}}


def _with_text_keys(axis: Any) -> Any:
    values = axis.get("values") if isinstance(axis, dict) else None
    if not isinstance(values, dict) or len(set(map(_name, values))) < len(values):  # refused by `Axis`
        return axis
    return {**axis, "values": {_name(key): value for key, value in values.items()}}


def _as_yaml(assignment: str) -> dict[str, Any]:
    """The tree of `key.sub=value` for a value of any type, which is read as YAML."""
    name, sign, text = assignment.partition("=")
    tree = apply_overrides({}, [f"{name}=null" if sign else assignment])
    try:
        return at_end(tree, yaml.safe_load(text))
    except YAML_ERRORS as error:
        raise SettingsError(f"the value of `{name}`, `{text}`, is not readable as YAML") from error


def at_end(tree: dict[str, Any], value: Any) -> dict[str, Any]:
    """A tree of one path with another value at its end."""
    return {key: at_end(inner, value) if isinstance(inner, dict) else value for key, inner in tree.items()}


def _with_recipe(study: Study, file: Path) -> dict[Any, Any]:
    """The base with its recipe merged: a file beside the study or in `builtin/bases`, or a recipe of the
    package."""
    base = dict(study.base)
    if (name := base.pop("recipe", None)) is None:
        return base
    beside = next(
        (path for path in (file.parent / str(name), BUILTIN / "bases" / f"{name}.yaml") if path.is_file()),
        None,
    )
    recipe = read_recipe(beside or Path(str(name)))
    for own in ("name", "output", "corpus"):
        recipe.pop(own, None)
    return {**base, "pretrain": merge(recipe, base.get("pretrain") or {})}


def cells_of(study: Study) -> tuple[Cell, ...]:
    """The cells: every combination of the axes, then the named ones.

    Raises:
        SettingsError: a setting begins with none of `PARTS`, or two cells have the same name.
    """
    found = []
    points = [
        [(axis, name, changes) for name, changes in one.points.items()] for axis, one in study.axes.items()
    ]
    for chosen in product(*points) if points else ():
        at = {axis: name for axis, name, _ in chosen}
        changes = {key: value for _, _, own in chosen for key, value in own.items()}
        found.append(Cell(", ".join(f"{axis} {name}" for axis, name in at.items()), at, changes))
    found += [Cell(name, {"cell": name}, own) for name, own in study.cells.items() if own is not None]
    for cell in found:
        for setting in cell.changes:
            _check_setting(study, cell, str(setting))
    names = [cell.name for cell in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsError(f"two cells are called `{twice[0]}`", where=f"study {study.name}")
    return tuple(found)


def _check_setting(study: Study, cell: Cell, setting: str) -> None:
    first, dot, _ = setting.partition(".")
    if first in PARTS and dot:
        return
    near = difflib.get_close_matches(first, PARTS, n=1)
    meant = f"did you mean `{near[0]}.{setting.partition('.')[2] or '…'}`? " if near else ""
    raise SettingsError(
        f"unknown setting `{setting}`",
        where=f"study {study.name}, cell {cell.name}",
        remedy=f"{meant[:1].upper()}{meant[1:]}Settings begin with pretrain., finetune. or corpus., such as "
        "pretrain.model.sharing",
    )


def check_metric(study: Study, conclusion: Conclusion) -> None:
    """
    Raises:
        SettingsError: nothing that is measured has the score of a conclusion.
    """
    known = study.judged.scores
    if conclusion.metric in known or conclusion.metric.partition(".")[0] in study.judged.tasks:
        return
    near = difflib.get_close_matches(conclusion.metric, known, n=1)
    raise SettingsError(
        f"nothing that `judged` names has a score `{conclusion.metric}`",
        where=f"study {study.name}, conclusion `{conclusion.claim}`",
        remedy=f"Did you mean `{near[0]}`?" if near else f"There are {', '.join(sorted(known))}",
    )


def chosen_cells(study: str, cells: Sequence[Cell], side: Cells, conclusion: Conclusion) -> tuple[Cell, ...]:
    """The cells that one side of a conclusion names, at least one.

    Raises:
        SettingsError: there is none.
    """
    if isinstance(side, str):
        found = tuple(cell for cell in cells if cell.name == side)
    else:
        found = tuple(cell for cell in cells if side.items() <= cell.at.items())
    if found:
        return found
    words = side if isinstance(side, str) else ", ".join(f"{axis} {value}" for axis, value in side.items())
    near = difflib.get_close_matches(words, [cell.name for cell in cells], n=1, cutoff=0.3)
    raise SettingsError(
        f"no cell is `{words}`",
        where=f"study {study}, conclusion `{conclusion.claim}`",
        remedy=f"Did you mean `{near[0]}`?" if near else "Name the values of its axes",
    )
