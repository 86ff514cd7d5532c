"""The model a fine-tuning run begins with: the pretrained encoder by the plan that the settings ask for, and
how fast each of its depths learns."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from albertine.errors import ModelError, SettingsError
from albertine.interop.heads import labels_in, task_in
from albertine.interop.hub.download import commit_of
from albertine.interop.huggingface.folders import folder_config, load_model
from albertine.interop.model_names import model_folder
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.resharing import distances, replan, shared_again, shared_plan
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier, TaskModel
from albertine.tasks.family import Family
from albertine.tasks.settings import EncoderChoice, FinetuneSettings, TuningChoice
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import check_tokenizer, load_tokenizer

FASTEST = 8.0
"""The most by which word vectors learn faster than the rest, if nobody says otherwise."""


def open_encoder(settings: FinetuneSettings) -> tuple[Model, Tokenizer]:
    """The pretrained model as it stands, and its tokenizer.

    Lengths that were left at their defaults may exceed the positions of the model: `TaskChoice.fitting`
    shortens them.

    Raises:
        ModelError: the two do not fit. SettingsError: the task's texts are longer than the model reads, or
            the encoder does not support the task.
    """
    folder = model_folder(settings.encoder.folder)
    pretrained, tokenizer = load_model(folder), load_tokenizer(folder)
    check_tokenizer(pretrained.config, tokenizer, folder)
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
    """A note on the head of a task that the encoder's folder has.

    It is never gone on with, even if task and labels are the same: a run is a function of encoder, data and
    seed, and seeds that began with the same head would differ too little to tell the spread.
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
    """The encoder that is tuned: some of the heads, by the plan of the settings.

    Raises:
        ModelError: the task goes on with the masked-LM head, and the checkpoint has none.
        SettingsError: the task learns from dropout, and there is none; or a plan that encoder or weights do
            not fit.
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
        model = shared_again(model)  # of all depths that there are, before some may be left out
    try:
        model = model if config.plan == model.config.plan else replan(model, config.plan)
    except SettingsError as error:
        remedy = (
            "Choose encoder.groups into which the checkpoint's own can be split, or encoder.unshare=share"
        )
        raise SettingsError(error.what, remedy=remedy) from error
    model.encoder.apply_settings(settings.training)
    return model


def tuned_config(config: EncoderConfig, choice: EncoderChoice, usual: int | None = None) -> EncoderConfig:
    """The encoder that is tuned, by the configuration of the pretrained one; no weights are needed.

    Args:
        usual: how many depths it has where nobody says, unless it solves, which needs its iterations; None:
            as many as before.

    Raises:
        SettingsError: there is no such plan, or the encoder, which halts or runs to a fixed point, needs one
            block for all depths.
    """
    if (dropout := choice.dropout) is not None:
        config = replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    plan = shared_plan(config.plan) if choice.unshare == "share" else config.plan
    depth = choice.num_hidden_layers or (None if config.solves else usual) or plan.depth
    try:
        return config.with_plan(_plan(plan, choice, depth))
    except SettingsError as error:
        if choice.groups is not None and choice.groups > depth:
            remedy = f"Set encoder.groups to {depth} at most, or leave it out"
        elif error.remedy is not None and choice.unshare in ("all", "attention", "ffn"):
            remedy = f"Leave encoder.unshare={choice.unshare} out"
        else:
            raise
        raise SettingsError(error.what, where=choice.folder, remedy=remedy) from error


def start_notes(settings: FinetuneSettings, pretrained: Model, family: Family) -> tuple[str, ...]:
    """What a person should know of the model that the run begins with: its revision on the hub, how far the
    depths were apart that now share their weights, and a head that is not gone on with."""
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


def _plan(plan: SharingPlan, choice: EncoderChoice, depth: int) -> SharingPlan:
    unshare = choice.unshare
    before = [d % plan.depth for d in range(depth)]  # more depths than before begin again from the first
    # What is unshared gets a block a depth, or a group; what stays shared keeps sharing as it does.
    each = SharingPlan.grouped(depth, choice.groups or depth).attention
    attention = each if unshare in ("all", "attention") else tuple(plan.attention[d] for d in before)
    feed_forward = each if unshare in ("all", "ffn") else tuple(plan.feed_forward[d] for d in before)
    return replace(plan, attention=attention, feed_forward=feed_forward)


def embedding_rate(training: TuningChoice, model: TaskModel) -> float:
    """The learning rate of the word vectors over that of the rest: given, or so that vectors which have grown
    long in pretraining turn as fast as new ones, up to `FASTEST`. AdamW's steps have a length of their own.

    Only for a classifier of means: where two vectors are compared as they are, it harms. And only below the
    width of BERT base, where the learning rate is higher too; wider ones are tuned as their papers do.
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
    """Share of the learning rate by parameter name under layer-wise decay: 1 for the head, the pooler and the
    top depth, one factor `decay` more for every depth below it, as in XLNet's `model_utils.py`, and the last
    for the embeddings; `crf` for a conditional random field, whose few numbers have far to go; `embedding`
    for word vectors and their projection, on top of their decay.

    A block that several depths share has the rate of the highest of them; what a depth has of its own has
    that of the depth. Signals of places and steps are embeddings; what else belongs to the loop has the rate
    of the top.
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
