"""A tuned model with its head as a torch module for padded batches, for training loops of users."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from albertine.core.precision import without_autocast
from albertine.errors import InputError, ModelError
from albertine.interop.exported_folder import is_exported
from albertine.interop.heads import task_of
from albertine.interop.huggingface.folders import read_folder
from albertine.interop.model_names import model_folder
from albertine.interop.save_checks import SavableTokenizer
from albertine.model.crf import CrfTagger
from albertine.model.model import Model
from albertine.model.pair_head import Comparer
from albertine.model.task_model import TaskModel
from albertine.tasks.encoded import IGNORED
from albertine.tasks.families import (
    FAMILIES,
    family_of,
    in_words,
    kinds_of,
    lacks_head,
    tuned_model,
    wrong_task_error,
)
from albertine.tasks.family import Family
from albertine.tasks.padded import PaddedBatch, PaddedFamily, TaskOutput
from albertine.tokenizers.load import check_tokenizer, load_tokenizer


class TrainableTask(nn.Module):
    """A tuned model with its head. It computes what `Predictor` computes, with gradients.

    Args:
        padded: the call with padded batches of its family.

    Attributes:
        task: "classify", "choose", "tag", "answer" or "embed". model: encoder and head.
        labels: names of the classes or tags in the order of their numbers; empty where there are none.
    """

    def __init__(self, model: TaskModel, family: Family, padded: type[PaddedFamily]) -> None:
        super().__init__()
        self.model, self.family = model, family
        self.task, self.labels = family.task, family.labels
        self._padded = padded

    @property
    def base(self) -> Model:
        """The encoder, with the pretraining heads that the task uses."""
        return self.model.base

    @without_autocast
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Any = None,
        *,
        start_positions: Any = None,
        end_positions: Any = None,
    ) -> TaskOutput:
        """Logits of a padded batch and, with labels, the loss of the model's task.

        Args:
            input_ids, attention_mask, token_type_ids: (B, L), as a tokenizer pads them, on either side; of
                multiple choice (B, options, L), where an option with a mask of zeros does not exist; of
                similarity (B, 2, L), or (B, L) for vectors alone.
            labels: one class (B,) int64, -100 for a text that is left out of the loss; several classes
                (B, classes), 0 or 1; a score (B,), finite; the number of the right option (B,); tags (B, L),
                -100 where nothing is learned; similarity (B,) from 0 to 1.
            start_positions, end_positions: of answers, instead of labels: columns (B,) of the first and the
                last token; both are that of [CLS] where the text does not answer.

        Raises:
            InputError: tensors that do not fit the model or each other, or labels out of range.
            SettingsError: a row has more tokens than the model has positions.
        """
        given = {"labels": labels, "start_positions": start_positions, "end_positions": end_positions}
        given = {name: value for name, value in given.items() if value is not None}
        self._check_names(given.keys())
        _check_tensors(input_ids, attention_mask, token_type_ids)
        if input_ids.dim() not in self._padded.dims:
            raise InputError(
                f"input_ids has the shape {tuple(input_ids.shape)}", remedy=f"Give it as {self._padded.shape}"
            )
        if token_type_ids is None and isinstance(self.model, Comparer):
            raise InputError(
                "this model compares two texts, which token_type_ids separates",
                remedy="Give token_type_ids: 0 at the tokens of the first text, 1 at those of the second",
            )
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        for name, tensor in (("attention_mask", mask), ("token_type_ids", types)):
            if tensor.shape != input_ids.shape:
                shapes = f"{tuple(tensor.shape)} and input_ids {tuple(input_ids.shape)}"
                raise InputError(f"{name} has the shape {shapes}", remedy="Give both in one shape")
        padded = self._padded(self.model, self.family)
        return padded.outputs(PaddedBatch(input_ids, mask, types), given)

    @torch.no_grad()
    def tags(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """The tag number of every token (B, L) int64, the best sequence where the model has a CRF; -100 at
        padding.

        Raises:
            ModelError: the model was not tuned to tag. InputError: as `forward`.
        """
        if self.task != "tag":
            raise wrong_task_error(self.task, "tag", Path("model"))
        _check_tensors(input_ids, attention_mask, token_type_ids)
        model = self.model
        packed, index = self._padded(model, self.family).packed(input_ids, attention_mask, token_type_ids)
        found = model.tags(packed) if isinstance(model, CrfTagger) else model(packed).argmax(-1)
        empty = torch.full((input_ids.numel(),), IGNORED, dtype=torch.int64, device=found.device)
        return empty.index_copy(0, index, found).view_as(input_ids)

    def _check_names(self, given: Set[str]) -> None:
        own = self._padded.label_names
        if given - own or 0 < len(given) < len(own):
            raise InputError(
                f"a model tuned to {in_words(self.task)} does not learn from {', '.join(sorted(given))}",
                remedy=f"Give {' and '.join(sorted(own, reverse=True))}",
            )


def _check_tensors(input_ids: object, attention_mask: object, token_type_ids: object) -> None:
    """Raises InputError where an input is a list, an array or something else that is no tensor."""
    given = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
    for name, value in given.items():
        if not isinstance(value, Tensor) and (value is not None or name == "input_ids"):
            raise InputError(
                f"{name} is of the type {type(value).__name__}", remedy="Give a tensor: torch.tensor(…)"
            )


def load_task(what: str | Path) -> TrainableTask:
    """A tuned model with its head, float32 and in evaluation mode: see `albertine.load_task`."""
    folder = model_folder(what)
    if is_exported(folder):
        raise ModelError(
            "is an exported graph, which has no gradients",
            where=folder,
            remedy="Name the model folder that it was exported from, or use albertine.Predictor",
        )
    found, tokenizer = read_folder(folder), load_tokenizer(folder)
    check_tokenizer(found.model.config, tokenizer, folder)
    headless = task_of(found) is None and not found.extra and not found.left_aside
    if headless and not lacks_head(found, folder):
        raise ModelError(
            "was not tuned for a task, and has no head",
            where=what,
            remedy="albertine.load gives the encoder; albertine.finetune tunes it",
        )
    family = family_of(found, tokenizer, folder)
    known = FAMILIES[family.task]
    if known.padded is None:
        kinds = " or ".join(kind for task in known.kinds for kind in kinds_of(task))
        raise ModelError(
            f"was tuned to {known.words}, which takes more than padded rows and labels",
            where=what,
            remedy=f"albertine.finetune with task.kind={kinds} trains it, and albertine.Predictor runs it",
        )
    model = tuned_model(found, family, folder)
    model.dropout = found.model.config.classifier_dropout_prob
    return TrainableTask(model, family, known.padded()).eval()


def save_task(task: TrainableTask, tokenizer: SavableTokenizer | None, folder: Path) -> None:
    """Write a model folder with the head of its task: see `albertine.save`."""
    from albertine.tasks.finetune import save_tuned

    save_tuned(task.model, tokenizer, task.family, folder)
