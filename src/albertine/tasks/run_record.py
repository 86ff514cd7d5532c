"""What a run is remembered by when it is done: its scores, and what it was made of, so that nothing is done
twice."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertine.core.files import MAX_JSON_BYTES, is_run_checkpoint, read_json, read_regular, run_of_checkpoint
from albertine.core.settings import read_yaml, with_absolute_paths
from albertine.errors import AlbertineError, ModelError, RunError
from albertine.evaluation.runs import RECORD, predictions_file, write_record
from albertine.interop.folder_writer import SAVED
from albertine.interop.huggingface.config import model_type
from albertine.interop.model_names import model_folder
from albertine.model.task_model import TaskModel
from albertine.tasks.family import Family
from albertine.tasks.settings import FinetuneSettings
from albertine.training.checkpoints import fingerprint_changes, refuse_changes
from albertine.training.job import Outcome
from albertine.training.resuming import onset_of_run

BESIDE_MODELS = frozenset({"README.md", "scores.json"})
"""Files beside a model that tell of it and decide nothing; a card may be written at any time."""
MODELS = ("best", "final")
"""Folders of a run's models."""


def remember(
    settings: FinetuneSettings,
    model: TaskModel,
    family: Family,
    outcome: Outcome,
    scores: Mapping[str, float],
    test: Mapping[str, float],
    notes: Iterable[str],
    made: Made,
) -> None:
    """Write the record of a run that is done into its folder."""
    task, config = settings.task, model.base.config
    write_record(
        settings.folder,
        {
            "name": settings.name,
            "task": family.task,
            "data": task.source,
            "seed": settings.seed,
            "metrics": list(family.metrics),
            "labels": list(family.labels),
            "scores": dict(scores),
            "test": dict(test),
            "notes": list(notes),
            "step": outcome.step,
            "tokens": outcome.tokens,
            "seconds": round(outcome.elapsed, 3),
            "encoder": str(settings.encoder.folder),
            "pretraining": pretraining(settings.encoder.folder),
            "model": {
                "kind": model_type(config),
                "parameters": sum(p.numel() for p in model.parameters()),
                "num_hidden_layers": config.num_hidden_layers,
                "hidden_size": config.hidden_size,
            },
            "stamp": made.stamp,
            "fingerprint": dict(made.fingerprint),
            "files": files_of(settings.folder),
        },
    )


def files_of(run: Path) -> dict[str, str]:
    """A digest of every file that a run writes of its models and predictions, by its path in the run's
    folder; files that others put beside them are not among them."""
    models = (path for name in MODELS for path in sorted((run / name).rglob("*")) if path.is_file())
    files = {path.relative_to(run).as_posix(): path for path in models}
    return {name: _digest(path) for name, path in files.items() if _of_model(name)} | predictions_of(run)


def predictions_of(run: Path) -> dict[str, str]:
    """The part of `files_of` that is predictions."""
    files = (predictions_file(run, split) for split in ("dev", "test"))
    return {path.name: _digest(path) for path in files if path.is_file()}


def models_in(record: Mapping[str, Any]) -> dict[str, str]:
    """The digests of the files of a run's models in its record."""
    return {name: digest for name, digest in record["files"].items() if _of_model(name)}


def _of_model(name: str) -> bool:
    """Whether a path in a run's folder is a file that saving one of its models writes."""
    folder, *parts = name.split("/")
    return folder in MODELS and bool(parts) and parts[0] in SAVED


def check_files(record: Mapping[str, Any], run: Path, *, predictions: bool = True) -> None:
    """Refuse a run that is done and whose models or predictions are no longer what it wrote; a model whose
    whole folder was removed is missing on purpose.

    Args:
        predictions: whether they are checked too; not where they are about to be replaced.

    Raises:
        RunError: a file differs or is missing.
    """
    for name, digest in (record["files"] if predictions else models_in(record)).items():
        path = run / name
        there = path.is_file()
        if (there and _digest(path) != digest) or (not there and path.parent.is_dir() and path.parent != run):
            raise RunError(
                "is not what the run wrote there" if there else "is missing",
                where=path,
                remedy="Put it back, or delete the folder of the run and run the command again",
            )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


