"""Detection of tied weights: recovers the model with shared weights from its expansion, if the copies are
equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from albertine.interop.config_values import config_errors, our_flags
from albertine.interop.huggingface.config import ModelType, encoder_in, inner_blocks
from albertine.interop.huggingface.names import canonical, entries
from albertine.interop.keymap import Rule, check, refuse_too_deep, to_ours
from albertine.interop.tied_expansion import (
    KEPT,
    MAPPING,
    WORD,
    embedding_product,
    expanded_config,
    multiplied_embeddings_config,
    unshared_config,
    unsupported_features,
)
from albertine.interop.weights import INDEX, SINGLE, OpenWeights, open_weights, read_json
from albertine.model.config import EncoderConfig
from albertine.model.model import Model

_BLOCK = re.compile(r"^encoder\.(attention|feed_forward)\.(\d+)\.(.+)$")
_OWN_NORM = re.compile(r"^encoder\.own\.(\d+)\.(attention|feed_forward)\.(layer_norm\..+)$")
_SCALED = ("output.weight", "output.bias")
_FREE = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
    "max_position_embeddings",
    "initializer_range",
)
"""Settings that may differ in the config.json of copies of the same model."""
_RTOL, _ATOL = 1e-5, 1e-6


@dataclass(frozen=True, eq=False)
class TiedWeights:
    """The parameters of a model and of its expansion.

    Attributes:
        config: of the model. written: of its expansion.
        shapes: of the model's parameters. copies: parameters of the expansion, float32, by our names.
        kept: further parameters in the file (`unrecoverable_parameters`).
        stored: from a name to the number format of that copy in the file.
    """

    config: EncoderConfig
    written: EncoderConfig
    shapes: Mapping[str, torch.Size]
    copies: Mapping[str, Tensor]
    kept: Mapping[str, Tensor]
    stored: Callable[[str], torch.dtype]

    def parameter(self, name: str) -> Tensor | None:
        """A parameter of the model: as it is kept, else as all of its copies have it; None where they do not
        agree."""
        if (shape := self.shapes.get(name)) is None:
            return None
        if (kept := self.kept.get(KEPT + name)) is not None and kept.shape == shape:
            return kept.float()
        found = [self.copies.get(copy) for copy in self._copies_of(name)]
        first = found[0] if found else None
        if first is None or first.shape != shape:
            return None
        agreed = all(x is not None and torch.equal(x, first) for x in found)
        return first.detach().cpu().clone() if agreed else None

    def whole(self) -> bool:
        """Whether the copies are what the model would be written as. Only a few parameters are looked at at
        once, and none after the first that is not."""
        parameter = lru_cache(maxsize=3)(self.parameter)
        return all(self._stands(copy, parameter) for copy in sorted(self.copies, key=self._order))

    def _stands(self, copy: str, parameter: Callable[[str], Tensor | None]) -> bool:
        sources = self._sources(copy)
        values = [parameter(name) for name in sources]
        if any(x is None for x in values):
            return False
        if not values:  # no output depends on it
            return True
        first, *more = (x for x in values if x is not None)
        if more:
            first = embedding_product(first, more[0]) if copy == WORD else first * more[0]
        found = self.copies[copy]
        stored = first.to(self.stored(copy)).float()
        same = stored.shape == found.shape
        return same and torch.allclose(stored, found.detach().cpu(), rtol=_RTOL, atol=_ATOL)

    def _sources(self, copy: str) -> list[str]:
        """The parameters that a copy is made of: one, or two that are multiplied; none where it is a norm
        that nothing is computed with."""
        if copy == WORD and self.config.has_mapping != self.written.has_mapping:
            return [WORD, MAPPING]
        if (block := _BLOCK.match(copy)) is None:
            return [copy]
        part, depth, rest = block[1], int(block[2]), block[3]
        if self._unused(part, depth, rest):
            return []
        if "norms" in self._own and rest.startswith("layer_norm."):
            return [f"encoder.own.{depth}.{part}.{rest}"]
        source = f"encoder.{part}.{self._blocks(part, rest)[depth]}.{rest}"
        scaled = "residuals" in self._own and rest in _SCALED
        return [source, f"encoder.own.{depth}.{part}.scale"] if scaled else [source]

    def _copies_of(self, name: str) -> list[str]:
        """The names of the unchanged copies of a parameter in the expansion."""
        if (own := _OWN_NORM.match(name)) is not None:
            return [f"encoder.{own[2]}.{own[1]}.{own[3]}"]
        if (block := _BLOCK.match(name)) is None:
            return [name]
        part, number, rest = block[1], int(block[2]), block[3]
        return [
            f"encoder.{part}.{depth}.{rest}"
            for depth, used in enumerate(self._blocks(part, rest))
            if used == number and not self._unused(part, depth, rest)
        ]

    def _blocks(self, part: str, rest: str) -> tuple[int, ...]:
        """The block that each depth of the copies has in its place."""
        depths = {"attention": self.written.plan.attention, "feed_forward": self.written.plan.feed_forward}
        if rest.startswith("biases.") and self.config.relative_biases != self.written.relative_biases:
            return (0,) * len(depths[part])  # the first block has those of all
        if self.config.plan == self.written.plan:
            return tuple(range(max(depths[part]) + 1))
        return {"attention": self.config.plan.attention, "feed_forward": self.config.plan.feed_forward}[part]

    def _unused(self, part: str, depth: int, rest: str) -> bool:
        """A pre-norm encoder's depth 0 does not normalise what its attention reads: its copy has a norm that
        nothing is computed with."""
        first = part == "attention" and depth == 0 and self.config.norm == "pre"
        return first and rest.startswith("layer_norm.")

    @property
    def _own(self) -> tuple[str, ...]:
        """The per-layer parameters of the model that are part of its copies."""
        return tuple(own for own in self.config.plan.own if own not in self.written.plan.own)

    def _order(self, copy: str) -> tuple[str, ...]:
        """Copies of one parameter follow one another."""
        return (self._sources(copy) or [""])[0], copy


def unrecoverable_parameters(model: Model, copies: Model) -> dict[str, Tensor]:
    """Our parameters that `detect_tied` cannot recover from the copies, by their names in the file: factors
    of products, and parameters that no output depends on."""
    state = model.state_dict()
    shapes = {name: x.shape for name, x in state.items()}
    fold = TiedWeights(
        model.config, copies.config, shapes, copies.state_dict(), {}, lambda name: torch.float32
    )
    recovered = {name: fold.parameter(name) for name in state}
    return {
        KEPT + name: x.detach().cpu().contiguous()
        for name, x in state.items()
        if (found := recovered[name]) is None or not torch.equal(found, x.cpu())
    }


def detect_tied(
    copies: Model, config: EncoderConfig, kept: Mapping[str, Tensor], stored: Callable[[str], torch.dtype]
) -> Model | None:
    """The model whose expansion these copies are; None if they differ, as after training by a library without
    sharing.

    Args:
        config: of the model. kept: from `unrecoverable_parameters`. stored: as in `TiedWeights`.
    """
    if (both := match_expansion(config, copies.config)) is None:
        return None
    config, written = both
    with torch.device("meta"):
        model = Model(config, copies.heads)
    shapes = {name: x.shape for name, x in model.state_dict().items()}
    fold = TiedWeights(config, written, shapes, copies.state_dict(), kept, stored)
    if not fold.whole():
        return None
    state = {name: x for name in shapes if (x := fold.parameter(name)) is not None}
    if state.keys() != shapes.keys():
        return None
    model.load_state_dict(state, assign=True)
    return model


def match_expansion(
    config: EncoderConfig, found: EncoderConfig
) -> tuple[EncoderConfig, EncoderConfig] | None:
    """The configuration of a model, with the settings in `_FREE` from `found`, and that of its expansion;
    None if no expansion of the model has the configuration `found`."""
    config = replace(config, **{name: getattr(found, name) for name in _FREE})
    if unsupported_features(config, "transformers"):
        return None
    # A plan that transformers supports may have been expanded too, for programs without sharing.
    ways = expanded_config(config), unshared_config(multiplied_embeddings_config(config))
    written = next((way for way in ways if _computes(way, found)), None)
    return None if written is None else (config, written)


def _computes(one: EncoderConfig, other: EncoderConfig) -> bool:
    """Whether two configurations are equal up to the id of the padding token."""
    return replace(one, pad_token_id=other.pad_token_id) == other


@dataclass(frozen=True)
class ExpandedModel:
    """An expanded model in a folder, with a copy of its shared weights for every layer.

    Attributes:
        config: of the model, which is recovered while the copies are equal.
        equal: whether the copies are equal; after training by other programs they are not. None: there are no
            safetensors.
    """

    config: EncoderConfig
    equal: bool | None


def detect_expanded(file: Path) -> ExpandedModel | None:
    """The shared model whose expansion a folder has, by its config.json; None if it has no expansion.

    Layers are compared tensor by tensor in the file, up to the first difference, so that only those of one
    name are in memory.

    Raises:
        ModelError: a configuration or a file of weights that is damaged.
    """
    tree = read_json(file)
    written = our_flags(tree).get("encoder")
    kind, found = encoder_in(tree, file)
    if not isinstance(written, dict) or kind == "albertine":
        return None
    with config_errors(file):
        if (both := match_expansion(EncoderConfig.from_dict(written), found)) is None:
            return None
    config, copied = both
    if not any((file.parent / name).is_file() for name in (SINGLE, INDEX)):
        return ExpandedModel(config, None)
    with open_weights(file.parent) as weights:
        files = canonical(kind, weights.shapes)
        kept = {name: files.pop(name) for name in list(files) if name.startswith(KEPT)}
        refuse_too_deep(copied.plan, len(files), file.parent)
        state, heads = _parameters(copied), found.num_attention_heads
        rules = entries(kind, state, inner_blocks(tree))
        shapes = {name: x.shape for name, x in _parameters(config).items()}
        check(rules, state, {n: weights.shapes[x] for n, x in files.items()}, file.parent, heads)
        copies = _OnDemand(rules, lambda name: weights.read(files[name]), file.parent, heads)
        beside = {name: weights.read(stored) for name, stored in kept.items()}
        fold = TiedWeights(config, copied, shapes, copies, beside, lambda name: copies.stored(name).dtype)
        return ExpandedModel(config, _maps_nothing(kind, copied, weights) and fold.whole())


def _maps_nothing(kind: ModelType, copied: EncoderConfig, weights: OpenWeights) -> bool:
    """Whether the mapping, which transformers' ALBERT always has, is the identity if the expansion has none:
    it may have been trained."""
    if kind != "albert" or copied.has_mapping:
        return True
    names = {name: f"encoder.embeddings.mapping.{name}" for name in ("weight", "bias")}
    files, rules = canonical(kind, weights.shapes), entries(kind, names.values())
    weight, bias = (weights.read(files[rules[name].theirs]).float() for name in names.values())
    return torch.equal(weight, torch.eye(copied.hidden_size, dtype=torch.float32)) and not bool(bias.any())


def _parameters(config: EncoderConfig) -> dict[str, Tensor]:
    """The parameters of an encoder, without values."""
    with torch.device("meta"):
        return Model(config, ()).state_dict()


class _OnDemand(Mapping[str, Tensor]):
    """Our parameters in a file, each read on access and not cached."""

    def __init__(
        self, rules: Mapping[str, Rule], read: Callable[[str], Tensor], where: Path, heads: int
    ) -> None:
        self._rules, self._read, self._where, self._heads = rules, read, where, heads

    def __getitem__(self, name: str) -> Tensor:
        return to_ours({name: self._rules[name]}, self._read, self._where, self._heads)[name]

    def stored(self, name: str) -> Tensor:
        """The tensor of a parameter as it is in the file."""
        return self._read(self._rules[name].theirs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)
