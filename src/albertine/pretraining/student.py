"""A smaller model than the one it begins with: fewer depths, other sharing, narrower; its first weights are
those of the other wherever they have the same shape."""

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
    """The first depth of each of `count` equal parts of `depth`; from the start again where there are more.

    The early depths hold most of what a small encoder knows of a text (docs/decisions/018), so a part is
    begun with its first one.
    """
    if count > depth:
        return tuple(d % depth for d in range(count))
    return tuple(d * depth // count for d in range(count))


def student_config(config: EncoderConfig, choice: Student) -> EncoderConfig:
    """The encoder that `choice` makes of one with this configuration; no weights are needed.

    Raises:
        SettingsError: depths that it has not, sizes that do not fit together, or sharing that it cannot have:
            an encoder that halts or runs to a fixed point has one block for all depths.
    """
    plan = _plan(config, choice, _source(config, choice))
    try:
        shallow = config.with_plan(plan)
    except SettingsError as error:  # whose remedies are those of a preset
        remedy = "Set it to all, or leave it out"
        raise SettingsError(error.what, where="model.student.sharing", remedy=remedy) from error
    return _narrowed(shallow, choice)


def student_of(model: Model, choice: Student, seed: int) -> Model:
    """The model that `choice` describes, with the weights of `model` where names and shapes are the same and
    new ones, a function of the seed, elsewhere.

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
            # Where the student's states are as wide as its embeddings, it has no map between them.
            if name in own and own[name].shape == tensor.shape:
                own[name].copy_(tensor)
    return narrow.train(model.training)


def _source(config: EncoderConfig, choice: Student) -> Sequence[int]:
    """For each depth of the student that of the model which it begins with."""
    whole = config.num_hidden_layers
    source = choice.depths or kept_depths(choice.depth or whole, whole)
    if beyond := [d for d in source if not 0 <= d < whole]:
        raise SettingsError(
            f"names depth {beyond[0]}, and the model has 0 to {whole - 1}", where="model.student.depths"
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
    """Where embeddings were as wide as the states, so are those of another width."""
    widths = choice.widths
    if config.embedding_size == config.hidden_size and "hidden_size" in widths:
        widths = {"embedding_size": widths["hidden_size"], **widths}
    return replace(config, **widths)  # type: ignore[arg-type]
