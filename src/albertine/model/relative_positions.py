"""How far rows are from each other, for attention by relative positions (Transformer-XL, Dai et al. 2019,
section 3.3; XLNet, Yang et al. 2019, 2.4)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.model.backend import current
from albertine.model.rotation import frequencies


def sinusoids_of(distances: Tensor, width: int) -> Tensor:
    """φ: the sines of a distance at width/2 frequencies, then the cosines, float32 (P, width)."""
    return sinusoids_by(distances, frequencies(width, 10000, distances.device))


def sinusoids_by(distances: Tensor, frequencies_C: Tensor) -> Tensor:
    """The same, of frequencies that are known already."""
    angles = distances[:, None] * frequencies_C
    return torch.cat([angles.sin(), angles.cos()], 1)


ROWS = 128
"""About so many queries are compared with the table at once: n of M keys read M + n distances."""


@dataclass(frozen=True, eq=False)
class Distances:
    """What one pass knows of the places of its rows. A distance is a query's place minus a key's: what is to
    the left of a query is at a positive one.

    Attributes:
        table_PH: φ of the distances from `farthest` down to -`farthest`, clamped, in the format of the pass.
        farthest: no two rows of a sequence are farther apart than that.
        backward: of each sequence, whether its text is reversed: its distances then change their sign. None:
            no sequence is.
        leading: how many first queries of each sequence stand at consecutive places, as keys do, of which
            the last is that of the last key, so that their scores are a shift of one another; the
            others stand at places of these. None: unknown.
        reach: a query sees no key at a larger distance; None: it may.
        masks: bool (L, M) for each sequence, the keys that its queries may see, where two integers a token
            cannot say it; None: nothing is to be said.
        all_alike: the group that all sequences are of, where that is known; None: `grouped` finds groups.
        groups: what it found, with the rows, by their ids.
    """

    table_PH: Tensor
    farthest: int
    backward: tuple[bool, ...] | None = None
    leading: tuple[int, ...] | None = None
    reach: int | None = None
    masks: tuple[Tensor, ...] | None = None
    all_alike: EqualSequences | None = None
    _projected: dict[tuple[nn.Module, bool], Tensor] = field(default_factory=dict, repr=False)
    groups: dict[tuple[int, int], tuple[object, object, Any]] = field(default_factory=dict, repr=False)

    @classmethod
    def table(cls, farthest: int, width: int, clamp: int, like: Tensor, dropout: float = 0.0) -> Tensor:
        """`table_PH` for H = `width`, of the device and format of `like`.

        Args:
            clamp: larger distances count as this one; 0: none does.
            dropout: of the table, as in XLNet's code.
        """
        distances = torch.arange(farthest, -farthest - 1, -1, device=like.device)
        near = distances.clamp(-clamp, clamp) if clamp > 0 else distances
        return F.dropout(sinusoids_of(near, width).to(like.dtype), dropout, dropout > 0)

    def anywhere(self) -> Distances:
        """The same for some of the queries, of whose places nothing is known."""
        return replace(self, leading=None)

    def projected(self, layer: nn.Module, heads: int) -> Tensor:
        """W_r·φ, (N, D, P): computed once a pass, however many depths share the layer. Every head's numbers
        lie together, as do their gradients, which many groups and depths add to."""
        key = layer, torch.is_grad_enabled()
        if key not in self._projected:
            table_PND = layer(self.table_PH).unflatten(1, (heads, -1))
            self._projected[key] = table_PND.permute(1, 2, 0).contiguous()
        return self._projected[key]


@dataclass(frozen=True, eq=False)
class KeysSeen:
    """Which keys some queries see.

    Attributes:
        each: bool (S, 1, L, M). some: whether a query sees any, bool (S, 1, L, 1); None: all do.
    """

    each: Tensor
    some: Tensor | None
    _hiding: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, each: Tensor) -> KeysSeen:
        some = each.any(-1, keepdim=True)
        return cls(each, None if some.device.type == "cpu" and bool(some.all()) else some)

    def hiding(self, dtype: torch.dtype) -> Tensor:
        """What is added to the scores, (S, 1, L, M): the least number there is at keys that are not seen, but
        not where none is: in float16 all scores could become infinite. Adding costs a quarter of putting in,
        one by one, what a permutation scatters."""
        if dtype not in self._hiding:
            hidden = self.each.logical_not()
            hidden = hidden if self.some is None else hidden.logical_and_(self.some)
            self._hiding[dtype] = hidden.to(dtype).mul_(torch.finfo(dtype).min)
        return self._hiding[dtype]

    def part(self, rows: slice) -> KeysSeen:
        """Those of some queries of each sequence."""
        return KeysSeen(self.each[:, :, rows], None if self.some is None else self.some[:, :, rows])


@dataclass(frozen=True, eq=False)
class EqualSequences:
    """Some neighbouring sequences of equal shape.

    Attributes:
        count: how many. queries, keys: rows of each, L and M. backward, leading, farthest: as in `Distances`.
        columns: of the queries behind the leading ones, where the distance to each key stands in the table,
            int64 (S, L - leading, M).
        seen: which keys the queries see; None: all.
        q_types, k_types: the segment of each row, int64 (S·L,) and (S·M,).
    """

    count: int
    queries: int
    keys: int
    backward: bool
    leading: int
    farthest: int
    columns: Tensor
    seen: KeysSeen | None
    q_types: Tensor
    k_types: Tensor
    _seen_by: dict[int, KeysSeen | None] = field(default_factory=dict, repr=False)

    @cached_property
    def segments(self) -> tuple[Tensor, Tensor]:
        """A 1 at the segment of each query and each key, int64 (S, 1, L, C) and (S, 1, M, C)."""
        largest = max(int(x.max()) if len(x) else 0 for x in (self.q_types, self.k_types))
        width = 8 * (1 + largest // 8)
        rows = (self.q_types, self.queries), (self.k_types, self.keys)
        asked, looked_at = (F.one_hot(x, width).view(self.count, 1, n, width) for x, n in rows)
        return asked, looked_at

    @cached_property
    def parts(self) -> list[slice]:
        """The queries that are computed at once: about `ROWS` leading ones, which read little more of the
        table than they have keys, and all that stand behind these."""
        most = -(-self.leading // max(1, round(self.leading / ROWS)))
        firsts = [*range(0, self.leading, max(1, most))]
        if self.leading < self.queries or not firsts:
            firsts.append(self.leading)
        return [slice(*ends) for ends in zip(firsts, [*firsts[1:], None], strict=True)]

    def seen_by(self, some: slice) -> KeysSeen | None:
        """`seen` of one of the parts, made once a pass."""
        if some.start not in self._seen_by:
            self._seen_by[some.start] = self.seen and self.seen.part(some)
        return self._seen_by[some.start]

    def directed(self, table_NDP: Tensor) -> Tensor:
        """W_r·φ as the sequences read it: a reversed text has distances of the other sign."""
        return table_NDP.flip(2) if self.backward else table_NDP

    @cached_property
    def near(self) -> tuple[slice, Tensor]:
        """The part of the table that can be looked up, and `columns` in it: beside leading queries distances
        from M down to 1 - n."""
        if not self.leading:
            return slice(None), self.columns
        first, end = self.farthest - self.keys, self.farthest + self.leading
        return slice(first, end), self.columns - first

    def heads(self, x: Tensor) -> Tensor:
        """Rows (S·L, N, D) as (S, N, L, D)."""
        return x.view(self.count, -1, *x.shape[1:]).transpose(1, 2).contiguous()


def shifted_scores(q_SNLD: Tensor, directed_NDP: Tensor, group: EqualSequences, some: slice) -> Tensor:
    """qᵢ·W_r·φ(i - j) of some leading queries, (S, N, n, M).

    They look nothing up: their products with the table, read with rows that are one shorter, are the scores.
    Of n queries and distances from M down to 1 - n, element (i, j) is column j + n - i, as after
    the official `rel_shift` (zihangdai/xlnet, `modeling.py`); no number is copied.

    Args:
        q_SNLD: all queries, with the bias of positions. directed_NDP: `group.directed` of W_r·φ.
    """
    q_SNLD, nearest = q_SNLD[:, :, some], group.farthest + group.leading - some.start
    n = q_SNLD.shape[2]
    scores = _compared(q_SNLD, directed_NDP[:, :, nearest - group.keys - n : nearest])
    s, h, row, column = scores.stride()
    return scores.as_strided((*scores.shape[:3], group.keys), (s, h, row - column, column), n)


def looked_up_scores(q_SNLD: Tensor, directed_NDP: Tensor, group: EqualSequences, some: slice) -> Tensor:
    """The same of queries behind the leading ones, wherever they stand."""
    near, columns = group.near
    scores = _compared(q_SNLD[:, :, some], directed_NDP[:, :, near])
    return scores.gather(3, columns[:, None].expand(-1, scores.shape[1], -1, -1))


def _compared(q_SNLD: Tensor, table_NDP: Tensor) -> Tensor:
    """Products with the table, (S, N, L, P). The queries of all sequences are the rows of one product a head,
    whose gradient for the table is one product as well, and no sum over sequences."""
    sequences, heads, length, _ = q_SNLD.shape
    rows_NRD = q_SNLD.transpose(0, 1).flatten(1, 2)
    rows_NRD, table_NPD = current().apart(rows_NRD, table_NDP.transpose(1, 2))
    scores_NRP = rows_NRD @ table_NPD.transpose(1, 2)
    return scores_NRP.view(heads, sequences, length, scores_NRP.shape[2]).transpose(0, 1)
