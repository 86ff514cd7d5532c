"""Checkpoints of runs as models: RUN/checkpoints/step-N, read as the model folder that the run would have
written at that step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albertine.core.files import run_of_checkpoint
from albertine.errors import CheckpointError, ModelError, SettingsError
from albertine.interop.heads import objective_config, task_in, with_head_keys, without_head_keys
from albertine.interop.huggingface.config import config_json, model_type, our_flags
from albertine.interop.huggingface.xlnet import attention_type
from albertine.interop.model_folder import ModelFolder
from albertine.interop.save_checks import check_finite
from albertine.interop.weights import read_json
from albertine.model.config import EncoderConfig
from albertine.model.model import HEADS, Model
from albertine.model.task_model import fold_whitening
from albertine.training.checkpoints import AVERAGE, read, read_state

WORDS = "encoder.embeddings.word.weight"
"""Marks the prefix of the encoder among the tensors of a training job."""


def encoder_of_checkpoint(folder: Path) -> EncoderConfig:
    """The configuration of the encoder in a checkpoint.

    Raises:
        ModelError: its fingerprint has none, or it is damaged.
    """
    return _encoder(_state(folder).get("fingerprint", {}), folder)[0]


def checkpoint_config(folder: Path) -> dict[str, Any]:
    """The config.json that the run of a checkpoint would have written beside its model.

    Raises:
        ModelError: its fingerprint has none, or it is damaged; or of a tuned one, its run has saved no model
            yet.
    """
    state = _state(folder)
    config, heads = _encoder(state.get("fingerprint", {}), folder)
    if heads is None:
        return _tuned_config(folder)
    with torch.device("meta"):
        return _pretrained_config(Model(config, heads), state)


def read_run_checkpoint(folder: Path) -> ModelFolder:
    """The model in a checkpoint: the average of the weights where the run keeps one, as in its final model,
    and the head of its task. Of similarity, and of answers that may be missing, the encoder alone: what was
    chosen for the saved models need not fit the weights of another step.

    Raises:
        ModelError: it is damaged, of another version, or its weights are not finite; or of a tuned one, its
            run has saved no model yet, by which the head is described.
    """
    try:
        found = read(folder)
    except CheckpointError as error:
        raise ModelError(error.what, where=error.where, remedy=error.remedy) from error
    config, heads = _encoder(found.state.get("fingerprint", {}), folder)
    averages = {n.rsplit("/", 1)[0]: x for n, x in found.optimizer.items() if n.endswith(f"/{AVERAGE}")}
    tensors = {name: averages.get(name, x) for name, x in found.model.items()}
    prefix = next((name.removesuffix(WORDS) for name in tensors if name.endswith(WORDS)), None)
    if prefix is None:
        raise ModelError("holds no encoder", where=folder)
    own = {n.removeprefix(prefix): x for n, x in tensors.items() if n.startswith(prefix)}
    tuned = heads is None
    with torch.device("meta"):
        model = Model(config, _heads_in(own) if heads is None else heads)
    wanted = model.state_dict()
    if (
        odd := sorted(wanted.keys() ^ own.keys())
        if not tuned or prefix
        else sorted(wanted.keys() - own.keys())
    ):
        raise ModelError(f"does not fit its own description: {odd[0]}", where=folder)
    own = {name: x.float().clone() for name, x in own.items() if name in wanted}
    extra = {n: x.float().clone() for n, x in tensors.items() if tuned and not n.startswith(prefix)}
    check_finite({**own, **extra}, folder)
    model.load_state_dict(own, assign=True)
    model.requires_grad_(True).eval()
    tree = _tuned_config(folder) if tuned else _pretrained_config(model, found.state)
    head = fold_whitening(extra) if not tuned or task_in(tree) is not None else {}
    return ModelFolder(model, tree, head, (), model_type(config))


def _state(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = read_state(folder)
    except CheckpointError as error:
        raise ModelError(error.what, where=error.where, remedy=error.remedy) from error
    return found


def _encoder(fingerprint: Mapping[str, Any], folder: Path) -> tuple[EncoderConfig, frozenset[str] | None]:
    """The encoder in a fingerprint, and its heads; None for a tuned one, which does not record them."""
    tree = fingerprint.get("model")
    if not isinstance(tree, dict):
        raise ModelError(
            "has no configuration of its model",
            where=folder,
            remedy="Name best/ or final/ of its run instead",
        )
    heads = tree.get("heads")
    known = frozenset(map(str, heads)) & HEADS if isinstance(heads, list) else None
    try:
        return EncoderConfig.from_dict({name: x for name, x in tree.items() if name != "heads"}), known
    except SettingsError as error:
        raise ModelError(f"has an invalid encoder configuration: {error}", where=folder) from error


def _heads_in(names: Mapping[str, Tensor]) -> frozenset[str]:
    """The heads of a tuned encoder by the names of its parameters."""
    return frozenset(head for head in ("pooler", "mlm", "lm") if any(n.startswith(f"{head}.") for n in names))


def _pretrained_config(model: Model, state: Mapping[str, Any]) -> dict[str, Any]:
    kind = model_type(model.config)
    kind = "albertine" if model.lm is not None and kind != "xlnet" else kind
    tree = config_json(model, None, kind)
    flags = our_flags(tree) | our_flags(objective_config(_objective(state)))
    if kind == "xlnet":
        tree["attn_type"] = attention_type(flags)
    return tree | ({"albertine": flags} if flags else {})


def _objective(state: Mapping[str, Any]) -> dict[str, Any]:
    """The objective of a run at this state, with the share of causal samples of its stage."""
    fingerprint, number = state.get("fingerprint", {}), (state.get("cursor") or {}).get("stage")
    objective: dict[str, Any] = fingerprint.get("objective", {})
    stage = {} if number is None else fingerprint["stages"][number]
    share = 1.0 if stage.get("causal") else stage.get("causal_share", objective.get("causal_share", 0.0))
    return {**objective, "causal_share": share}


def _tuned_config(folder: Path) -> dict[str, Any]:
    """The config.json of the models that the run of a tuned checkpoint has saved, whose head is the same."""
    run = run_of_checkpoint(folder)
    for name in ("best", "final"):
        if run is not None and (run / name / "config.json").is_file():
            tree = with_head_keys(read_json(run / name / "config.json"))
            # How vectors are made, and the threshold for no answer, belong to the weights of that model.
            chosen = task_in(tree) == "embed" or "threshold" in our_flags(tree)
            return without_head_keys(tree) if chosen else tree
    raise ModelError(
        "is a checkpoint of a tuned model, whose head its run describes in best/ or final/; neither is there",
        where=folder,
        remedy="Leave it in its run's folder, and let the run finish: the command that began it does",
    )
