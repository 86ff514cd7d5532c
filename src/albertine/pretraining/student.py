"""Students: smaller models, initialised from a larger one by fewer layers, other sharing or smaller widths;
weights of the same shape are copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from albertine.errors import SettingsError
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.presets import SHARING
from albertine.model.resharing import replan
from albertine.model.sharing import SharingPlan
from albertine.pretraining.settings import Student


def kept_depths(count: int, depth: int) -> tuple[int, ...]:
    """The layers that initialise those of a student: the first of each of `count` equal parts of `depth`
    layers, and cyclic where `count` is larger.

    Not the last of each part: the early layers matter most for a small encoder (docs/decisions/018).
    """
    if count > depth:
        return tuple(d % depth for d in range(count))
    return tuple(d * depth // count for d in range(count))


def student_config(config: EncoderConfig, choice: Student) -> EncoderConfig:
    """The configuration of the student of an encoder.

    Raises:
        SettingsError: layers that do not exist, sizes that do not fit together, or unsupported sharing: an
            encoder that halts or runs to a fixed point has one block for all layers.
    """
    plan = _plan(config, choice, _source(config, choice))
    try:
        shallow = config.with_plan(plan)
    except SettingsError as error:  # its remedies are for presets
        remedy = "Set it to all, or leave it out"
        raise SettingsError(error.what, where="model.student.sharing", remedy=remedy) from error
    return _narrowed(shallow, choice)


def student_of(model: Model, choice: Student, seed: int) -> Model:
    """The student of a model, with its weights where names and shapes are the same, and new ones, a function
    of the seed, elsewhere.

    Raises:
        SettingsError: as `student_config`.
    """
    config = student_config(model.config, choice)
    shallow = replan(model, config.plan, source=_source(model.config, choice), merge="mean")
    if not choice.widths:
        return shallow
    narrow = Model(config, shallow.heads, seed=seed)
    own = narrow.state_dict()
    with torch.no_grad():
        for name, tensor in shallow.state_dict().items():
            # A student whose embeddings are as wide as its hidden states has no mapping between them.
            if name in own and own[name].shape == tensor.shape:
                own[name].copy_(tensor)
    return narrow.train(model.training)


def _source(config: EncoderConfig, choice: Student) -> Sequence[int]:
    """For each layer of the student, the layer of the model that initialises it."""
    whole = config.num_hidden_layers
    source = choice.depths or kept_depths(choice.depth or whole, whole)
    if beyond := [d for d in source if not 0 <= d < whole]:
        raise SettingsError(
            f"names layer {beyond[0]}, and the model has 0 to {whole - 1}", where="model.student.depths"
        )
    return source


def _plan(config: EncoderConfig, choice: Student, source: Sequence[int]) -> SharingPlan:
    plan = config.plan
    if choice.sharing is not None:
        blocks = SHARING[choice.sharing](len(source))
        return replace(blocks, own=plan.own, low_rank=plan.low_rank)
    attention, feed_forward = ([part[d] for d in source] for part in (plan.attention, plan.feed_forward))
    return replace(plan, attention=tuple(attention), feed_forward=tuple(feed_forward))


def _narrowed(config: EncoderConfig, choice: Student) -> EncoderConfig:
    """With other widths; embeddings as wide as the hidden states stay so."""
    widths = choice.widths
    if config.embedding_size == config.hidden_size and "hidden_size" in widths:
        widths = {"embedding_size": widths["hidden_size"], **widths}
    return replace(config, **widths)  # type: ignore[arg-type]
