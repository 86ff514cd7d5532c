"""Another sharing plan for the same weights: unshare to fine-tune, share again, grow, cut short."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from albertine.errors import SettingsError
from albertine.model.model import Model
from albertine.model.plan import SharingPlan

Merge = Literal["exact", "mean"]
_BLOCK = re.compile(r"^encoder\.(attention|feed_forward)\.(\d+)\.(.+)$")


def replan(
    model: Model, plan: SharingPlan, *, source: Sequence[int] | None = None, merge: Merge = "exact"
) -> Model:
    """A new model whose depths use `plan`, every block a copy of the one its depths used before.

    Embeddings and heads are copied as they are, so unsharing changes no output until the blocks are trained
    apart (reference section 1.13). An all-shared model grows to any depth without a new weight (paper,
    section 4.8).

    Args:
        source: for every depth of `plan` the old depth it comes from; by default the same, and from the
        beginning
            again where there are more depths than before.
        merge: what to do where one new block stands for several old ones: "exact" demands that they are
        equal, "mean"
            averages them.

    Raises:
        SettingsError: `source` does not fit, or blocks differ that "exact" would merge.
    """
    old = model.config.plan
    depths = [d % old.depth for d in range(plan.depth)] if source is None else list(source)
    if len(depths) != plan.depth or not all(0 <= d < old.depth for d in depths):
        raise SettingsError(
            f"source names one old depth from 0 to {old.depth - 1} for each of {plan.depth} depths"
        )
    origins = {
        "attention": _origins(plan.attention, [old.attention[d] for d in depths]),
        "feed_forward": _origins(plan.feed_forward, [old.feed_forward[d] for d in depths]),
    }
    with torch.device("meta"):
        new = Model(model.config.with_plan(plan), model.heads, precision=model.precision)
    before = {name: value.detach() for name, value in model.state_dict().items()}
    state = {name: _value(name, before, origins, merge) for name in new.state_dict()}
    new.load_state_dict(state, assign=True)
    return new.requires_grad_(True).train(model.training)


def _origins(blocks: Sequence[int], sources: Sequence[int]) -> list[list[int]]:
    """For each new block the old ones it stands for."""
    return [
        sorted({s for b, s in zip(blocks, sources, strict=True) if b == block})
        for block in range(max(blocks) + 1)
    ]


def _value(name: str, before: dict[str, Tensor], origins: dict[str, list[list[int]]], merge: Merge) -> Tensor:
    found = _BLOCK.match(name)
    if found is None:
        return before[name].clone()
    kind, number, rest = found[1], int(found[2]), found[3]
    values = [before[f"encoder.{kind}.{old}.{rest}"] for old in origins[kind][number]]
    if merge == "mean":
        return torch.stack(values).mean(0)
    if not all(torch.equal(values[0], value) for value in values[1:]):
        raise SettingsError(
            f"blocks {origins[kind][number]} of {kind} differ, they cannot become one",
            remedy='Share only blocks that are equal, or average them with merge="mean"',
        )
    return values[0].clone()
