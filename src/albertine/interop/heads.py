"""Heads of fine-tuned tasks under the names that transformers gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from albertine.errors import ModelError
from albertine.interop.huggingface import ModelFolder

Kind = Literal["single", "multi", "score"]
_PROBLEMS: dict[Kind, str] = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "score": "regression",
}
_ARCHITECTURES = {"albert": "AlbertForSequenceClassification", "bert": "BertForSequenceClassification"}
_ANSWER_ARCHITECTURES = {"albert": "AlbertForQuestionAnswering", "bert": "BertForQuestionAnswering"}
_TAG_ARCHITECTURES = {"albert": "AlbertForTokenClassification", "bert": "BertForTokenClassification"}
_CHOICE_ARCHITECTURES = {"albert": "AlbertForMultipleChoice", "bert": "BertForMultipleChoice"}


@dataclass(frozen=True)
class ClassifierHead:
    """What a folder says of its sequence classifier.

    Attributes:
        weight, bias: (classes, H) and (classes,); one row for a score.
        labels: names of the classes; empty for a score.
    """

    weight: Tensor
    bias: Tensor
    labels: tuple[str, ...]
    kind: Kind


def head_tensors(weight: Tensor, bias: Tensor, *, answers: bool = False) -> dict[str, Tensor]:
    """A head's tensors by their foreign names; the one that answers questions has a name of its own."""
    name = "qa_outputs" if answers else "classifier"
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def classifier_config(model_type: str, kind: Kind, labels: Sequence[str], dropout: float) -> dict[str, Any]:
    """What config.json says of a classifier."""
    names = list(labels) or ["score"]
    tree: dict[str, Any] = {
        "problem_type": _PROBLEMS[kind],
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        "classifier_dropout_prob" if model_type == "albert" else "classifier_dropout": dropout,
    }
    if model_type in _ARCHITECTURES:
        tree["architectures"] = [_ARCHITECTURES[model_type]]
    return tree


def choice_config(model_type: str, dropout: float) -> dict[str, Any]:
    """What config.json says of a head that gives every option of a question one number."""
    tree: dict[str, Any] = {
        "classifier_dropout_prob" if model_type == "albert" else "classifier_dropout": dropout
    }
    if model_type in _CHOICE_ARCHITECTURES:
        tree["architectures"] = [_CHOICE_ARCHITECTURES[model_type]]
    return tree


def answer_config(model_type: str, dropout: float) -> dict[str, Any]:
    """What config.json says of a head with a start and an end number for every token."""
    tree: dict[str, Any] = {
        "classifier_dropout_prob" if model_type == "albert" else "classifier_dropout": dropout
    }
    if model_type in _ANSWER_ARCHITECTURES:
        tree["architectures"] = [_ANSWER_ARCHITECTURES[model_type]]
    return tree


def tagger_config(model_type: str, tags: Sequence[str], dropout: float) -> dict[str, Any]:
    """What config.json says of a head that gives every token a tag."""
    tree: dict[str, Any] = {
        "id2label": {str(i): name for i, name in enumerate(tags)},
        "label2id": {name: i for i, name in enumerate(tags)},
        "classifier_dropout_prob" if model_type == "albert" else "classifier_dropout": dropout,
    }
    if model_type in _TAG_ARCHITECTURES:
        tree["architectures"] = [_TAG_ARCHITECTURES[model_type]]
    return tree


def read_classifier(folder: ModelFolder, where: object) -> ClassifierHead:
    """The sequence classifier of a folder that was read.

    Raises:
        ModelError: it has none, or its labels do not fit it.
    """
    name = "qa_outputs" if "qa_outputs.weight" in folder.extra else "classifier"
    if not {f"{name}.weight", f"{name}.bias"} <= folder.extra.keys():
        raise ModelError(
            "has no head of a task",
            where=where,
            remedy="Fine-tune it first: albertine finetune",
        )
    weight, bias = (folder.extra[f"{name}.{part}"].float() for part in ("weight", "bias"))
    hidden = folder.model.config.hidden_size
    if weight.ndim != 2 or weight.shape[1] != hidden or bias.shape != weight.shape[:1]:
        raise ModelError(
            f"has a classifier of shape {list(weight.shape)} on an encoder of width {hidden}", where=where
        )
    kind = _kind(folder.config, len(bias))
    names = folder.config.get("id2label")
    table: Mapping[str, Any] = names if isinstance(names, dict) else {}
    labels = tuple(str(table.get(str(i), f"LABEL_{i}")) for i in range(len(bias)))
    return ClassifierHead(weight, bias, () if kind == "score" else labels, kind)


def _kind(tree: Mapping[str, Any], outputs: int) -> Kind:
    for kind, problem in _PROBLEMS.items():
        if tree.get("problem_type") == problem:
            return kind
    return "score" if outputs == 1 else "single"