@dataclass(frozen=True)
class Made:
    """What a run is made of.

    Attributes:
        stamp: as `stamp` gives it, from before the files were read.
        fingerprint: of its training, and of the dev file that picked the best model.
    """

    stamp: str
    fingerprint: Mapping[str, Any]


def finished(folder: Path) -> dict[str, Any] | None:
    """The record of a run that is done, whatever its settings and files are now; else None."""
    record = read_json(folder / RECORD)
    return record if record and (folder / "final").is_dir() else None


def remembered(settings: FinetuneSettings, stamped: str) -> dict[str, Any] | None:
    """The record of a run that is done with these settings, of files that hold what they held; or None."""
    record = finished(settings.folder)
    return record if record is not None and record.get("stamp") == stamped else None


def check_finished(record: Mapping[str, Any], made: Made, folder: Path) -> list[str]:
    """Refuse settings and files that would make another model than that of a run that is done.

    Returns:
        Notes for people: a changed dev file, which picks nothing any more, is only told.

    Raises:
        CheckpointError: lists what differs.
    """
    found = fingerprint_changes(record["fingerprint"], made.fingerprint)
    dev = [change for change in found if change.key == "dev" and None not in (change.before, change.now)]
    refuse_changes([change for change in found if change not in dev], folder)
    return ["dev: changed since the run, whose best model was picked by what it held then"] if dev else []


def stamp(settings: FinetuneSettings) -> str:
    """A name for what a run is made of: its settings, what the name of its data set stands for, and its files
    by path and content."""
    settings = with_absolute_paths(settings)
    facts = hashlib.blake2b(settings.model_dump_json().encode(), digest_size=16)
    if isinstance(settings.task.dataset, str):  # a name, by which another version may mean other files
        facts.update(settings.task.data.model_dump_json().encode())
    for path, content in contents(settings).items():
        facts.update(f"\n{path} {content}".encode())
    return facts.hexdigest()


def contents(settings: FinetuneSettings) -> dict[Path, str]:
    """A digest of every file that a run learns from or begins with, by its path."""
    found = {}
    teacher = settings.training.teacher
    models = (settings.encoder.folder, *([] if teacher is None else [teacher]))
    beside = (
        file for model in models for file in sorted(_where(model).glob("*")) if file.name not in BESIDE_MODELS
    )
    for path in (*settings.task.input_files(), *beside):
        if path.is_file():
            found[path] = _digest(path)
    return found


def _where(encoder: Path) -> Path:
    """The folder of the encoder; its name where it is gone since the run began."""
    try:
        return model_folder(encoder)
    except ModelError:
        return encoder


def pretraining(folder: Path) -> str | None:
    """What is known of how an encoder was trained: by the run it lies in, else by a line of its card."""
    folder = _where(folder).resolve()
    step = folder.name.replace("-", " ") if is_run_checkpoint(folder) else None
    home = (run_of_checkpoint(folder) if step else None) or folder.parent
    beside = folder / "settings.yaml"  # a released model has it with it
    try:
        run = read_yaml(beside if beside.is_file() else home / "settings.yaml")
    except AlbertineError:
        run = {}
    match run:
        case {"encoder": {"folder": before}, "task": {**task}}:
            files = task.get("train")
            own = ", ".join(map(str, files)) if isinstance(files, list) else files
            return f"tuned before on {task.get('dataset') or own}, from {before}{f', {step}' if step else ''}"
        case {"corpus": corpus, "objective": {"pairs": pairs, **objective}, "training": {**training}}:
            length = (f"{training[k]:,} {k}" for k in ("steps", "minutes") if training.get(k))
            minute = onset_of_run(home)
            read = [] if minute is None else [f"read by minute {minute:.1f}"]
            before = []
            match run:
                case {"model": {"start_from": str(begun)}}:
                    before.append(f"begun with {begun}")
            match objective:
                case {"distillation": {"teacher": str(teacher)}}:
                    before.append(f"taught by {teacher}")
            first = "" if step is None else f"{step} of "
            return f"corpus {corpus}, objective {pairs}, {first}{', '.join([*length, *read, *before])}"
    try:
        card = read_regular(folder / "README.md", MAX_JSON_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.strip() for line in card.splitlines() if re.search(r"(?i)\bpretrain", line)), None)
