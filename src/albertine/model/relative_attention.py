"""Self-attention by relative positions, and by whether two rows are of one segment: the block of
Transformer-XL and XLNet."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from albertine.model.backend import current
from albertine.model.block import Block, Linear, Own
from albertine.model.config import EncoderConfig
from albertine.model.injection import injected
from albertine.model.key_value_cache import Past
from albertine.model.relative_positions import position_scores
from albertine.model.rows import Rows


class RelativeBiases(nn.Module):
    """What is added to a query before it is compared with contents, positions and segments, each (N, D);
    `segment` is None where segments are not told apart."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        shape = config.num_attention_heads, config.head_size
        self.content = nn.Parameter(torch.zeros(shape))
        self.position = nn.Parameter(torch.zeros(shape))
        self.segment = nn.Parameter(torch.zeros(shape)) if config.type_vocab_size else None


class RelativeAttentionBlock(Block):
    """5H² parameters of self-attention, 3H of `RelativeBiases`, 2H of segments, and the 2H of its LayerNorm
    (Yang et al. 2019, sections 2.4 and 2.5; xlnet_and_relatives.md, section 2).

    Attributes:
        segments: (2, N, D), of keys in the segment of the query and in another; None: all are alike.
        biases: None where `relative_biases` is "tied" and the first block has them for all.
    """

    def __init__(self, config: EncoderConfig, first: RelativeAttentionBlock | None = None) -> None:
        super().__init__(config)
        hidden = config.hidden_size
        self.num_heads, self.head_size = config.num_attention_heads, config.head_size
        self.attention_dropout = config.attention_probs_dropout_prob
        self.query = Linear(hidden, hidden, bias=False)
        self.key = Linear(hidden, hidden, bias=False)
        self.value = Linear(hidden, hidden, bias=False)
        self.position = Linear(hidden, hidden, bias=False)
        self.output = Linear(hidden, hidden, bias=False)
        shape = 2, self.num_heads, self.head_size
        self.segments = nn.Parameter(torch.zeros(shape)) if config.type_vocab_size else None
        tied = first is not None and config.relative_biases == "tied"
        self.biases = None if tied else RelativeBiases(config)
        # In a tuple it is no part of this module, and a parameter has one name.
        self._first: tuple[RelativeAttentionBlock, ...] = (first,) if tied and first is not None else ()

    def forward(
        self,
        x_RH: Tensor,
        context_TH: Tensor,
        queries: Rows,
        keys: Rows,
        past: Past | None = None,
        own: Own | None = None,
    ) -> Tensor:
        """x + output(softmax(scores / √D)·v) inside each sequence, with a LayerNorm behind or before, (R, H).
        The score of query i and key j is

            (qᵢ + content)·kⱼ + (qᵢ + position)·W_r·φ(i - j) + (qᵢ + segment)·segments[i and j differ].

        Args: as of `AttentionBlock`; `queries.distances` is needed.
        """
        ops, distances = current(), queries.distances
        assert distances is not None
        read_RH, context_RH = x_RH, context_TH
        if self.pre:
            read_RH = self.normed(x_RH, own)
            context_RH = read_RH if context_TH is x_RH else self.normed(context_TH, own)
        layers, inputs = (self.query, self.key, self.value), (read_RH, context_RH, context_RH)
        shape = -1, self.num_heads, self.head_size
        found = injected(ops.linears(layers, inputs), queries, queries if past is not None else keys)
        q_RND, k_TND, v_TND = (y.view(shape) for y in found)
        if past is not None:
            k_TND, v_TND = past.extend(k_TND, v_TND)
        projected_PND = distances.projected(self.position).view(shape)
        dropout = self.training * self.attention_dropout
        groups = distances.groups(queries, keys)
        q_sizes = [g.count * g.queries for g in groups]
        k_sizes = [g.count * g.keys for g in groups]
        split = (
            q_RND.split_with_sizes(q_sizes),
            k_TND.split_with_sizes(k_sizes),
            v_TND.split_with_sizes(k_sizes),
        )
        parts = []
        for group, q, k, v in zip(groups, *split, strict=True):
            q, k, v = (
                y.view(group.count, length, *y.shape[1:]).transpose(1, 2)
                for y, length in ((q, group.queries), (k, group.keys), (v, group.keys))
            )
            content, by_position, by_segment = self.biased(q)
            distance = group.of_queries(queries.positions) - group.of_keys(keys.positions)
            added = position_scores(by_position, projected_PND, group, distance, distances.farthest)
            if by_segment is not None:
                other = group.of_queries(queries.token_types) != group.of_keys(keys.token_types)
                added = added + self.segment_scores(by_segment, other[:, None])
            seen = distances.seen(group, queries, keys)
            mixed = ops.attend_scored(content, k, v, added, seen, dropout)
            parts.append(mixed.transpose(1, 2).reshape(-1, *shape[1:]))
        mixed_RND = parts[0] if len(parts) == 1 else torch.cat(parts)
        return self.added(self.output, mixed_RND.flatten(1), x_RH, read_RH, own)

    def biased(self, q_SNLD: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries as they are compared with contents, with positions, and with segments."""
        biases = self._first[0].biases if self.biases is None else self.biases
        assert biases is not None
        each = biases.content, biases.position, biases.segment
        content, position, segment = (
            None if bias is None else q_SNLD + current().cast(bias, q_SNLD.dtype)[:, None] for bias in each
        )
        return content, position, segment  # type: ignore[return-value]

    def segment_scores(self, q_SNLD: Tensor, other_S1LM: Tensor) -> Tensor:
        """qᵢ·segments[i and j differ], (S, N, L, M)."""
        assert self.segments is not None
        segments_ND2 = current().cast(self.segments, q_SNLD.dtype).permute(1, 2, 0)
        same_SNL1, differ_SNL1 = (q_SNLD @ segments_ND2).split_with_sizes([1, 1], 3)
        return torch.where(other_S1LM, differ_SNL1, same_SNL1)
