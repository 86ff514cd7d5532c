"""What a run is remembered by when it is done: its scores, and what it was made of, so that nothing is done
twice."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from albertine.errors import AlbertineError, ModelError
from albertine.evaluation.runs import RECORD, write_record
from albertine.interop.huggingface_config import model_type
from albertine.interop.places import model_folder
from albertine.model.task_model import TaskModel
from albertine.settings import read_yaml
from albertine.tasks.family import Family
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.sources import SPLITS
from albertine.training.branching import onset_of
from albertine.training.job import Outcome


def remember(
    settings: FinetuneSettings,
    model: TaskModel,
    family: Family,
    outcome: Outcome,
    scores: Mapping[str, float],
    test: Mapping[str, float],
    notes: Iterable[str],
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
            "stamp": stamp(settings),
        },
    )


def remembered(settings: FinetuneSettings) -> dict[str, Any] | None:
    """The record of a run that is done with these settings, from files that have not changed since; else
    None."""
    try:
        record = json.loads((settings.folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(record, dict) and record.get("stamp") == stamp(settings)
    return record if known and settings.folder.joinpath("final").is_dir() else None


def stamp(settings: FinetuneSettings) -> str:
    """A name for what a run is made of: its settings, and its files by path, size and time of change."""
    task = settings.task
    own = [path for split in SPLITS for path in task.own(split)]
    data = sorted(task.folder.rglob("*")) if task.folder is not None else own
    facts = [settings.model_dump_json()]
    for path in (*data, *sorted(_where(settings.encoder.folder).glob("*"))):
        if path.is_file():
            about = path.stat()
            facts.append(f"{path} {about.st_size} {about.st_mtime_ns}")
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=16).hexdigest()


def _where(encoder: Path) -> Path:
    """The folder of the encoder; its name where it is gone since the run began."""
    try:
        return model_folder(encoder)
    except ModelError:
        return encoder


def pretraining(folder: Path) -> str | None:
    """What is known of how an encoder was trained: by the run it lies in, else by a line of its card."""
    folder = _where(folder).resolve()
    beside = folder / "settings.yaml"  # a released model has it with it
    try:
        run = read_yaml(beside if beside.is_file() else folder.parent / "settings.yaml")
    except AlbertineError:
        run = {}
    match run:
        case {"encoder": {"folder": before}, "task": {**task}}:
            files = task.get("train")
            own = ", ".join(map(str, files)) if isinstance(files, list) else files
            return f"tuned before on {task.get('dataset') or own}, from {before}"
        case {"corpus": corpus, "objective": {"pairs": pairs}, "training": {**training}}:
            length = (f"{training[k]:,} {k}" for k in ("steps", "minutes") if training.get(k))
            minute = onset_of(folder.resolve().parent)
            read = [] if minute is None else [f"read from minute {minute:.1f} on"]
            return f"corpus {corpus}, objective {pairs}, {', '.join([*length, *read])}"
    try:
        card = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.strip() for line in card.splitlines() if re.search(r"(?i)\bpretrain", line)), None)
