"""RoBERTa and XLM-R, as transformers writes them, in the terms of BERT, which computes the same without the
first rows of the table of positions: those up to the id of padding, behind which a text begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from albertine.errors import SettingsError

if TYPE_CHECKING:
    from torch import Tensor

TYPES = ("roberta", "xlm-roberta")
_POSITIONS = "embeddings.position_embeddings.weight"
_NAMES = (
    ("roberta.", "bert."),
    ("lm_head.dense.", "cls.predictions.transform.dense."),
    ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("lm_head.", "cls.predictions."),
    # The classifier of texts has a pooler of its own, which computes what BERT's does.
    ("classifier.dense.", "bert.pooler.dense."),
    ("classifier.out_proj.", "classifier."),
)
"""Prefixes of tensor names, and those in BERT; the first match applies."""


def is_roberta(tree: Mapping[str, Any]) -> bool:
    """Whether a config.json is of RoBERTa or XLM-R."""
    return tree.get("model_type") in TYPES


def as_bert(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of the BERT that computes what this RoBERTa does; that of another model as it is.

    Raises:
        SettingsError: a head of words whose activation is not the encoder's, or a table without positions.
    """
    if not is_roberta(tree):
        return dict(tree)
    if tree.get("hidden_act", "gelu") != "gelu":
        raise SettingsError(
            f"hidden_act `{tree['hidden_act']}` is not supported in a RoBERTa, whose head has gelu"
        )
    positions = tree.get("max_position_embeddings", 512)
    if isinstance(positions, bool) or not isinstance(positions, int) or positions <= unused_rows(tree):
        raise SettingsError(f"max_position_embeddings {positions!r} leaves no position for a text")
    architectures = tree.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    return {
        **tree,
        "model_type": "bert",
        "max_position_embeddings": positions - unused_rows(tree),
        "architectures": [str(n).replace("XLMRoberta", "Roberta").replace("Roberta", "Bert") for n in names],
    }


def unused_rows(tree: Mapping[str, Any]) -> int:
    """How many rows of the table of positions no text has: those up to the id of padding.

    Raises:
        SettingsError: that is no id.
    """
    pad = tree.get("pad_token_id", 1)
    if isinstance(pad, bool) or not isinstance(pad, int) or not 0 <= pad < 1 << 24:
        raise SettingsError(f"pad_token_id must be a whole number, got {pad!r}")
    return pad + 1


def bert_names(names: Mapping[str, Any]) -> dict[str, str]:
    """Name in BERT → name in the file."""
    found: dict[str, str] = {}
    classifier = any(name.startswith("classifier.dense.") for name in names)
    for name in names:
        if classifier and "pooler." in name:  # beside that of the classifier it is not computed
            continue
        old, new = next((pair for pair in _NAMES if name.startswith(pair[0])), ("", ""))
        found[new + name.removeprefix(old)] = name
    return found


def without_unused(name: str, tensor: Tensor, rows: int) -> Tensor:
    """A tensor of BERT out of RoBERTa's."""
    return tensor[rows:] if name.endswith(_POSITIONS) else tensor


def bert_shape(name: str, shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """The shape of `without_unused`."""
    return (max(0, shape[0] - rows), *shape[1:]) if name.endswith(_POSITIONS) and shape else shape
