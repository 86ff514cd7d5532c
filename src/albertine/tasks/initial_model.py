"""The initial model of a fine-tuning run: the pretrained encoder with the sharing plan of the settings, and
the learning rates of its layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from albertine.errors import ModelError, SettingsError
from albertine.interop.heads import labels_in, task_in
from albertine.interop.hub.download import commit_of
from albertine.interop.huggingface.folders import folder_config, named_model
from albertine.interop.model_names import model_folder
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.resharing import distances, replan, shared_again, shared_plan
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier, TaskModel
from albertine.tasks.family import Family
from albertine.tasks.settings import EncoderChoice, FinetuneSettings, TuningChoice
from albertine.tokenizers.base import Tokenizer

FASTEST = 8.0
"""Highest default of `training.embedding_rate`."""


def open_encoder(settings: FinetuneSettings) -> tuple[Model, Tokenizer]:
    """The pretrained model, unchanged, and its tokenizer.

    Default lengths may exceed the positions of the model: `TaskChoice.fitting` shortens them.

    Raises:
        ModelError: the two do not fit. SettingsError: `task.max_length` exceeds the positions of the model,
            or the encoder does not support the task.
    """
    pretrained, tokenizer = named_model(settings.encoder.folder)
    tokenizer.check_can_save()
    positions = pretrained.config.max_position_embeddings
    if (length := settings.task.fitting(positions).max_length) > positions:
        raise SettingsError(
            f"task.max_length {length} is more than the model's {positions} positions",
            remedy=f"Set task.max_length={positions} or less",
        )
    settings.task.check_encoder(pretrained.config, settings.encoder.folder)
    return pretrained, tokenizer


def left_aside(folder: Path, family: Family) -> list[str]:
    """A note on the task head in the encoder's folder.

    It is never used, even if task and labels are the same: a run is a function of encoder, data and seed, and
    runs from the same head would vary too little to measure the spread over seeds.
    """
    config = folder_config(folder)
    task = task_in(config)
    if task is None:
        return []
    labels = labels_in(config)
    count = f" ({len(labels)} outputs)" if labels else ""
    same = task == family.task and labels == labels_in(family.config(str(config.get("model_type")), 0.0))
    why = ", though it is of the same task" if same else ""
    return [f"head: that of `{task}`{count} in the folder is left aside{why}; a new one is trained"]


def first_encoder(settings: FinetuneSettings, pretrained: Model, heads: frozenset[str]) -> Model:
    """The encoder to tune, with some of the pretraining heads and the sharing plan of the settings.

    Raises:
        ModelError: the task needs the masked-LM head, and the checkpoint has none.
        SettingsError: the task learns from dropout, and there is none; or the plan does not fit the encoder.
    """
    choice = settings.encoder
    if "mlm" in heads - pretrained.heads:
        raise ModelError(
            "has no masked-LM head, which this task goes on with",
            where=choice.folder,
            remedy="Use a pretrained model that was not tuned for another task",
        )
    config = tuned_config(pretrained.config, choice, settings.task.usual_depth)
    by_dropout = settings.task.learns_from_dropout
    if by_dropout and not (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
        raise SettingsError(
            f"{by_dropout} learns from dropout alone, and the checkpoint was made without",
            where=choice.folder,
            remedy="Set encoder.dropout, for example 0.1",
        )
    model = Model(config.with_plan(pretrained.config.plan), heads, seed=settings.seed)
    state = model.state_dict()
    model.load_state_dict(state | {k: v for k, v in pretrained.state_dict().items() if k in state})
    if choice.unshare == "share":
        model = shared_again(model)  # the mean of all layers, before some are left out
    try:
        if config.plan != model.config.plan:
            kept = _kept_layers(model.config.plan, choice, config.num_hidden_layers)
            model = replan(model, config.plan, source=kept)
    except SettingsError as error:
        remedy = (
            "Choose encoder.groups into which the checkpoint's own can be split, or encoder.unshare=share"
        )
        raise SettingsError(error.what, remedy=remedy) from error
    model.encoder.apply_settings(settings.training)
    return model


def tuned_config(config: EncoderConfig, choice: EncoderChoice, usual: int | None = None) -> EncoderConfig:
    """The configuration of the encoder to tune, from that of the pretrained one.

    Args:
        usual: default number of layers, ignored for fixed-point encoders, which need all their iterations;
            None: as many as before.

    Raises:
        SettingsError: there is no such plan, or the encoder halts or runs to a fixed point and so needs one
            block for all layers.
    """
    if (dropout := choice.dropout) is not None:
        config = replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    plan = shared_plan(config.plan) if choice.unshare == "share" else config.plan
    depth = choice.num_hidden_layers or (None if config.solves else usual) or plan.depth
    kept = _kept_layers(plan, choice, depth)
    try:
        return config.with_plan(_plan(plan, choice, kept))
    except SettingsError as error:
        if choice.groups is not None and choice.groups > depth:
            remedy = f"Set encoder.groups to {depth} at most, or leave it out"
        elif error.remedy is not None and choice.unshare in ("all", "attention", "ffn"):
            remedy = f"Leave encoder.unshare={choice.unshare} out"
        else:
            raise
        raise SettingsError(error.what, where=choice.folder, remedy=remedy) from error


def start_notes(settings: FinetuneSettings, pretrained: Model, family: Family) -> tuple[str, ...]:
    """Notes on the initial model: its revision on the hub, the distance of layers that now share their
    weights, and a task head that is not used."""
    notes, folder = [], model_folder(settings.encoder.folder)
    if commit := commit_of(folder):
        notes.append(f"encoder: {settings.encoder.folder}, revision {commit} of the hub")
    if settings.encoder.unshare == "share":
        apart = distances(pretrained, shared_again(pretrained))
        moved = (f"{max(values):.3f} in {part.replace('_', '-')}" for part, values in apart.items())
        notes.append(
            f"start: shared again; from the mean the farthest depth is, over its norm, {', '.join(moved)}"
        )
    return (*notes, *left_aside(folder, family))


def _plan(plan: SharingPlan, choice: EncoderChoice, kept: Sequence[int]) -> SharingPlan:
    """The sharing plan of a tuned encoder, from the layers of the pretrained one that it keeps."""
    unshare, depth = choice.unshare, len(kept)
    # The unshared part gets a block for each layer or group; the other part keeps its plan.
    each = SharingPlan.grouped(depth, choice.groups or depth).attention
    attention = each if unshare in ("all", "attention") else tuple(plan.attention[d] for d in kept)
    feed_forward = each if unshare in ("all", "ffn") else tuple(plan.feed_forward[d] for d in kept)
    return replace(plan, attention=attention, feed_forward=feed_forward)


def _kept_layers(plan: SharingPlan, choice: EncoderChoice, depth: int) -> list[int]:
    """For each of `depth` layers the layer that it was: other loops of a repeated core, if the number of
    layers is a setting; else the first layers, and again from the first where there are more.

    Raises:
        SettingsError: no number of loops gives `depth`.
    """
    structure = plan.loop_structure
    if choice.num_hidden_layers is None or structure is None or not (structure.prelude or structure.coda):
        return [d % plan.depth for d in range(depth)]
    try:
        return list(plan.layer_order(depth))
    except SettingsError as error:
        raise SettingsError(error.what, where="encoder.num_hidden_layers", remedy=error.remedy) from error


def embedding_rate(training: TuningChoice, model: TaskModel) -> float:
    """The learning rate of the word vectors over that of the rest: from the settings, or the ratio of their
    length to that at initialisation, up to `FASTEST`. The length of AdamW's steps does not depend on that of
    the vectors, so long vectors would turn more slowly.

    The default is 1 except for a classifier of means (it harms where vectors are compared directly) below the
    width of BERT base (wider models are tuned as in their papers).
    """
    if training.embedding_rate is not None:
        return training.embedding_rate
    config = model.base.config
    if config.hidden_size >= 768 or not (isinstance(model, Classifier) and model.uses_mean_pooling):
        return 1.0
    length = model.base.encoder.embeddings.word.weight.detach().float().square().mean().sqrt().item()
    return min(FASTEST, max(1.0, round(length / config.initializer_range, 2)))


def rates(
    plan: SharingPlan, decay: float, crf: float = 1.0, embedding: float = 1.0
) -> Callable[[str], float]:
    """Factor of the learning rate by parameter name with layer-wise decay, as in XLNet's `model_utils.py`: 1
    for the head, the pooler and the top layer, a further factor `decay` for every layer below, and one more
    for the embeddings; `crf` for a conditional random field, whose few parameters have far to move;
    `embedding` for word vectors and their projection, in addition to their decay.

    A block that several layers share has the factor of the highest of them; per-layer parameters have that of
    their layer. Position and step embeddings count as embeddings; other parameters of the loop have factor 1.
    """
    top = {
        part: {block: max(d for d, b in enumerate(blocks) if b == block) for block in set(blocks)}
        for part, blocks in (("attention", plan.attention), ("feed_forward", plan.feed_forward))
    }

    def rate(name: str) -> float:
        if name.startswith("crf."):
            return crf
        if ".embeddings." in name:
            words = ".embeddings.word." in name or ".embeddings.mapping." in name
            return decay**plan.depth * (embedding if words else 1.0)
        if found := re.search(r"encoder\.(attention|feed_forward)\.(\d+)\.", name):
            return decay ** (plan.depth - 1 - top[found[1]][int(found[2])])
        if found := re.search(r"encoder\.own\.(\d+)\.", name):
            return decay ** (plan.depth - 1 - int(found[1]))
        return decay**plan.depth if "encoder.signals." in name else 1.0

    return rate
