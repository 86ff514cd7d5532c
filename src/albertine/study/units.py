"""The work of a study, in units that are computed once however many cells and studies need them.

A unit is identified by a digest of its resolved settings, of the bytes of its input files and of the units
that it needs, so that two cells, or two studies in the same folder, that agree in them have it in common.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from albertine.core.files import user_path
from albertine.core.processors import usable_threads
from albertine.core.settings import apply_overrides, merge, resolve
from albertine.errors import AlbertineError, DataError, SettingsError
from albertine.interop.model_files import files_of_model
from albertine.interop.model_names import model_folder
from albertine.pretraining.settings import PretrainingSettings
from albertine.study.definition import Cell, Corpus, Study, at_end, cells_of, check_metric, chosen_cells
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.suite import below
from albertine.tasks.task_data import missing

LAYOUT = 1
"""Part of every digest; raised when results of the same settings change."""
CELLS = "cells"
"""Folder of the units in the folder of the studies."""
RUN, MODEL = "run", Path("run", "final")
"""Of a pretraining unit, its run folder and its model."""
NOT_IN_DIGEST: dict[str, Any] = {
    **dict.fromkeys(("name", "output", "corpus", "watching"), True),
    "training": {"workers", "threads", "recompute", "compile"},
}
"""Settings of pretraining without influence on the model, where its length is a number of updates."""
NOT_IN_TASK_DIGEST: dict[str, Any] = {
    **dict.fromkeys(("name", "output"), True),
    "watching": {"log_every", "keep", "tensorboard", "report"},
}
"""Settings of fine-tuning without influence on the scores."""
LENGTHS = ("steps", "minutes")
DATA = "Name the folder of texts and data sets with --data"
_KINDS = ("cost", "corpus", "held_out", "layers", "texts", "suite", "finetune", "pretrain", "step")
RANK = {kind: rank for rank, kind in enumerate(_KINDS)}
"""Kinds of units in the order in which those that are ready begin: what completes a cell first, and last what
is computed alone."""
ALONE = "step"
"""The kind of units beside which nothing is computed, since they are measurements of time."""


@dataclass(frozen=True)
class Unit:
    """One piece of work.

    Attributes:
        key: its kind and digest, the name of its folder. kind: one of `RANK`.
        work: what is computed, as JSON data. needs: keys of the units whose results it reads.
        label: of the first cell that needs it, for people.
    """

    key: str
    kind: str
    work: Mapping[str, Any]
    needs: tuple[str, ...]
    label: str

    def as_dict(self) -> dict[str, Any]:
        """As plain data, which the process that computes it reads."""
        return {
            "key": self.key,
            "kind": self.kind,
            "work": self.work,
            "needs": self.needs,
            "label": self.label,
        }


@dataclass(frozen=True)
class Trial:
    """A cell with one seed, and the keys of its units."""

    cell: Cell
    seed: int
    units: tuple[str, ...]


@dataclass
class Plan:
    """All trials of a study, and their units by key, each after those it needs.

    Attributes:
        threads: of a unit. timed: whether results depend on them, as those of a budget in minutes.
        read: tasks whose files were checked.
    """

    study: Study
    cells: tuple[Cell, ...]
    threads: int
    timed: bool = False
    trials: list[Trial] = field(default_factory=list)
    units: dict[str, Unit] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def add(
        self,
        kind: str,
        work: Mapping[str, Any],
        identity: Mapping[str, Any],
        needs: tuple[str, ...],
        label: str,
    ) -> str:
        """Add a unit unless it is there; its key."""
        key = f"{kind}-{_digest({'layout': LAYOUT, 'kind': kind, 'needs': needs, **identity})}"
        self.units.setdefault(key, Unit(key, kind, work, needs, label))
        return key


def plan_of(study: Study, data: Path, threads: int | None = None) -> Plan:
    """The cells, trials and units of a study; all settings and files are checked.

    Args:
        data: the folder of texts and data sets.
        threads: of a unit; default: all that this process may use.

    Raises:
        SettingsError: an unknown setting or metric, cells with the same settings, a comparison without cells.
        DataError: a file is missing.
    """
    cells = cells_of(study)
    plan = Plan(study, cells, threads or usable_threads())
    for conclusion in study.conclusions:
        check_metric(study, conclusion)
        for side in (conclusion.of, conclusion.minus):
            if not isinstance(side, float):
                chosen_cells(study.name, cells, side, conclusion)
    for cell in cells:
        corpus = _corpus(plan, cell, data)
        plan.trials += [_trial(plan, cell, seed, corpus, data) for seed in study.seeds]
    _check_distinct(plan)
    return plan


def _trial(plan: Plan, cell: Cell, seed: int, corpus: str | None, data: Path) -> Trial:
    study, judged = plan.study, plan.study.judged
    label, where = f"{cell.name}, seed {seed}", f"study {study.name}, cell {cell.name}"
    settings = _pretraining(study, cell, seed, where)
    dumped = settings.model_dump(mode="json", exclude={"name", "output", "corpus"})
    identity: dict[str, Any] = {"settings": settings.model_dump(mode="json", exclude=NOT_IN_DIGEST)}
    if settings.training.minutes is not None:
        # How far a run comes in them depends on the threads, and on all settings that cost time.
        identity = {"settings": dumped, "threads": settings.training.threads or plan.threads}
        plan.timed = True
    distillation = settings.objective.distillation
    teacher = None if distillation is None else distillation.teacher
    identity |= _weights(settings.model.start_from, teacher)
    text = () if corpus is None else (corpus,)
    units: list[str] = []
    if (judged.cost or judged.step) and settings.model.preset is None:
        raise SettingsError(
            "`judged.cost` and `judged.step` are of a preset, and pretrain.model.start_from names a model",
            where=where,
            remedy="Leave them out of `judged`, or name a pretrain.model.preset",
        )
    if judged.cost:
        own = {
            "model": dumped["model"],
            "max_length": settings.objective.max_length,
            "pairs": settings.objective.pairs,
        }
        units.append(plan.add("cost", {"settings": dumped}, own, text, label))
    if judged.step is not None:
        step = {"step": judged.step.model_dump(mode="json"), "seed": seed}
        own = {"model": dumped["model"], **step, "threads": plan.threads}
        plan.timed = True
        units.append(plan.add(ALONE, {"settings": dumped, **step}, own, text, label))
    if not judged.needs_training:
        return Trial(cell, seed, tuple(units))
    if corpus is None:
        raise SettingsError("a study that trains needs a `corpus`", where=f"study {study.name}")
    model = plan.add("pretrain", {"settings": dumped}, identity, text, label)
    units.insert(0, model)
    for kind, choice in (("held_out", judged.held_out), ("layers", judged.layers)):
        if choice is not None:
            work = choice.model_dump(mode="json")
            units.append(plan.add(kind, work, {"work": work}, (model, *text), label))
    if (texts := judged.texts) is not None:
        files, digests = _texts(texts.files, data, where)
        how: dict[str, Any] = {"max_length": texts.max_length, "passages": texts.passages}
        work, own = {"files": files, **how}, {"files": digests, **how}
        units.append(plan.add("texts", work, own, (model, *text), label))
    for of, suite in judged.suites.items():
        (folder,), digests = _texts([suite.folder], data, where)
        how = {"suite": of, "limit": suite.limit}
        units.append(plan.add("suite", {**how, "folder": folder}, {**how, "files": digests}, (model,), label))
    for name, task in judged.tasks.items():
        if task is None:
            continue
        tuned = _tuning(plan, cell, seed, name, task, data, where)
        work = {"task": name, "settings": tuned.model_dump(mode="json", exclude={"name", "output"})}
        own = tuned.model_dump(mode="json", exclude=NOT_IN_TASK_DIGEST)
        own["encoder"].pop("folder")
        own["task"] = {k: v for k, v in own["task"].items() if k not in ("folder", "train", "dev", "test")}
        files = [_file_digest(path) for path in tuned.task.input_files() if path.is_file()]
        own = {"task": name, "settings": own, "files": files, **_weights(tuned.training.teacher)}
        units.append(plan.add("finetune", work, own, (model,), label))
    return Trial(cell, seed, tuple(units))


def _pretraining(study: Study, cell: Cell, seed: int, where: str) -> PretrainingSettings:
    """The settings of pretraining of a cell; name, folder and corpus are set where it is computed."""
    own = _nested(cell, "pretrain")
    tree = merge({"seed": seed}, study.base.get("pretrain") or {}, own)
    tree |= {"name": RUN, "output": ".", "corpus": "corpus"}
    length = {key: value for key, value in (own.get("training") or {}).items() if key in LENGTHS}
    if not length and study.budget is not None:
        length = study.budget.model_dump()
    if length:  # in place of the recipe's
        tree = merge(tree, {"training": dict.fromkeys(LENGTHS) | length})
    try:
        settings = resolve(PretrainingSettings, tree)
        if settings.model.preset is not None:
            from albertine.pretraining.run import check_new_encoder

            check_new_encoder(settings)
    except AlbertineError as error:
        raise _placed(error, where, "pretrain") from error
    return settings


def _tuning(
    plan: Plan, cell: Cell, seed: int, name: str, task: Mapping[str, Any], data: Path, where: str
) -> FinetuneSettings:
    """The settings of one task of a cell, with its files below `data`."""
    tree = merge({"seed": seed}, _with_task(plan.study, cell, task), {"name": RUN, "output": "."})
    tree = merge({"encoder": {"folder": "model"}}, tree)
    try:
        settings = below(resolve(FinetuneSettings, tree), data)
    except AlbertineError as error:
        raise _placed(error, f"{where}, task {name}", "finetune") from error
    if (own := settings.task.model_dump_json()) not in plan.read:
        if (absent := missing(settings.task)) is not None:
            raise DataError(absent, where=f"{where}, task {name}", remedy=DATA)
        plan.read.add(own)
    return settings


def _with_task(study: Study, cell: Cell, task: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of fine-tuning: the base, the task's own, the cell's changes."""
    return merge(study.base.get("finetune") or {}, task, _nested(cell, "finetune"))


