"""Distances between tokens for attention by relative positions (Transformer-XL, Dai et al. 2019, section 3.3;
XLNet, Yang et al. 2019, 2.4)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.model.backend import current

LENGTH_MULTIPLE = 16
"""Sequences are padded to a multiple of this number of queries (`sequence_groups.py`)."""

QUERIES_AT_ONCE = 128
"""About this many queries are compared with the table at once: n queries and M keys have M + n distances."""


def sinusoids(distances: Tensor, frequencies_C: Tensor) -> Tensor:
    """φ: the sines of a distance at these frequencies, then the cosines, float32 (P, 2C)."""
    angles = distances[:, None] * frequencies_C
    return torch.cat([angles.sin(), angles.cos()], 1)


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances between the rows of one pass: the position of the query minus that of the key, so tokens to
    the left of a query have positive distances.

    Attributes:
        table_PH: what attention reads of the distances from `farthest` down to -`farthest`, in the format of
            the pass: φ of them.
        farthest: upper bound of the distance within a sequence.
        backward: for each sequence, whether its text is reversed, which changes the sign of its distances.
            None: no sequence is.
        leading: for each sequence, how many of its first queries have consecutive positions, as its keys
            have, the last of them that of the last key: their scores are shifted views of one table. The
            other queries have positions of these. None: unknown.
        reach: maximum distance of a visible key; None: any.
        masks: bool (L, M) for each sequence, its visible keys, where `Visibility` cannot express them; None:
            no such mask.
        single_group: the group of all sequences where it is known; None: `group_sequences` finds the groups.
        groups: its results, by the ids of their rows.
    """

    table_PH: Tensor
    farthest: int
    backward: tuple[bool, ...] | None = None
    leading: tuple[int, ...] | None = None
    reach: int | None = None
    masks: tuple[Tensor, ...] | None = None
    single_group: SequenceGroup | None = None
    _projected: dict[tuple[nn.Module, bool], Tensor] = field(default_factory=dict, repr=False)
    groups: dict[tuple[int, int], tuple[object, object, Any]] = field(default_factory=dict, repr=False)

    def without_leading(self) -> Distances:
        """For a selection of the queries, whose positions are arbitrary."""
        return replace(self, leading=None)

    def projected(self, layer: nn.Module, heads: int) -> Tensor:
        """W_r·φ, (N, D, P), computed once a pass for all layers that share `layer`. Each head is contiguous,
        as are the gradients that many groups and layers add to."""
        key = layer, torch.is_grad_enabled()
        if key not in self._projected:
            table_PND = layer(self.table_PH).unflatten(1, (heads, -1))
            self._projected[key] = table_PND.permute(1, 2, 0).contiguous()
        return self._projected[key]


@dataclass(frozen=True, eq=False)
class KeyMask:
    """Visible keys of some queries.

    Attributes:
        visible: bool (S, 1, L, M).
        any_visible: whether a query sees any key, bool (S, 1, L, 1); None: all do.
    """

    visible: Tensor
    any_visible: Tensor | None
    _additive: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, visible: Tensor) -> KeyMask:
        some = visible.any(-1, keepdim=True)
        return cls(visible, None if some.device.type == "cpu" and bool(some.all()) else some)

    def additive(self, dtype: torch.dtype) -> Tensor:
        """Added to the scores, (S, 1, L, M): the least finite number at invisible keys, except for queries
        without a visible key, whose scores could all become infinite in float16. Adding takes a quarter of
        the time of `masked_fill` with the scattered mask of a permutation."""
        if dtype not in self._additive:
            hidden = self.visible.logical_not()
            hidden = hidden if self.any_visible is None else hidden.logical_and_(self.any_visible)
            self._additive[dtype] = hidden.to(dtype).mul_(torch.finfo(dtype).min)
        return self._additive[dtype]

    def part(self, queries: slice) -> KeyMask:
        """That of some queries of each sequence."""
        some = None if self.any_visible is None else self.any_visible[:, :, queries]
        return KeyMask(self.visible[:, :, queries], some)


