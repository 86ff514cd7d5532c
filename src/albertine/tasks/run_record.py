"""The record of a finished fine-tuning run: its scores, and digests of its settings and files, by which a
later command recognises that it is done."""

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
from albertine.training.checkpoints import check_layout, fingerprint_changes, refuse_changes
from albertine.training.job import Outcome
from albertine.training.resuming import onset_of_run

BESIDE_MODELS = frozenset({"README.md", "scores.json"})
"""Files in a model folder that describe it and do not affect a run; a card may be written at any time."""
MODELS = ("best", "final")
"""Folders of a run's models."""


def write_run_record(
    settings: FinetuneSettings,
    model: TaskModel,
    family: Family,
    outcome: Outcome,
    scores: Mapping[str, float],
    test: Mapping[str, float],
    notes: Iterable[str],
    identity: RunIdentity,
) -> None:
    """Write the record of a finished run into its folder."""
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
            "stamp": identity.stamp,
            "fingerprint": dict(identity.fingerprint),
            "files": files_of(settings.folder),
        },
    )


def files_of(run: Path) -> dict[str, str]:
    """Digests of the files of a run's models and predictions, by their paths in the run's folder; without
    files that were added by others."""
    models = (path for name in MODELS for path in sorted((run / name).rglob("*")) if path.is_file())
    files = {path.relative_to(run).as_posix(): path for path in models}
    return {name: _digest(path) for name, path in files.items() if _of_model(name)} | predictions_of(run)


def predictions_of(run: Path) -> dict[str, str]:
    """The predictions among `files_of`."""
    files = (predictions_file(run, split) for split in ("dev", "test"))
    return {path.name: _digest(path) for path in files if path.is_file()}


def models_in(record: Mapping[str, Any]) -> dict[str, str]:
    """The digests of the files of a run's models in its record."""
    return {name: digest for name, digest in record["files"].items() if _of_model(name)}


def _of_model(name: str) -> bool:
    """Whether a path in a run's folder is a file of a saved model."""
    folder, *parts = name.split("/")
    return folder in MODELS and bool(parts) and parts[0] in SAVED


def check_files(record: Mapping[str, Any], run: Path, *, predictions: bool = True) -> None:
    """Check that the models and predictions of a finished run are unchanged; the whole folder of a model may
    have been removed.

    Args:
        predictions: check them too; False if they are about to be replaced.

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
class RunIdentity:
    """Digests of the settings and files of a run.

    Attributes:
        stamp: from `stamp`, before the files were read.
        fingerprint: of its training, and of the dev file that selected the best model.
    """

    stamp: str
    fingerprint: Mapping[str, Any]


def finished(folder: Path) -> dict[str, Any] | None:
    """The record of a finished run, even if its settings and files have changed; else None."""
    record = read_json(folder / RECORD)
    return record if record and (folder / "final").is_dir() else None


def matching_record(settings: FinetuneSettings, stamped: str) -> dict[str, Any] | None:
    """The record of a finished run with the same settings and unchanged files; else None."""
    record = finished(settings.folder)
    return record if record is not None and record.get("stamp") == stamped else None


def check_finished(record: Mapping[str, Any], identity: RunIdentity, folder: Path) -> list[str]:
    """Check that settings and files would give the same model as a finished run.

    Returns:
        A note if the dev file has changed, which does not affect the model any more.

    Raises:
        CheckpointError: lists what differs; or a development version began the run.
    """
    before = record.get("fingerprint", {})
    check_layout(before, identity.fingerprint, folder)
    found = fingerprint_changes(before, identity.fingerprint)
    dev = [change for change in found if change.key == "dev" and None not in (change.before, change.now)]
    refuse_changes([change for change in found if change not in dev], folder)
    return ["dev: changed since the run, whose best model was selected by its earlier content"] if dev else []


def stamp(settings: FinetuneSettings) -> str:
    """A digest of a run's settings, of the definition of its data set, and of its files by path and
    content."""
    settings = with_absolute_paths(settings)
    facts = hashlib.blake2b(settings.model_dump_json().encode(), digest_size=16)
    if isinstance(settings.task.dataset, str):  # its definition may change from version to version
        facts.update(settings.task.data.model_dump_json().encode())
    for path, content in contents(settings).items():
        facts.update(f"\n{path} {content}".encode())
    return facts.hexdigest()


def contents(settings: FinetuneSettings) -> dict[Path, str]:
    """Digests of the files of a run's data, encoder and teacher, by their paths."""
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
    """The folder of an encoder; its name if it was deleted after the run began."""
    try:
        return model_folder(encoder)
    except ModelError:
        return encoder


def pretraining(folder: Path) -> str | None:
    """A line on the training of an encoder: from the run that contains it, else from its card."""
    folder = _where(folder).resolve()
    step = folder.name.replace("-", " ") if is_run_checkpoint(folder) else None
    home = (run_of_checkpoint(folder) if step else None) or folder.parent
    beside = folder / "settings.yaml"  # of a released model
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
