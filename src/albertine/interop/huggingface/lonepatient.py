"""Writing folders that lonePatient's albert_pytorch loads: config.json, a pickled table of tensors and the
vocabulary. They are read as any other folder (`huggingface.read_folder`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.errors import SettingsError
from albertine.interop.folder_writer import write_folder
from albertine.interop.huggingface.config import config_json, our_flags
from albertine.interop.huggingface.lonepatient_names import MAPPING, PROJECTION, lonepatient_plan
from albertine.interop.huggingface.names import KEYMAPS
from albertine.interop.keymap import to_theirs
from albertine.interop.save_checks import SavableTokenizer, parameters_of
from albertine.interop.tensorflow.layouts import foreign_features
from albertine.model.sharing import SharingPlan

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.model.model import Model

_WORD, _DECODER = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"


def save_lonepatient(
    model: Model,
    tokenizer: SavableTokenizer | None,
    folder: Path,
    *,
    extra_tensors: Mapping[str, Tensor] | None = None,
    extra_config: Mapping[str, Any] | None = None,
) -> None:
    """Write a folder for the `from_pretrained` of its modeling_albert.py or, with a model of brightmart's
    architecture, modeling_albert_bright.py; whole or not at all.

    Args:
        extra_tensors, extra_config: the head of a task by transformers' names, which are its own, and what
            its entries in config.json.

    Raises:
        SettingsError: its code does not compute this model. ModelError: the folder holds something else.
    """
    if found := unsupported_features(model):
        raise SettingsError(
            f"the layout lonepatient has no place for {', '.join(found)}",
            remedy="Leave --to out, and the model is written as it stands",
        )
    config, extra, tree = model.config, dict(extra_config or {}), config_json(model, tokenizer, "albert")
    bright = config.architecture == "brightmart"
    layers, groups, inner = _groups(config.plan) or (config.plan.depth, 1, 1)
    tree |= {"num_hidden_layers": layers, "num_hidden_groups": groups, "inner_group_num": inner}
    tree |= {"ln_type": "postln"} if bright else {}
    state = model.state_dict()
    rules = KEYMAPS["bright" if bright else "lonepatient"].entries(state, inner)
    tensors = to_theirs(rules, state) | _spare(model, bright)
    tensors |= {name: x.detach().float().cpu().contiguous() for name, x in (extra_tensors or {}).items()}
    if model.mlm is not None:
        tensors[_DECODER] = tensors[_WORD]  # which torch.save writes once
    if "classifier.bias" in tensors:
        tree["num_labels"] = len(tensors["classifier.bias"])
    tree |= extra | {"albertine": our_flags(tree) | our_flags(extra)}
    count = parameters_of(model, extra_tensors or {})
    write_folder(folder, tensors, tree, tokenizer, {}, parameters=count, pickled=True)


def _spare(model: Model, bright: bool) -> dict[str, Tensor]:
    """The redundant tensors of its checkpoints (`lonepatient_names.spare_tensors`)."""
    import torch

    config, mapping = model.config, model.encoder.embeddings.mapping
    if bright and mapping is not None:
        return {} if model.mlm is None else {PROJECTION: mapping.weight.detach().cpu().T.contiguous()}
    if mapping is not None:
        return {}
    size = config.hidden_size  # nothing is computed with it where E = H
    return {f"{MAPPING}weight": torch.eye(size), f"{MAPPING}bias": torch.zeros(size)}


def unsupported_features(model: Model) -> list[str]:
    """The features of a model that its code does not support."""
    config, found = model.config, foreign_features(model)
    if config.architecture not in ("albert", "bert", "brightmart"):
        return [f"the block of {config.architecture or 'no published model'}", *found]
    found += [] if model.lm is None else ["the head lm"]
    if config.architecture == "brightmart":
        one = config.plan == SharingPlan.shared(config.plan.depth)
        return found if one else [*found, "a plan other than one block for all depths"]
    if config.plan != config.plan.blocks or _groups(config.plan) is None:
        found.append("a plan other than groups of whole blocks")
    if config.has_mapping and config.embedding_size == config.hidden_size:
        found.append("a mapping of embeddings that are as wide as the hidden states")
    return found


def _groups(plan: SharingPlan) -> tuple[int, int, int] | None:
    """(layers, groups, inner) of a plan, as its code picks groups."""

    def picked(layers: int, groups: int, inner: int) -> SharingPlan:
        try:
            return lonepatient_plan(layers, groups, inner)
        except SettingsError:  # by rounding a group is never used, so that it is another plan than any
            return SharingPlan.shared(1)

    return plan.groups(picked)