@dataclass(frozen=True, eq=False)
class SequenceGroup:
    """Sequences of equal shape that are computed together.

    Attributes:
        count: S, the number of sequences. queries, keys: rows of each, L and M.
        backward, leading, farthest: as in `Distances`.
        columns: for the queries after the leading ones, the column of each key's distance in the table, int64
            (S, L - leading, M).
        key_mask: the visible keys; None: all.
        q_types, k_types: segment ids, int64 (S·L,) and (S·M,).
    """

    count: int
    queries: int
    keys: int
    backward: bool
    leading: int
    farthest: int
    columns: Tensor
    key_mask: KeyMask | None
    q_types: Tensor
    k_types: Tensor
    _mask_parts: dict[int, KeyMask | None] = field(default_factory=dict, repr=False)

    @cached_property
    def segments(self) -> tuple[Tensor, Tensor]:
        """One-hot segments of queries and keys, int64 (S, 1, L, C) and (S, 1, M, C)."""
        largest = max(int(x.max()) if len(x) else 0 for x in (self.q_types, self.k_types))
        width = 8 * (1 + largest // 8)
        rows = (self.q_types, self.queries), (self.k_types, self.keys)
        queries, keys = (F.one_hot(x, width).view(self.count, 1, n, width) for x, n in rows)
        return queries, keys

    @cached_property
    def parts(self) -> list[slice]:
        """Queries that are computed at once: about `QUERIES_AT_ONCE` leading ones, which read little more of
        the table than they have keys, and all queries after the leading ones."""
        most = -(-self.leading // max(1, round(self.leading / QUERIES_AT_ONCE)))
        firsts = [*range(0, self.leading, max(1, most))]
        if self.leading < self.queries or not firsts:
            firsts.append(self.leading)
        return [slice(*ends) for ends in zip(firsts, [*firsts[1:], None], strict=True)]

    def key_mask_of(self, part: slice) -> KeyMask | None:
        """`key_mask` of one of the parts, built once a pass."""
        if part.start not in self._mask_parts:
            self._mask_parts[part.start] = self.key_mask and self.key_mask.part(part)
        return self._mask_parts[part.start]

    def directed(self, table_NDP: Tensor) -> Tensor:
        """W_r·φ in the direction of the text: reversed texts have distances of the opposite sign."""
        return table_NDP.flip(2) if self.backward else table_NDP

    @cached_property
    def near(self) -> tuple[slice, Tensor]:
        """The part of the table that `columns` refer to, and `columns` within it: with leading queries,
        distances from M down to 1 - n."""
        if not self.leading:
            return slice(None), self.columns
        first, end = self.farthest - self.keys, self.farthest + self.leading
        return slice(first, end), self.columns - first

    def heads(self, x: Tensor) -> Tensor:
        """Rows (S·L, N, D) as (S, N, L, D)."""
        return x.view(self.count, -1, *x.shape[1:]).transpose(1, 2).contiguous()


@dataclass(frozen=True, eq=False)
class TableSequences(SequenceGroup):
    """All sequences of a padded batch in an exported graph."""

    @classmethod
    def of(cls, batch: int, length: int, token_types: Tensor) -> TableSequences:
        """
        Args:
            batch, length: sizes of the batch, which are symbols. token_types: int64 (batch · length,).
        """
        positions = torch.arange(length, device=token_types.device)
        columns = (length - (positions[:, None] - positions)).expand(batch, length, length)
        return cls(batch, length, length, False, 0, length, columns, None, token_types, token_types)

    @property  # type: ignore[override]
    def segments(self) -> tuple[Tensor, Tensor]:
        """As in `SequenceGroup`, for segments 0 to 7: a graph cannot know which there are."""
        kinds = torch.arange(8, device=self.q_types.device)
        rows = (self.q_types, self.queries), (self.k_types, self.keys)
        queries, keys = ((types.view(self.count, 1, n, 1) == kinds).to(torch.int64) for types, n in rows)
        return queries, keys


def shifted_scores(q_SNLD: Tensor, directed_NDP: Tensor, group: SequenceGroup, part: slice) -> Tensor:
    """qᵢ·W_r·φ(i - j) of some leading queries, (S, N, n, M).

    Their products with the table, viewed with rows one shorter, are the scores: of n queries and distances
    from M down to 1 - n, element (i, j) is column j + n - i, as after the official `rel_shift`
    (zihangdai/xlnet, `modeling.py`), without a copy.

    Args:
        q_SNLD: all queries, with the bias for positions. directed_NDP: `group.directed` of W_r·φ.
    """
    q_SNLD, nearest = q_SNLD[:, :, part], group.farthest + group.leading - part.start
    n = q_SNLD.shape[2]
    scores = _table_scores(q_SNLD, directed_NDP[:, :, nearest - group.keys - n : nearest])
    s, h, row, column = scores.stride()
    return scores.as_strided((*scores.shape[:3], group.keys), (s, h, row - column, column), n)


def gathered_scores(q_SNLD: Tensor, directed_NDP: Tensor, group: SequenceGroup, part: slice) -> Tensor:
    """The same for queries after the leading ones, at arbitrary positions."""
    near, columns = group.near
    scores = _table_scores(q_SNLD[:, :, part], directed_NDP[:, :, near])
    return scores.gather(3, columns[:, None].expand(-1, scores.shape[1], -1, -1))


def _table_scores(q_SNLD: Tensor, table_NDP: Tensor) -> Tensor:
    """Products with the table, (S, N, L, P). The queries of all sequences are the rows of one product a head,
    so its gradient for the table is one product too, without a sum over sequences."""
    sequences, heads, length, _ = q_SNLD.shape
    rows_NRD = q_SNLD.transpose(0, 1).flatten(1, 2)
    rows_NRD, table_NPD = current().pad_columns(rows_NRD, table_NDP.transpose(1, 2))
    scores_NRP = rows_NRD @ table_NPD.transpose(1, 2)
    return scores_NRP.view(heads, sequences, length, scores_NRP.shape[2]).transpose(0, 1)
