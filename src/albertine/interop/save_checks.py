"""Checks of a model and a tokenizer before a folder is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from albertine.errors import ModelError
from albertine.interop.huggingface.xlnet_names import MASK_EMBEDDING
from albertine.model.model import Model

COMPILED = "_orig_mod"
MERGE = "Merge its adapters first: model = model.merge_and_unload()"
REMEDIES = {
    "lora_": MERGE,
    "base_layer": MERGE,
    "parametrizations": "First call torch.nn.utils.parametrize.remove_parametrizations(layer, name)",
    "_mask": "First call torch.nn.utils.prune.remove(layer, name)",
}
"""Remedies by a part of the names of parameters that other programs add."""


class SavableTokenizer(Protocol):
    """The interface of a tokenizer that can be saved."""

    def save(self, folder: Path) -> None: ...


def plain_model(model: nn.Module, where: object) -> Model:
    """A model, out of what torch.compile made of it, whose parameters are those of its configuration.

    Raises:
        ModelError: it is none, or its layers were changed; the message has the remedy.
    """
    model = getattr(model, COMPILED, model)
    if not isinstance(model, Model):
        remedy = MERGE if hasattr(model, "merge_and_unload") else "Save the model that it was made of"
        raise ModelError(f"a {type(model).__name__} is no model of albertine", where=where, remedy=remedy)
    with torch.device("meta"):
        wanted = Model(model.config, model.heads).state_dict()
    found = plain_state(model)
    if odd := sorted(found.keys() - wanted.keys()) or sorted(wanted.keys() - found.keys()):
        name, much = odd[0], "more" if odd[0] in found else "less"
        remedy = next((r for part, r in REMEDIES.items() if part in name), "Undo what changed its layers")
        raise ModelError(
            f"the model has {much} than its configuration gives: {name}",
            where=where,
            remedy=f"{remedy}; nothing was written",
        )
    for name, x in found.items():
        if x.shape != wanted[name].shape:
            raise ModelError(
                f"{name} has shape {list(x.shape)}, its configuration gives {list(wanted[name].shape)}",
                where=where,
                remedy="Save it with the shape that it was made with; nothing was written",
            )
    return model


def plain_state(model: Model) -> dict[str, Tensor]:
    """The parameters by their names, also where torch.compile stands around a part."""
    return {name.replace(f"{COMPILED}.", ""): x for name, x in model.state_dict().items()}


def parameters_of(model: Model, head: Mapping[str, Tensor]) -> int:
    """How many parameters a model and the head of its task have, whatever else a layout stores: ties count
    once, and what nothing is computed with does not.

    Args:
        head: its tensors, by the names that transformers gives them.
    """
    own = sum(x.numel() for name, x in head.items() if name != MASK_EMBEDDING)
    return own + sum(x.numel() for x in model.parameters())


def check_finite(tensors: Mapping[str, Tensor], where: object) -> None:
    """
    Raises:
        ModelError: a value is NaN or infinite.
    """
    for name, x in tensors.items():
        # The sum is finite only if all values are (or huge ones cancel, hence the second look).
        if x.is_floating_point() and not torch.isfinite(x.sum()) and not bool(torch.isfinite(x).all()):
            raise ModelError(
                f"{name} holds values that are not finite",
                where=where,
                remedy="The training diverged; save the model of an earlier step. Nothing was written",
            )
