"""Self-attention by relative positions and by whether two tokens share a segment: the block of Transformer-XL
and XLNet."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.model.attention import TransformedAttentionBlock
from albertine.model.backend import Linear, current
from albertine.model.config import EncoderConfig
from albertine.model.positions.relative import (
    SequenceGroup,
    gathered_scores,
    shifted_scores,
    sinusoids,
)
from albertine.model.positions.rotary import frequencies
from albertine.model.positions.sequence_groups import group_sequences, trace_distances, with_distances
from albertine.model.rows import Rows


class RelativeBiases(nn.Module):
    """Biases of the queries for contents, positions and segments, each (N, D); `segment` is None without
    segments."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        shape = config.num_attention_heads, config.head_size
        self.content = nn.Parameter(torch.zeros(shape))
        self.position = nn.Parameter(torch.zeros(shape))
        self.segment = nn.Parameter(torch.zeros(shape)) if config.type_vocab_size else None


class RelativeAttentionBlock(TransformedAttentionBlock):
    """Relative self-attention (Yang et al. 2019, sections 2.4 and 2.5; zihangdai/xlnet, `modeling.py`): 5H²
    parameters, 3H of `RelativeBiases`, 2H of segments, and 2H of its LayerNorm.

    Attributes:
        segments: (2, N, D), for keys in the segment of the query and in another one; None: no segments.
        biases: None where `relative_biases` is "tied" and the first block holds them.
    """

    def __init__(self, config: EncoderConfig, first: RelativeAttentionBlock | None = None) -> None:
        super().__init__(config)
        self.position = Linear(config.hidden_size, config.hidden_size, bias=False)
        shape = 2, self.num_heads, self.head_size
        self.segments = nn.Parameter(torch.zeros(shape)) if config.type_vocab_size else None
        self.uses_segments = config.type_vocab_size > 1  # with one segment id all tokens share a segment
        tied = first is not None and config.relative_biases == "tied"
        self.biases = None if tied else RelativeBiases(config)
        # In a tuple it is not registered as a submodule, and its parameters keep one name.
        self._first: tuple[RelativeAttentionBlock, ...] = (first,) if tied and first is not None else ()

    def attend(self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows) -> Tensor:
        """softmax(scores / √D)·v inside each sequence, (R, N, D). The score of query i and key j is

            (qᵢ + content)·kⱼ + (qᵢ + position)·W_r·φ(i - j) + (qᵢ + segment)·segments[i and j differ].

        Args:
            queries: with `distances`.
        """
        distances = queries.distances
        assert distances is not None
        table_NDP = distances.projected(self.position, self.num_heads)
        grouped = group_sequences(distances, queries, keys)
        each = zip(grouped.groups, grouped.split(q_RND, k_TND, v_TND), strict=True)
        return grouped.join([self.attend_group(group, *qkv, table_NDP) for group, qkv in each])

    def prepare(self, queries: Rows) -> None:
        assert queries.distances is not None
        queries.distances.projected(self.position, self.num_heads)

    def attend_group(
        self, group: SequenceGroup, q: Tensor, k: Tensor, v: Tensor, table_NDP: Tensor
    ) -> Tensor:
        """softmax(scores / √D)·v of sequences of equal shape, from and to rows (…, N, D)."""
        ops = current()
        q, k, v = group.heads(q * self.head_size**-0.5), group.heads(k), group.heads(v)
        content, position, segment = self.biased(q)
        if segment is not None and self.uses_segments:
            content, k = self.with_segments(content, k, segment, group)
        directed_NDP, dropout = group.directed(table_NDP), self.training * self.attention_dropout
        parts = []
        for part in group.parts:
            score = shifted_scores if part.start < group.leading else gathered_scores
            bias = score(position, directed_NDP, group, part)
            parts.append(ops.attend_scored(content[:, :, part], k, v, bias, group.key_mask_of(part), dropout))
        mixed_SNLD = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
        return mixed_SNLD.transpose(1, 2).flatten(0, 1)

    def biased(self, q_SNLD: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries, already divided by √D, with the biases for contents, positions and segments."""
        biases = self._first[0].biases if self.biases is None else self.biases
        assert biases is not None
        each = biases.content, biases.position, biases.segment
        scale = self.head_size**-0.5
        content, position, segment = (
            None if b is None else q_SNLD + scale * current().cast(b, q_SNLD.dtype)[:, None] for b in each
        )
        return content, position, segment  # type: ignore[return-value]

    def with_segments(
        self, content_SNLD: Tensor, k_SNMD: Tensor, q_SNLD: Tensor, group: SequenceGroup
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys with C more coordinates, whose product is the score of their segments.

        Softmax is invariant to a constant added to all scores of a query, so only the difference between its
        two segment scores is added, where key and query share a segment: a key is one-hot at its segment, and
        a query has the difference at its own.
        """
        assert self.segments is not None
        same_ND, differ_ND = current().cast(self.segments, q_SNLD.dtype)
        difference_SNL1 = q_SNLD @ (same_ND - differ_ND)[..., None]
        queries_SNLC = difference_SNL1 * group.segments[0].to(q_SNLD.dtype)
        keys_SNMC = group.segments[1].to(k_SNMD.dtype).expand(-1, self.num_heads, -1, -1)
        return torch.cat([content_SNLD, queries_SNLC], 3), torch.cat([k_SNMD, keys_SNMC], 3)


def with_relative_positions(
    rows: Rows, config: EncoderConfig, like: Tensor, *, training: bool, longest: int | None
) -> Rows:
    """The rows with their `distances`, as `registry.AddPositions`."""
    dropout = training * config.hidden_dropout_prob

    def table(distances: Tensor) -> Tensor:
        rates = frequencies(config.hidden_size, 10000, like.device)
        table_PH = sinusoids(_clamped(distances, config), rates).to(like.dtype)
        return F.dropout(table_PH, dropout, dropout > 0)  # as in XLNet's code

    return with_distances(rows, table, longest)


def trace_relative_positions(
    rows: Rows, config: EncoderConfig, constants: Tensor, batch: int, length: int
) -> Rows:
    """The same, as `registry.TracePositions`."""

    def table(distances: Tensor) -> Tensor:
        return sinusoids(_clamped(distances, config), constants)

    return trace_distances(rows, table, batch, length)


def _clamped(distances: Tensor, config: EncoderConfig) -> Tensor:
    most = config.clamp_positions
    return distances.clamp(-most, most) if most > 0 else distances
