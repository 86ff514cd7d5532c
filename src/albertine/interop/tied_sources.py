"""What a folder of copies was written from, told without building or keeping a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from albertine.interop.config_values import config_errors, our_flags
from albertine.interop.huggingface_config import ModelType, encoder_in, inner_blocks
from albertine.interop.huggingface_names import canonical, entries
from albertine.interop.keymap import Rule, check, refuse_too_deep, to_ours
from albertine.interop.tied_detection import TiedWeights, match_expansion
from albertine.interop.tied_expansion import KEPT
from albertine.interop.weights import INDEX, SINGLE, OpenWeights, open_weights, read_json
from albertine.model.config import EncoderConfig
from albertine.model.model import Model


@dataclass(frozen=True)
class ExpandedModel:
    """A model that is written out in a folder, a copy of its shared weights for every depth.

    Attributes:
        config: of the model, which its weights fold back to while they are copies.
        equal: whether they are copies still, as after training elsewhere they are not; None: there are no
            safetensors to look at.
    """

    config: EncoderConfig
    equal: bool | None


def detect_expanded(file: Path) -> ExpandedModel | None:
    """What the depths of the model beside a config.json are copies of; None where it is no folder of copies.

    The depths are compared tensor by tensor in the file, so that no more than those of one name are in
    memory, and no further than the first difference.

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
    """Whether the mapping that transformers' ALBERT has in any case is, where the copies have none, the
    identity still, and no mapping that was trained."""
    if kind != "albert" or copied.has_mapping:
        return True
    names = {name: f"encoder.embeddings.mapping.{name}" for name in ("weight", "bias")}
    files, rules = canonical(kind, weights.shapes), entries(kind, names.values())
    weight, bias = (weights.read(files[rules[name].theirs]).float() for name in names.values())
    return torch.equal(weight, torch.eye(copied.hidden_size, dtype=torch.float32)) and not bool(bias.any())


def _parameters(config: EncoderConfig) -> dict[str, Tensor]:
    """Those of an encoder, without their numbers."""
    with torch.device("meta"):
        return Model(config, ()).state_dict()


class _OnDemand(Mapping[str, Tensor]):
    """Our parameters out of a file, each read when it is asked for and kept by nobody."""

    def __init__(
        self, rules: Mapping[str, Rule], read: Callable[[str], Tensor], where: Path, heads: int
    ) -> None:
        self._rules, self._read, self._where, self._heads = rules, read, where, heads

    def __getitem__(self, name: str) -> Tensor:
        return to_ours({name: self._rules[name]}, self._read, self._where, self._heads)[name]

    def stored(self, name: str) -> Tensor:
        """What the file has in its place."""
        return self._read(self._rules[name].theirs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)
