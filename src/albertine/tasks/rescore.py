"""Evaluate a tuned run again, with the task and files of its settings and the model in its folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import torch

from albertine.core.devices import on_cpu, parse_device
from albertine.core.files import (
    is_run_checkpoint,
    os_errors_as_run_errors,
    run_of_checkpoint,
    user_path,
)
from albertine.core.number_formats import InferencePrecision
from albertine.core.released import model_name_help, suggestion
from albertine.core.settings import apply_overrides, merge, read_yaml, resolve
from albertine.errors import ModelError, SettingsError
from albertine.evaluation.metrics import score
from albertine.evaluation.runs import predictions_file, write_predictions, write_record
from albertine.interop.heads import max_length_of, pooling_of, task_of
from albertine.interop.huggingface.folders import read_folder
from albertine.interop.model_files import checkpoint_in
from albertine.interop.model_names import identify, model_folder, resolve_model
from albertine.model.task_model import TaskModel
from albertine.tasks.dataset_files import Data
from albertine.tasks.dataset_registry import described
from albertine.tasks.encoded import Encoded
from albertine.tasks.families import KINDS, family_of, saved, task_of_kind, tuned_model, wrong_task_error
from albertine.tasks.family import Family, OneLayer, TunedOnDev
from albertine.tasks.kind_settings import TaskChoice, named_or_file
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import Reader, once
from albertine.tokenizers.load import check_tokenizer, load_tokenizer

Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = ("dev", "test")


@dataclass(frozen=True)
class TunedRun:
    """A tuned model with the settings of its run and encoded data.

    Attributes:
        settings: of its run. model_folder: of the model that is evaluated. data: encoded for it.
        precision: of matrix products. folder: the current folder of the run, or of a model without a run; for
            a name that is no local folder, the one that a run of that name would have.
        layers: as of `read_folder`.
    """

    settings: FinetuneSettings
    model_folder: Path
    folder: Path
    data: Data
    precision: InferencePrecision
    layers: int | None = None

    @property
    def name(self) -> str:
        """The name of its run, with the step of a checkpoint."""
        step = f"-{self.model_folder.name}" if is_run_checkpoint(self.model_folder) else ""
        return f"{self.settings.name}{step}"

    @property
    def family(self) -> Family:
        return self.data.family

    @property
    def splits(self) -> dict[Split, Encoded]:
        """The examples of the files that the run has."""
        found: dict[Split, Encoded | None] = {"dev": self.data.dev, "test": self.data.test}
        return {name: data for name, data in found.items() if data is not None}

    def notes(self, splits: Sequence[Split]) -> list[str]:
        """The notes on the files of these splits besides their sizes, such as labels that no model can
        predict."""
        of_files = [note for note in self.data.notes if " examples, " in note]
        return [note for note in of_files if note.partition(": ")[0] in splits]


@dataclass(frozen=True)
class SplitResult:
    """The predictions of a model or an ensemble for a split.

    Attributes:
        outputs: from the family's `predict`. scores: empty if the file has no labels.
    """

    split: Split
    data: Encoded
    outputs: Any
    answers: Sequence[Any]
    scores: Mapping[str, float]


def open_run(
    folder: Path,
    assignments: Iterable[str] = (),
    *,
    task: Mapping[str, Any] | None = None,
    file: Path | None = None,
    dev: bool | None = False,
    precision: InferencePrecision | None = None,
    layers: int | None = None,
    read: Reader | None = None,
) -> TunedRun:
    """Open a run by its folder, or by that of a model in it. Its best model is used, or the last one if there
    was no dev set.

    Args:
        assignments: `key.sub=value` over the settings of the run, such as new paths of its files. A model
            folder without a run needs the files and columns of its task. No training file is read: the model
            folder has the classes, and without a run also the kind and lengths.
        task: settings of the part `task`, as a dictionary.
        file: own rows in place of the run's test file. Kind, lengths and the like of a run on a data set
            stay; columns have their default names unless they are set.
        dev: read the dev file of the run besides `file`; None: if the family tunes something on it, which an
            ensemble does anew.
        precision: default: as in training. layers: as of `read_folder`.
        read: reader of the data; `once()` reads the data that runs share only once.

    Raises:
        AlbertineError: settings, files or model are missing or do not fit together.
    """
    assignments, overrides = list(assignments), {"task": task} if task else {}
    named = bool(task) or file is not None or any(text.startswith("task.") for text in assignments)
    run, where = _places(folder, named=named)
    tokenizer, found = load_tokenizer(where), read_folder(where, layers=layers)
    known = family_of(found, tokenizer, where)
    tree: dict[str, Any] = {"name": folder.resolve().name, "encoder": {"folder": str(folder)}}
    tree["task"] = {"max_length": max_length_of(found), **known.settings}
    if run is not None:
        tree = read_yaml(run / "settings.yaml")
    overridden = apply_overrides(merge(tree, overrides), assignments)["task"]
    tree["task"] = before = saved(tree["task"], overridden)
    if file is not None and isinstance(before, Mapping):
        tree["task"] = {**_of_own_files(before, known), "test": file}
    settings = resolve(FinetuneSettings, apply_overrides(merge(tree, overrides), assignments), run or folder)
    if run is not None:
        settings = settings.model_copy(update={"task": _with_own_rows(settings.task, run)})
    if file is not None:
        stays = isinstance(known, TunedOnDev) if dev is None else dev
        _check_own(settings.task, before, dev=stays)
        own = {"test": file} if stays else {"test": file, "dev": None, "dev_share": None}
        settings = settings.model_copy(update={"task": settings.task.model_copy(update=own)})
    if (task_name := task_of_kind(settings.task)) != known.task:
        raise wrong_task_error(known.task, task_name, where)
    data = (read or once())(settings.task, tokenizer, known)
    named_folder = user_path(folder)
    here = run or (named_folder if named_folder.is_dir() else settings.folder)
    return TunedRun(settings, where, here, data, precision or settings.training.precision, layers)


def _of_own_files(task: Mapping[str, Any], known: Family) -> Mapping[str, Any]:
    """The saved settings of a task without its data set, with the kind and scoring rules of that data set."""
    if task.get("dataset") is None:
        return task
    of_files = ("dataset", "folder", "train", "dev", "test")  # have the columns of the data set
    own: dict[str, Any] = {name: x for name, x in task.items() if name not in of_files}
    own["kind"] = kind = known.settings.get("kind", own.get("kind"))
    of_data_set: dict[str, Any] = {}
    with suppress(SettingsError):  # its YAML file may have been deleted
        found = described(named_or_file(task["dataset"]))
        of_data_set = {"separator": found.separator}
        of_data_set["answer"] = {"no_answer": found.no_answer, "rules": found.rules}
        if isinstance(found.scores, tuple):
            of_data_set["similarity"] = dict(zip(("lowest", "highest"), found.scores, strict=True))
    fields = KINDS[kind].model_fields if kind in KINDS else {}
    return merge(own, {name: value for name, value in of_data_set.items() if name in fields})


def _check_own(task: TaskChoice, before: Any, *, dev: bool) -> None:
    """Check the settings of a task whose test file is own rows.

    Args:
        before: the task's settings in the run. dev: a dev set is needed.

    Raises:
        SettingsError: they name a data set, or the dev set of the run's data set is needed.
    """
    if task.dataset is not None:
        raise SettingsError(
            f"own rows are to be scored, and task.dataset={task.dataset}", remedy="Leave out one of them"
        )
    if dev and task.dev is None and before.get("dataset") is not None:
        raise SettingsError(
            f"the run was picked on the dev set of {before['dataset']}, which is not read beside own rows",
            remedy="Name a dev file too, with the same columns: task.dev=FILE",
        )


def _with_own_rows(task: TaskChoice, run: Path) -> TaskChoice:
    """A task with the paths of rows that were given in memory updated to the current folder of the run."""
    moved: dict[str, Any] = {}
    for split in ("train", *SPLITS):  # the dev set may be a share of the training file
        if paths := [_kept_or(path, run / "data" / path.name) for path in task.own(split)]:
            moved[split] = tuple(paths) if split == "train" else paths[0]
    return task.model_copy(update=moved)


def _kept_or(path: Path, kept: Path) -> Path:
    return kept if kept.is_file() and not os.path.exists(path) else path


def _places(folder: Path, *, named: bool) -> tuple[Path | None, Path]:
    """The run folder, if any, and the model folder of a path or name.

    Args:
        named: settings of a task are given; a model without a run needs them.
    """
    name, what, near = str(folder), "is no run of a task, so it has no files to score it on", ""
    if not named and identify(folder).kind == "hub":
        what = "is no folder here, and a model of the hub is no run of a task"
        near = suggestion(name, ())  # before a download that would be useless
    else:
        found = resolve_model(folder)
        model = model_folder(found)
        of_run = is_run_checkpoint(model)
        if not (model / "config.json").is_file() and not of_run and checkpoint_in(model) is None:
            raise ModelError(
                "is neither a run nor a model",
                where=folder,
                remedy=f"Name a folder with settings.yaml or config.json. {model_name_help(name)}",
            )
        own = run_of_checkpoint(model) if of_run else None
        run = found if model != found else own or model.resolve().parent
        if (run / "settings.yaml").is_file() and "task" in read_yaml(run / "settings.yaml"):
            return run, model
        if named:
            return None, model
    raise ModelError(
        what,
        where=folder,
        remedy=f"{near}A pretrained model is scored on text: albertine score {quote(name)} CORPUS; "
        f"a tuned one on the files of its task: albertine evaluate {quote(name)} task.dev=FILE",
    )


def model_of(run: TunedRun) -> TaskModel:
    """The model of a run, in evaluation mode.

    Raises:
        ModelError: it was tuned for another task.
    """
    where, family = run.model_folder, run.family
    found = read_folder(where, layers=run.layers)
    if (task := task_of(found)) != family.task:
        raise wrong_task_error(task, family.task, where)
    check_tokenizer(found.model.config, load_tokenizer(where), where)
    if isinstance(family, OneLayer):
        family = replace(family, pooling=pooling_of(found))
    found.model.precision = run.precision
    return tuned_model(found, family, where)


def predict_splits(
    run: TunedRun, splits: Sequence[Split], device: torch.device | str = "cpu"
) -> dict[Split, Any]:
    """The outputs of a run's model for those of the splits that the run has.

    Raises:
        SettingsError: there is no such device.
    """
    model = model_of(run).to(parse_device(str(device)))
    return {name: run.family.predict(model, run.splits[name]) for name in splits if name in run.splits}


def score_outputs(family: Family, split: Split, data: Encoded, outputs: Any) -> SplitResult:
    """Outputs for a split with their answers and scores."""
    answers = family.answers(outputs, data)
    scores = {} if data.targets is None else score(family.gold(data), answers, family.metrics)
    return SplitResult(split, data, outputs, answers, scores)


@on_cpu()
def evaluate_run(
    run: TunedRun, splits: Sequence[Split] = SPLITS, device: torch.device | str = "cpu"
) -> list[SplitResult]:
    """Evaluate a run again on its splits.

    Raises:
        SettingsError: the run has none of them. ModelError: as `model_of`.
    """
    outputs = predict_splits(run, splits, device).items()
    found = [score_outputs(run.family, name, run.splits[name], output) for name, output in outputs]
    if not found:
        raise SettingsError(
            f"has no {' and no '.join(splits)} file", where=run.name, remedy="Name one: --file FILE"
        )
    return found


def check_no_run(folder: Path) -> None:
    """
    Raises:
        SettingsError: the folder has the record of a run, which scores would replace.
    """
    if (folder / "settings.yaml").is_file() or (folder / "checkpoints").is_dir():
        raise SettingsError(
            "is a run, whose own record would be lost", where=folder, remedy="Name another folder: --output"
        )


def write_results(
    folder: Path, name: str, family: Family, found: Sequence[SplitResult], **facts: Any
) -> None:
    """Write predictions and a record into a folder, as a run does; predictions for other splits are deleted,
    as the record does not cover them.

    Args:
        facts: further entries of the record.

    Raises:
        SettingsError: it is the folder of a run. RunError: writing fails.
    """
    check_no_run(folder)
    with os_errors_as_run_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for split in {*SPLITS} - {one.split for one in found}:
            predictions_file(folder, split).unlink(missing_ok=True)
    for one in found:
        write_predictions(
            predictions_file(folder, one.split), family.lines(one.outputs, one.data, one.answers)
        )
    scores: dict[str, Any] = {one.split: dict(one.scores) for one in found}
    record = {
        "name": name,
        "task": family.task,
        "metrics": list(family.metrics),
        "labels": list(family.labels),
        "scores": scores.get("dev", {}),
        "test": scores.get("test", {}),
    }
    write_record(folder, record | facts)