def _nested(cell: Cell, part: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for setting, value in cell.changes.items():
        first, _, rest = str(setting).partition(".")
        if first == part:
            # The path is read by the function of the command line, and the value stays as the study has it.
            tree = merge(tree, at_end(apply_overrides({}, [f"{rest}=null"]), value))
    return tree


def _placed(error: AlbertineError, where: str, part: str) -> SettingsError:
    own = f", {error.where}" if error.where else ""
    return SettingsError(error.what, where=f"{where}, {part}{own}", remedy=error.remedy)


def _absent(path: Path, where: str) -> DataError:
    return DataError(f"there is no {path}", where=where, remedy=DATA)


def _corpus(plan: Plan, cell: Cell, data: Path) -> str | None:
    """The key of the corpus of a cell; None if neither the study nor the cell names a text."""
    base, own = plan.study.corpus, _nested(cell, "corpus")
    if base is None and not own:
        return None
    where = f"study {plan.study.name}, cell {cell.name}"
    tree = merge({} if base is None else base.model_dump(mode="json"), own)
    try:
        choice = resolve(Corpus, tree)
    except SettingsError as error:
        raise _placed(error, where, "corpus") from error
    options = choice.model_dump(mode="json", exclude={"text"})
    files, digests = _texts(choice.text, data, where)
    work = {"text": files, "names": list(map(str, choice.text)), **options}
    return plan.add("corpus", work, {"files": digests, **options}, (), cell.name)


def _texts(paths: Sequence[Path], data: Path, where: str) -> tuple[list[str], list[str]]:
    """Files and folders below `data`, and the digests of all files in them.

    Raises:
        DataError: one does not exist.
    """
    found = [data / path for path in paths]
    for path in found:
        if not path.exists():
            raise _absent(path, where)
    digests = [_file_digest(file) for path in found for file in _files(path)]
    return [str(path.absolute()) for path in found], digests


def _weights(*models: Path | None) -> dict[str, Any]:
    """The digests of the files of models that settings name by their folders; empty without any. A released
    model, or one of the hub, is identified by its name."""
    found = {
        str(model): [_file_digest(file) for file in files_of_model(model_folder(model))]
        for model in models
        if model is not None and user_path(model).exists()
    }
    return {"weights": found} if found else {}


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _check_distinct(plan: Plan) -> None:
    """
    Raises:
        SettingsError: two cells have the same settings.
    """
    seen: dict[tuple[str, ...], Cell] = {}
    for trial in plan.trials:
        if trial.seed != plan.study.seeds[0]:
            continue
        if (other := seen.setdefault(trial.units, trial.cell)) is not trial.cell:
            raise SettingsError(
                f"the cells `{other.name}` and `{trial.cell.name}` have the same settings",
                where=f"study {plan.study.name}",
                remedy="Take one of them out, or change a setting of it",
            )


def _file_digest(path: Path) -> str:
    about = path.stat()
    return _digest_of_bytes(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=1024)
def _digest_of_bytes(path: Path, size: int, changed: int) -> str:
    """The digest of a file that has not changed since."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(tree: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]
