"""Every family by its task, and from a model folder back to its family: what was scored is what is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from albertine.errors import ModelError
from albertine.interop.heads import Task, read_classifier, task_of
from albertine.interop.huggingface import ModelFolder
from albertine.interop.huggingface_config import our_flags
from albertine.model.task_model import TaskModel
from albertine.tasks import choose, classify, embed, generate, joint, relate, tag
from albertine.tasks.family import Family, Settling, Tuned
from albertine.text.tokenizer import Tokenizer


class Known(NamedTuple):
    """A family: what it does, in words, and the way from a folder to it."""

    words: str
    of_folder: Callable[[Tuned], Family]


FAMILIES: Mapping[Task, Known] = {
    "classify": Known("classify texts", classify.of_folder),
    "choose": Known("choose among options", choose.of_folder),
    "tag": Known("tag entities", tag.of_folder),
    "answer": Known("answer from passages", joint.of_folder),
    "relate": Known("find relations", relate.of_folder),
    "embed": Known("make vectors of texts", embed.of_folder),
    "generate": Known("generate texts", generate.of_folder),
}


def family_of(folder: ModelFolder, tokenizer: Tokenizer, where: Path) -> Family:
    """The family of the head that a folder holds, with the lengths, labels and thresholds it was scored with.

    Raises:
        ModelError: it holds no head of a task, or what it says of it does not fit.
    """
    if folder.left_aside:
        read_classifier(folder, where)  # which says what is there and cannot be computed
    return FAMILIES[task_of(folder) or "classify"].of_folder(Tuned(folder, tokenizer, where))


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
    was = "was not tuned for a task" if found is None else f"was tuned to {FAMILIES[found].words}"
    return ModelError(
        f"{was}, and cannot {FAMILIES[wanted].words}",
        where=where,
        remedy="Tune one for it: albertine finetune"
        if found is None
        else "Ask it for that, or name a model tuned for this",
    )
