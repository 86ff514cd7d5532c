"""Distillation in fine-tuning: a student learns from the labels and from the outputs of a tuned teacher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from albertine.errors import ModelError, SettingsError
from albertine.interop.huggingface.folders import read_folder
from albertine.interop.model_names import model_folder
from albertine.model.task_model import TaskModel
from albertine.model.weights_digest import weights_digest
from albertine.objectives.losses import Part
from albertine.tasks.encoded import TaskBatch
from albertine.tasks.families import family_of, in_words, tuned_model
from albertine.tasks.family import Family, OneLayer
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import has_vocabulary, load_tokenizer
from albertine.tokenizers.prune import same_vocabulary

Losses = Callable[[Any, Any], dict[str, Part]]


@dataclass(frozen=True)
class TaskTeacher:
    """The teacher of a student of the same task.

    Attributes:
        family: of the student. model: frozen, in evaluation mode.
    """

    family: OneLayer
    model: TaskModel

    @cached_property
    def sha256(self) -> str:
        """The digest of its weights, head included."""
        return weights_digest(self.model)

    def losses(self, weight: float, temperature: float) -> Losses:
        """The loss function of a student: "task" by the labels, and "soft", `weight` times the distillation
        loss of the family; its `correct` counts the predictions on which both models agree.

        A prediction is that of a text; for entities of a token, for multiple choice of an example, for
        answers of a window.
        """
        family = self.family

        def parts(model: Any, batch: TaskBatch) -> dict[str, Part]:
            student = model(batch.packed)
            with torch.no_grad():
                teacher = self.model(batch.packed)
            loss, agreed = family.soft_loss(student, teacher, batch, temperature)
            soft = Part(weight * loss, batch.predictions, agreed)
            return {"task": family.loss(student, batch), "soft": soft}

        return parts


def open_task_teacher(name: Path, family: Family, tokenizer: Tokenizer, longest: int = 0) -> TaskTeacher:
    """The tuned model of a folder as a teacher of `family`.

    Args:
        longest: tokens of a row.

    Raises:
        SettingsError: the teacher has fewer positions than `longest`.
        ModelError: it was tuned for another task or kind, has other classes or another vocabulary, or its
            head cannot be distilled.
    """
    folder = model_folder(name)
    found = read_folder(folder)
    vocabulary = load_tokenizer(folder) if has_vocabulary(folder) else tokenizer
    its = family_of(found, vocabulary, folder)
    if not same_vocabulary(vocabulary, tokenizer):
        raise ModelError(
            "has another vocabulary than the student, and both read the same rows of tokens",
            where=name,
            remedy="Begin with a model of the teacher's vocabulary, such as one of `albertine distill`",
        )
    if type(its) is not type(family):
        raise ModelError(
            f"was tuned to {in_words(its.task)}, and this task is to {in_words(family.task)}",
            where=name,
            remedy="Name a teacher that was tuned for this task",
        )
    obstacle = family.not_distillable or its.not_distillable
    if obstacle is not None or not isinstance(family, OneLayer) or not isinstance(its, OneLayer):
        raise ModelError(
            f"cannot teach a task of this kind: its head is {obstacle}",
            where=name,
            remedy="Leave out training.teacher; `albertine distill` teaches the encoder",
        )
    if (its.labels, its.outputs) != (family.labels, family.outputs):
        raise ModelError(
            f"has {_shortened(its.labels)}, and this task {_shortened(family.labels)}",
            where=name,
            remedy="Name a teacher that was tuned on the same classes in the same order",
        )
    kinds = [one.settings.get("kind") for one in (its, family)]
    if kinds[0] != kinds[1]:
        raise ModelError(
            f"was tuned with task.kind={kinds[0]}, and this task has {kinds[1]}: its outputs mean something "
            "else",
            where=name,
            remedy="Name a teacher that was tuned for this kind",
        )
    positions = found.model.config.max_sequence_length
    if positions is not None and longest > positions:
        raise SettingsError(
            f"task.max_length {longest} is more than the {positions} positions of the teacher",
            where=name,
            remedy=f"Set task.max_length={positions} or less",
        )
    model = tuned_model(found, its, folder).requires_grad_(False)
    return TaskTeacher(family, model)


def _shortened(labels: tuple[str, ...]) -> str:
    return f"{len(labels)} classes ({', '.join(labels[:4])}{', …' if len(labels) > 4 else ''})"
