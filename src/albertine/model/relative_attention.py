"""Self-attention by relative positions, and by whether two rows are of one segment: the block of
Transformer-XL and XLNet."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from albertine.model.backend import current
from albertine.model.config import EncoderConfig
from albertine.model.equal_sequences import grouped
from albertine.model.layers import Linear
from albertine.model.prepared_inputs import PreparedAttentionBlock
from albertine.model.relative_positions import EqualSequences, looked_up_scores, shifted_scores
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


class RelativeAttentionBlock(PreparedAttentionBlock):
    """5H² parameters of self-attention, 3H of `RelativeBiases`, 2H of segments, and the 2H of its LayerNorm
    (Yang et al. 2019, sections 2.4 and 2.5; zihangdai/xlnet, `modeling.py`).

    Attributes:
        segments: (2, N, D), of keys in the segment of the query and in another; None: all are alike.
        biases: None where `relative_biases` is "tied" and the first block has them for all.
    """

    def __init__(self, config: EncoderConfig, first: RelativeAttentionBlock | None = None) -> None:
        super().__init__(config)
        self.position = Linear(config.hidden_size, config.hidden_size, bias=False)
        shape = 2, self.num_heads, self.head_size
        self.segments = nn.Parameter(torch.zeros(shape)) if config.type_vocab_size else None
        self.told_apart = config.type_vocab_size > 1  # of one kind, a second text is of that too
        tied = first is not None and config.relative_biases == "tied"
        self.biases = None if tied else RelativeBiases(config)
        # In a tuple it is no part of this module, and a parameter has one name.
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
        together = grouped(distances, queries, keys)
        each = zip(together.groups, together.split(q_RND, k_TND, v_TND), strict=True)
        return together.joined([self.mixed(group, *qkv, table_NDP) for group, qkv in each])

    def mixed(self, group: EqualSequences, q: Tensor, k: Tensor, v: Tensor, table_NDP: Tensor) -> Tensor:
        """softmax(scores / √D)·v of some sequences of equal shape, from and to rows (…, N, D)."""
        ops = current()
        q, k, v = group.heads(q * self.head_size**-0.5), group.heads(k), group.heads(v)
        content, position, segment = self.biased(q)
        if segment is not None and self.told_apart:
            content, k = self.with_segments(content, k, segment, group)
        directed_NDP, dropout = group.directed(table_NDP), self.training * self.attention_dropout
        parts = []
        for some in group.parts:
            scored = shifted_scores if some.start < group.leading else looked_up_scores
            added = scored(position, directed_NDP, group, some)
            parts.append(ops.attend_scored(content[:, :, some], k, v, added, group.seen_by(some), dropout))
        mixed_SNLD = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
        return mixed_SNLD.transpose(1, 2).flatten(0, 1)

    def biased(self, q_SNLD: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries as they are compared with contents, with positions, and with segments; they are divided by
        √D already."""
        biases = self._first[0].biases if self.biases is None else self.biases
        assert biases is not None
        each = biases.content, biases.position, biases.segment
        scale = self.head_size**-0.5
        content, position, segment = (
            None if b is None else q_SNLD + scale * current().cast(b, q_SNLD.dtype)[:, None] for b in each
        )
        return content, position, segment  # type: ignore[return-value]

    def with_segments(
        self, content_SNLD: Tensor, k_SNMD: Tensor, q_SNLD: Tensor, group: EqualSequences
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys with a few more coordinates, whose product is the score of their segments.

        A query's scores are two numbers, and softmax takes no notice of what is added to both: it is enough
        to add their difference where key and query are of one segment. The coordinates are the segments, of
        which a key has a 1 at its own and a query that difference.
        """
        assert self.segments is not None
        same_ND, differ_ND = current().cast(self.segments, q_SNLD.dtype)
        difference_SNL1 = q_SNLD @ (same_ND - differ_ND)[..., None]
        queries_SNLC = difference_SNL1 * group.segments[0].to(q_SNLD.dtype)
        keys_SNMC = group.segments[1].to(k_SNMD.dtype).expand(-1, self.num_heads, -1, -1)
        return torch.cat([content_SNLD, queries_SNLC], 3), torch.cat([k_SNMD, keys_SNMC], 3)
