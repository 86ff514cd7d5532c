"""A task learned from a tuned model as well: what it says of every training row, beside the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from albertine.errors import ModelError, SettingsError
from albertine.interop.huggingface.folders import read_folder
from albertine.interop.model_location import model_folder
from albertine.model.task_model import TaskModel
from albertine.model.weights_digest import weights_digest
from albertine.objectives.distillation import soft_target_loss
from albertine.objectives.losses import Part
from albertine.tasks.classify import Classify
from albertine.tasks.encoded import IGNORED, TaskBatch
from albertine.tasks.families import family_of, in_words, tuned_model
from albertine.tasks.family import Family, OneLayer
from albertine.tasks.multiple_choice import Choose
from albertine.tasks.tag import Tag
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import has_vocabulary, load_tokenizer
from albertine.tokenizers.prune import same_vocabulary

Losses = Callable[[Any, Any], dict[str, Part]]


@dataclass(frozen=True)
class TaskTeacher:
    """A tuned model that a student of the same task is asked to agree with.

    Attributes:
        family: its own, whose labels are those of the task. model: frozen, in evaluation mode.
    """

    family: OneLayer
    model: TaskModel

    @cached_property
    def sha256(self) -> str:
        """Of its weights, head included."""
        return weights_digest(self.model)

    def losses(self, weight: float, temperature: float) -> Losses:
        """The loss function of a student: "task" by the labels, and "soft", `weight` times what it says
        otherwise than this teacher; its `correct` are the rows of which both say the same.

        A row is a text, of entities a token, of multiple choice an example, of a passage a window.
        """
        family = self.family

        def parts(model: Any, batch: TaskBatch) -> dict[str, Part]:
            mine = model(batch.packed)
            with torch.no_grad():
                its = self.model(batch.packed)
            loss, agreed = disagreement(family, mine, its, batch, temperature)
            return {"task": family.loss(mine, batch), "soft": Part(weight * loss, batch.predictions, agreed)}

        return parts


def open_task_teacher(name: Path, family: Family, tokenizer: Tokenizer, longest: int = 0) -> TaskTeacher:
    """The tuned model of a folder as a teacher of `family`.

    Args:
        longest: tokens of a row.

    Raises:
        SettingsError: it has fewer positions than `longest`.
        ModelError: it was tuned for something else, has other classes or another vocabulary, or what it says
            of a text is not so many numbers that another model could say too.
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
    crf = any(isinstance(one, Tag) and one.crf for one in (family, its))
    if crf or not isinstance(its, OneLayer):
        what = "a CRF, which judges whole sequences" if crf else "no layer of classes"
        raise ModelError(
            f"cannot teach a task of this kind: its head is {what}",
            where=name,
            remedy="Leave out training.teacher; `albertine distill` teaches the encoder",
        )
    if (its.labels, its.outputs) != (family.labels, getattr(family, "outputs", None)):
        raise ModelError(
            f"tells {_few(its.labels)}, and this task {_few(family.labels)}",
            where=name,
            remedy="Name a teacher that was tuned on the same classes in the same order",
        )
    assert isinstance(family, OneLayer)
    kinds = [one.kind for one in (its, family) if isinstance(one, Classify)]
    if len(set(kinds)) > 1:
        raise ModelError(
            f"was tuned with task.kind={kinds[0]}, and this task has {kinds[1]}: its numbers mean another "
            "thing",
            where=name,
            remedy="Name a teacher that was tuned for this kind",
        )
    places = found.model.config.longest_sequence
    if places is not None and longest > places:
        raise SettingsError(
            f"task.max_length {longest} is more than the {places} positions of the teacher",
            where=name,
            remedy=f"Set task.max_length={places} or less",
        )
    model = tuned_model(found, its, folder).requires_grad_(False)
    return TaskTeacher(family, model)


def disagreement(
    family: OneLayer, mine: Tensor, its: Tensor, batch: TaskBatch, temperature: float
) -> tuple[Tensor, Tensor]:
    """How far two models' numbers for the rows of a batch are from each other, summed over what is predicted:
    the soft target loss of classes, of each of several classes (their mean), of options, of the tags of
    tokens, and the mean of that of the two ends of an answer; of scores half the squared error.

    Returns:
        The sum, float32 with gradient, and how often both say the same, int64.
    """
    if isinstance(family, Classify) and family.kind == "score":
        gap = (mine - its).squeeze(-1)
        return gap.square().sum() / 2, (gap.abs() < 0.5).sum()
    if isinstance(family, Classify) and family.kind == "multi":
        both = [torch.stack([x, torch.zeros_like(x)], -1).flatten(0, 1) for x in (mine, its)]
        loss = soft_target_loss(both[0], both[1], temperature) / mine.shape[1]
        return loss, ((mine > 0) == (its > 0)).all(-1).sum()
    if isinstance(family, Choose):
        # Where an example has fewer options than others, the rest has no chance in both.
        mine, its = (
            pad_sequence(list(torch.split(x.squeeze(-1), list(batch.rows))), True, -1e4) for x in (mine, its)
        )
    elif isinstance(family, Tag):
        mine, its = (x[batch.targets != IGNORED] for x in (mine, its))
    elif family.per_token:
        return _ends(mine, its, batch, temperature)
    return soft_target_loss(mine, its, temperature), (mine.argmax(-1) == its.argmax(-1)).sum()


def _ends(mine: Tensor, its: Tensor, batch: TaskBatch, temperature: float) -> tuple[Tensor, Tensor]:
    """Of the first and the last token of an answer, chances over the tokens of each window."""
    loss, agreed = torch.zeros((), device=mine.device), torch.zeros((), dtype=torch.int64, device=mine.device)
    windows = (torch.split(x, list(batch.packed.lengths)) for x in (mine, its))
    for one_L2, other_L2 in zip(*windows, strict=True):
        loss = loss + soft_target_loss(one_L2.T, other_L2.T, temperature) / 2
        agreed = agreed + (one_L2.argmax(0) == other_L2.argmax(0)).all()
    return loss, agreed


def _few(labels: tuple[str, ...]) -> str:
    return f"{len(labels)} classes ({', '.join(labels[:4])}{', …' if len(labels) > 4 else ''})"
