"""From a model folder back to the family that it was tuned with: what was scored is what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albertine.errors import ModelError
from albertine.inference.embedding import how_of
from albertine.inference.relations import THRESHOLDS
from albertine.inference.search import Search
from albertine.inference.windows import Reading
from albertine.interop.heads import Task, labels_in, length_of, pooling_of, read_classifier, task_of
from albertine.interop.huggingface import ModelFolder
from albertine.interop.huggingface_config import our_flags
from albertine.model.task_model import TaskModel
from albertine.tasks.answer import Answer
from albertine.tasks.choose import Choose
from albertine.tasks.classify import Classify
from albertine.tasks.embed import Embed
from albertine.tasks.family import Family, Settling
from albertine.tasks.generate import Read, Room, Write
from albertine.tasks.joint import AnswerOrNot
from albertine.tasks.relate import Relate
from albertine.tasks.tag import Tag
from albertine.text.tokenizer import Tokenizer

FOREIGN_WINDOW = 384
"""Tokens of a window where a folder does not say: what most models that answer were tuned with."""
IN_WORDS: Mapping[Task, str] = {
    "classify": "classify texts",
    "choose": "choose among options",
    "tag": "tag entities",
    "answer": "answer from passages",
    "relate": "find relations",
    "embed": "make vectors of texts",
    "generate": "generate texts",
}


def family_of(folder: ModelFolder, tokenizer: Tokenizer, where: Path) -> Family:
    """The family of the head that a folder holds, with the lengths, labels and thresholds it was scored with.

    Raises:
        ModelError: it holds no head of a task, or what it says of it does not fit.
    """
    if folder.left_aside:
        read_classifier(folder, where)  # which says what is there and cannot be computed
    told, length = our_flags(folder.config), length_of(folder)
    match task_of(folder):
        case "choose":
            return Choose(length, pooling=pooling_of(folder))
        case "tag":
            crf = any(name.startswith("crf.") for name in folder.extra)
            return Tag(read_classifier(folder, where).labels, length, crf)
        case "answer":
            joint = any(name.startswith("answer_class.") for name in folder.extra)
            reading = _reading(told.get("reading"), folder.model.config.max_position_embeddings)
            return AnswerOrNot(reading=reading) if joint else Answer(reading=reading)
        case "relate":
            return Relate(labels_in(folder.config), length, _thresholds(told, where))
        case "embed":
            how = how_of(folder, where)
            return Embed("cosine", how.max_length or length, how.pooling, how.normalize)
        case "generate":
            return _written(told, tokenizer, where)
        case _:
            head = read_classifier(folder, where)
            return Classify(head.kind, head.labels, (), length, pooling=head.pooling)


def tuned_model(folder: ModelFolder, family: Family, where: Path) -> TaskModel:
    """The model of a folder with its head, on the device of its encoder, in evaluation mode.

    Raises:
        ModelError: the head is not that of the family.
    """
    model = family.build(folder.model, 0.0, 0)
    model.load_head(folder.extra, where)
    if isinstance(family, Settling):
        family.recall(our_flags(folder.config))
    return model.to(folder.model.device).eval()


def asked_for(found: Task | None, wanted: Task, where: Path) -> ModelError:
    """The error of asking a model for what it was not made for."""
    was = "was not tuned for a task" if found is None else f"was tuned to {IN_WORDS[found]}"
    return ModelError(
        f"{was}, and cannot {IN_WORDS[wanted]}",
        where=where,
        remedy="Tune one for it: albertine finetune"
        if found is None
        else "Ask it for that, or name a model tuned for this",
    )


def _reading(told: object, positions: int) -> Reading:
    names = vars(Reading())
    given: Mapping[str, Any] = told if isinstance(told, dict) else {}
    sizes = {name: v for name, v in given.items() if name in names and isinstance(v, int) and v > 0}
    return Reading(**({"max_length": min(FOREIGN_WINDOW, positions)} | sizes))


def _thresholds(told: Mapping[str, Any], where: Path) -> tuple[float, float]:
    match told.get("thresholds", THRESHOLDS):
        case [int() | float() as first, int() | float() as last]:
            return float(first), float(last)
        case other:
            raise ModelError(f"has thresholds {other!r:.60}, not two numbers", where=where)


def _written(told: Mapping[str, Any], tokenizer: Tokenizer, where: Path) -> Family:
    source, target = told.get("source_length"), told.get("target_length")
    if not (isinstance(source, int) and isinstance(target, int)):
        raise ModelError("does not tell the lengths that it generates with", where=where)
    beams = told.get("beams")
    search = Search(beams if isinstance(beams, int) else 2, target)
    room = Room(source, target)
    if told.get("reads") is True:
        return Read(tokenizer, room, search, always=told.get("always") is True)
    return Write(tokenizer, room, search)
