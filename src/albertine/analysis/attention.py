"""Attention weights of a text in every layer and head, and how similar the layers attend.

The similarity of two attention distributions p and q over the keys is 1 - JS(p, q) / ln 2, with JS the
Jensen-Shannon divergence, which Clark et al. (2019, 1906.04341, section 6) compare heads by: 1 for equal
distributions, 0 for disjoint ones. That of two maps is the mean over their queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from albertine.analysis.one_text import model_input
from albertine.core.batch import pack
from albertine.errors import NotFinite
from albertine.interop.huggingface.folders import named_model
from albertine.model.model import Model, evaluating
from albertine.tokenizers.base import Tokenizer

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one text of L tokens.

    Attributes:
        tokens: of the text, special ones included, as in the vocabulary.
        blocks: index of the attention block of each layer.
        weights: float32 (layers, heads, L, L); row i is the distribution of query i over the keys.
        entropy: -Σ p ln p in nats, mean over queries (layers, heads): 0 for one key, ln L for all equally
            (Clark et al. 2019, section 3.2).
        distance: Σ p·|i - j| in tokens, mean over queries i (layers, heads) (Vig and Belinkov 2019,
            1906.04284, section 4.4).
        similarity: of the maps of two layers, each the mean over its heads (layers, layers).
        head_similarity: of the same head in two layers (heads, layers, layers); NaN where the layers have
            different attention blocks, whose heads do not correspond.
        other_heads: similarity of two different heads of one layer, mean over pairs and layers, to compare
            `head_similarity` with; NaN with one head.
    """

    tokens: list[str]
    blocks: tuple[int, ...]
    weights: Floats
    entropy: Floats
    distance: Floats
    similarity: Floats
    head_similarity: Floats
    other_heads: float

    @property
    def mean_similarity(self) -> float:
        """`similarity`, mean over pairs of layers; NaN with one layer."""
        return _mean_of_pairs(self.similarity[None])

    @property
    def mean_head_similarity(self) -> float:
        """`head_similarity`, mean over heads and pairs of layers with the same block; NaN without any."""
        return _mean_of_pairs(self.head_similarity)

    def as_dict(self) -> dict[str, Any]:
        """As plain data; None in place of NaN."""
        return {
            "tokens": self.tokens,
            "blocks": list(self.blocks),
            "entropy": _plain(self.entropy),
            "distance": _plain(self.distance),
            "mean_similarity": _number(self.mean_similarity),
            "mean_head_similarity": _number(self.mean_head_similarity),
            "other_heads": _number(self.other_heads),
            "similarity": _plain(self.similarity),
            "head_similarity": _plain(self.head_similarity),
            "weights": _plain(self.weights),
        }


def attention_of_named(what: str | Path, text: str) -> AttentionMaps:
    """`attention_of` of a named model.

    Raises:
        AlbertineError: there is no such model, or the text cannot be read.
    """
    return attention_of(*named_model(what), text)


def attention_of(model: Model, tokenizer: Tokenizer, text: str) -> AttentionMaps:
    """The attention weights of a text, and what is computed from them.

    With halting, the layers are those that were computed until all tokens had halted; at a fixed point there
    is one.

    Raises:
        DataError: there is no text, or it is longer than the model. NotFinite: a weight is not finite.
            SettingsError: the model computes with int8.
    """
    ids, segments = model_input(model, tokenizer, text)
    with evaluating(model), torch.inference_mode():
        packed = pack([ids], [segments]).to(model.device)
        out = model.encoder(packed, attention_weights=True)
        weights = torch.stack([layer for (layer,) in out.attentions]).float().cpu()
    if not bool(weights.isfinite().all()):
        raise NotFinite
    weights = weights[: int(weights.flatten(1).any(1).sum())]  # layers after all have halted are zeros
    blocks = model.config.plan.attention[: len(weights)]
    by_head = torch.stack([similarities(maps) for maps in weights.transpose(0, 1)])
    same = torch.tensor([[a == b for b in blocks] for a in blocks])
    return AttentionMaps(
        tokens=[tokenizer.id_to_piece(token) for token in ids],
        blocks=blocks,
        weights=weights.numpy(),
        entropy=entropy(weights).mean(-1).numpy(),
        distance=distance(weights).numpy(),
        similarity=similarities(weights.mean(1)).numpy(),
        head_similarity=by_head.masked_fill(~same, math.nan).numpy(),
        other_heads=_mean_of_pairs(torch.stack([similarities(heads) for heads in weights]).numpy()),
    )


def entropy(weights: Tensor) -> Tensor:
    """Of distributions (..., L) in nats, (...)."""
    terms: Tensor = torch.special.xlogy(weights, weights)
    return -terms.sum(-1)


def distance(weights: Tensor) -> Tensor:
    """Mean distance in tokens between queries and keys of maps (..., L, L), (...)."""
    places = torch.arange(weights.shape[-1], dtype=weights.dtype)
    return (weights * (places[:, None] - places).abs()).sum(-1).mean(-1)


def similarities(maps: Tensor) -> Tensor:
    """1 - JS / ln 2 of all pairs of maps (M, L, L), mean over queries, (M, M)."""
    own = entropy(maps)
    found = torch.ones(len(maps), len(maps))
    for a in range(len(maps)):
        mixed = entropy((maps[a] + maps[a:]) / 2)  # JS is the entropy of the mean minus the mean entropy
        divergence = (mixed - (own[a] + own[a:]) / 2).mean(-1)
        found[a, a:] = found[a:, a] = (1 - divergence / math.log(2)).clamp(0, 1)
    return found.fill_diagonal_(1.0)


def _mean_of_pairs(tables: Floats) -> float:
    """Mean of the values above the diagonals of (S, M, M) that are not NaN; NaN if there are none."""
    above = tables[:, *np.triu_indices(tables.shape[1], 1)]
    known = above[~np.isnan(above)]
    return float(known.mean()) if known.size else math.nan


def _plain(values: Floats) -> Any:
    """Lists of numbers with six decimals, None in place of NaN."""
    if values.ndim:
        return [_plain(part) for part in values]
    return _number(float(values))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)
