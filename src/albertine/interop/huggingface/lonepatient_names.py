"""The names in lonePatient's albert_pytorch: those of the TensorFlow checkpoints that it reads, as PyTorch
has them, for Google's ALBERT and, with `layer_shared`, for brightmart's ("bright")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from albertine.errors import SettingsError
from albertine.interop.keymap import KeyMap, Rule
from albertine.interop.tensorflow.names import ALBERT_TF, BRIGHTMART
from albertine.model.sharing import SharingPlan

_WORDS = {
    "/": ".",
    "group_{": "group.{",
    "attention_1": "attention",
    "ffn_1": "ffn",
    "output_weights": "weight",
    "output_bias": "bias",
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
}
PROJECTION = "cls.predictions.project_layer.weight"
"""Projection of the masked-LM head of "bright", (E, H): a separate parameter there, which brightmart's own
code ties to the second factor of the word embeddings."""
MAPPING = "bert.encoder.embedding_hidden_mapping_in."


def _as_pytorch(rule: Rule) -> Rule:
    name = rule.theirs
    for theirs, pytorch in _WORDS.items():
        name = name.replace(theirs, pytorch)
    name += ".weight" if name.endswith(("_embeddings", "_embeddings_2")) else ""
    return replace(rule, theirs=name, transposed=False)


LONEPATIENT = KeyMap(tuple(map(_as_pytorch, ALBERT_TF.rules)), ALBERT_TF.fields)
BRIGHT = KeyMap(tuple(map(_as_pytorch, BRIGHTMART.rules)), BRIGHTMART.fields)


def layout_of(names: Iterable[str]) -> str | None:
    """ "lonepatient" or "bright"; None: other names."""
    marks = {"encoder.transformer.group.0.": "lonepatient", "encoder.layer_shared.": "bright"}
    return next((layout for name in names for mark, layout in marks.items() if mark in name), None)


def spare_tensors(layout: str, *, mapped: bool, mlm: bool) -> tuple[str, ...]:
    """Prefixes of redundant tensors: a mapping exists even if E = H and it is not used; a tied projection is
    the second factor of the word embeddings.

    Args:
        mapped: whether the encoder has a mapping. mlm: whether its masked-LM head is read, as it is tied.
    """
    unused = (MAPPING,) if layout == "lonepatient" and not mapped else ()
    return (*unused, PROJECTION) if layout == "bright" and mlm else unused


def lonepatient_plan(layers: int, groups: int, inner: int) -> SharingPlan:
    """The plan that its code runs, which picks the group in floating point.

    Raises:
        SettingsError: by rounding some group is never used (group 15 of 22 in 22 layers), so that its blocks
            cannot be determined by their order.
    """
    used = [int(layer / layers * groups) for layer in range(layers)]
    if set(used) != set(range(groups)):
        raise SettingsError(f"of {groups} groups in {layers} layers albert_pytorch leaves some out")
    blocks = tuple(group * inner + i for group in used for i in range(inner))
    return SharingPlan(blocks, blocks)
