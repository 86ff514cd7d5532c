"""Conversion of weights to another sharing plan: unshare for fine-tuning, share again, grow, truncate."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.core.randomness import torch_generator
from albertine.errors import SettingsError
from albertine.model.init import sinusoids
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan

Merge = Literal["exact", "mean"]
_BLOCK = re.compile(r"^encoder\.(attention|feed_forward)\.(\d+)\.(.+)$")
_STEPS = "encoder.signals.step"
_OWN = re.compile(r"^encoder\.own\.(\d+)\.(.+)$")


def replan(
    model: Model, plan: SharingPlan, *, source: Sequence[int] | None = None, merge: Merge = "exact"
) -> Model:
    """A new model with the sharing plan `plan`, whose blocks are copies of those that its layers used before.

    Embeddings and heads are copied as they are, so unsharing changes no output until the blocks are trained
    apart (bert4keras, `ALBERT_Unshared`). An all-shared model grows to any depth without a new weight (Lan et
    al. 2019, appendix A.1). Parameters of a layer go with it; new ones are initialised so that they change
    nothing, LayerNorms with those of the blocks. Norms and factors that `plan` no longer has are folded into
    the blocks, which then must be unshared, or equal.

    Args:
        source: for every layer of `plan` its old layer; by default the same, repeating from the first where
            there are more.
        merge: of several old blocks into one: "exact" requires equal blocks, "mean" averages them over the
            layers.

    Raises:
        SettingsError: `source` does not fit, blocks differ under "exact", or injections or low-rank additions
            would be lost: the first layer has no injection.
    """
    old = model.config.plan
    depths = [d % old.depth for d in range(plan.depth)] if source is None else list(source)
    if len(depths) != plan.depth or not all(0 <= d < old.depth for d in depths):
        raise SettingsError(
            f"source names one old depth from 0 to {old.depth - 1} for each of {plan.depth} depths"
        )
    lost = set(old.own) - set(plan.own) - {"norms", "residuals"}
    if lost or (old.low_rank and old.low_rank != plan.low_rank):
        raise SettingsError(
            "no block can take over the injections or low-rank additions of its depth",
            remedy="Keep them in the new plan: replace(plan, own=..., low_rank=...)",
        )
    if _injects(model, depths[0]):
        raise SettingsError(
            f"depth {depths[0]} adds the embeddings to its input, and a first depth cannot",
            remedy="Let the first depth come from depth 0",
        )
    folded = _folded(model, [name for name in old.own if name not in plan.own])
    origins = {
        "attention": _origins(plan.attention, [folded.plan.attention[d] for d in depths]),
        "feed_forward": _origins(plan.feed_forward, [folded.plan.feed_forward[d] for d in depths]),
    }
    with torch.device("meta"):
        new = Model(model.config.with_plan(plan), model.heads, precision=model.precision)
    state = {
        name: _value(name, folded, plan, origins, depths, merge, value.shape)
        for name, value in new.state_dict().items()
    }
    new.load_state_dict(state, assign=True)
    return new.requires_grad_(True).train(model.training)


def with_layers(model: Model, layers: int) -> Model:
    """The model with another number of layers over the same blocks: other loops of a repeated core, or the
    first layers of another encoder (`SharingPlan.layer_order`). Its outputs are those of `Encoder.forward`
    with as many `loops`, or with that `depth`.

    Raises:
        SettingsError: as `SharingPlan.layer_order`; or more layers than an encoder may have.
    """
    plan = model.config.plan
    order = plan.layer_order(layers)
    if order == tuple(range(plan.depth)):
        return model
    if order != tuple(range(layers)):
        model = _with_learned_steps(model)
    found = replan(model, plan.with_layers(layers), source=order)
    found.batch_tokens = model.batch_tokens
    return found


def _with_learned_steps(model: Model) -> Model:
    """The model with its sinusoidal step signal as a table, of which layers can take rows in any order."""
    if model.config.step_signal != "sinusoid":
        return model
    config = replace(model.config, step_signal="learned")
    with torch.device("meta"):
        new = Model(config, model.heads, precision=model.precision)
    table = sinusoids(config.num_hidden_layers, config.hidden_size).to(model.device)
    new.load_state_dict({**model.state_dict(), _STEPS: table}, assign=True)
    new.batch_tokens = model.batch_tokens
    return new.requires_grad_(True).train(model.training)


def _injects(model: Model, depth: int) -> bool:
    """Whether a layer adds the embeddings to its input, by a factor that is not zero."""
    factor = model.state_dict().get(f"encoder.own.{depth}.injection")
    return factor is not None and bool(factor)


class _Weights(NamedTuple):
    """Weights by name, their plan, and whether the attention of layer 0 normalises its input."""

    plan: SharingPlan
    state: dict[str, Tensor]
    first_normed: bool

    def normed(self, blocks: Sequence[int]) -> list[int]:
        """Those of some attention blocks whose LayerNorm is used by a layer, or all where none is: unused
        norms are untrained, and excluded from a merge."""
        read = {*self.plan.attention[0 if self.first_normed else 1 :]}
        return [block for block in blocks if block in read] or list(blocks)


def _folded(model: Model, names: Sequence[str]) -> _Weights:
    """The weights with per-layer parameters folded into unshared blocks."""
    plan = model.config.plan
    old = {name: value.detach() for name, value in model.state_dict().items()}
    first_normed = model.config.norm == "post" or not model.config.embedding_norm
    if not names:
        return _Weights(plan, old, first_normed)
    new = {name: value for name, value in old.items() if not _BLOCK.match(name)}
    for part, used in (("attention", plan.attention), ("feed_forward", plan.feed_forward)):
        for d, block in enumerate(used):
            own, after = f"encoder.own.{d}.{part}", f"encoder.{part}.{d}"
            new |= _renamed(old, f"encoder.{part}.{block}.", f"{after}.")
            if "residuals" in names:
                for name in {f"{after}.output.weight", f"{after}.output.bias", f"{own}.up"} & new.keys():
                    new[name] = new[name] * old[f"{own}.scale"]
            if "norms" in names:
                # Where layer 0 has no norm, its block has an unused one.
                first = _renamed(old, "encoder.final_norm.", f"{after}.layer_norm.")
                new |= _renamed(old, f"{own}.layer_norm.", f"{after}.layer_norm.") or first
    return _Weights(SharingPlan.unshared(plan.depth), new, first_normed)


def _renamed(state: Mapping[str, Tensor], before: str, after: str) -> dict[str, Tensor]:
    """Entries with prefix `before`, renamed to prefix `after`."""
    return {after + n.removeprefix(before): x for n, x in state.items() if n.startswith(before)}


def shared_again(model: Model) -> Model:
    """The model with one block of each part for all layers, the mean over the layers; per-layer parameters
    stay."""
    return replan(model, shared_plan(model.config.plan), merge="mean")


def shared_plan(plan: SharingPlan) -> SharingPlan:
    """The plan with one block of each part for all layers; per-layer parameters stay."""
    return replace(SharingPlan.shared(plan.depth), own=plan.own, low_rank=plan.low_rank)


@torch.no_grad()
def distances(model: Model, other: Model) -> dict[str, list[float]]:
    """Relative distance of two models' blocks: for every part, "attention" and "feed_forward", and every
    layer the Frobenius norm of the difference of all weights over that of the other's. Tied biases do not
    count."""
    found = {}
    for part in ("attention", "feed_forward"):
        mine, theirs = (_blocks(m, part) for m in (model, other))
        found[part] = [
            float((a - b).norm() / b.norm().clamp(min=1e-30)) for a, b in zip(mine, theirs, strict=True)
        ]
    return found


def _blocks(model: Model, part: str) -> list[Tensor]:
    """The weights of every layer, each as one vector in float64; only the first block holds tied biases."""
    blocks: nn.ModuleList = getattr(model.encoder, part)
    used: tuple[int, ...] = getattr(model.config.plan, part)
    tied = ("biases.",) if model.config.relative_biases == "tied" else ()
    named = [[p for n, p in block.named_parameters() if not n.startswith(tied)] for block in blocks]
    flat = [torch.cat([p.double().flatten() for p in own]) for own in named]
    return [flat[number] for number in used]


@torch.no_grad()
def output_change(model: Model, other: Model, packed: Packed) -> float:
    """Frobenius norm of the difference of two models' last hidden states over that of the first's."""
    mine, theirs = (m.encoder(packed).last_hidden.double() for m in (model, other))
    return float((theirs - mine).norm() / mine.norm())


def _origins(blocks: Sequence[int], sources: Sequence[int]) -> list[list[int]]:
    """For each new block its old ones, each as often as layers use it."""
    return [
        sorted(s for b, s in zip(blocks, sources, strict=True) if b == block)
        for block in range(max(blocks) + 1)
    ]


def _value(
    name: str,
    old: _Weights,
    plan: SharingPlan,
    origins: dict[str, list[list[int]]],
    depths: Sequence[int],
    merge: Merge,
    shape: torch.Size,
) -> Tensor:
    if (own := _OWN.match(name)) is not None:
        return _own_value(int(own[1]), own[2], old, depths, shape)
    if name == _STEPS:  # a row for every layer
        return old.state[name][list(depths)]
    found = _BLOCK.match(name)
    if found is None:
        return old.state[name].clone()
    kind, number, rest = found[1], int(found[2]), found[3]
    blocks = origins[kind][number]
    if kind == "attention" and rest.startswith("layer_norm."):
        blocks = old.normed(blocks)
    if rest.startswith("biases."):  # tied: the first block has them for all
        blocks = [block for block in blocks if f"encoder.{kind}.{block}.{rest}" in old.state] or [0]
    values = [old.state[f"encoder.{kind}.{block}.{rest}"] for block in blocks]
    if merge == "mean":
        return torch.stack(values).mean(0)
    if not all(torch.equal(values[0], value) for value in values[1:]):
        raise SettingsError(
            f"blocks {sorted(set(blocks))} of {kind} differ, they cannot become one",
            remedy='Share only blocks that are equal, or average them with merge="mean"',
        )
    return values[0].clone()


def _own_value(d: int, rest: str, old: _Weights, depths: Sequence[int], shape: torch.Size) -> Tensor:
    """Parameter of layer d: that of its old layer, or an initial value that changes nothing."""
    source = depths[d]
    if (value := old.state.get(f"encoder.own.{source}.{rest}")) is not None:
        return value.clone()
    part, _, name = rest.partition(".")
    if name.startswith("layer_norm."):
        block = {"attention": old.plan.attention, "feed_forward": old.plan.feed_forward}[part][source]
        value = old.state.get(f"encoder.{part}.{block}.{name}")
        # Layer 0 of a pre-norm encoder may have none: copied to a later layer, it begins with the final norm.
        final = f"encoder.final_norm.{name.removeprefix('layer_norm.')}"
        return (old.state[final] if value is None else value).clone()
    like = old.state["encoder.embeddings.word.weight"]
    if name == "down":
        generator = torch_generator(0, f"replan/{d}/{rest}")
        drawn = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        return drawn.mul_(shape[1] ** -0.5).to(like)
    return like.new_ones(shape) if name == "scale" else like.new_zeros(shape)
