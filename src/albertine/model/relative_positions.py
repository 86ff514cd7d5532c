"""How far rows are from each other, for attention by relative positions (Transformer-XL, Dai et al. 2019,
section 3.3; XLNet, Yang et al. 2019, 2.4)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.model.rotation import frequencies


def sinusoids_of(distances: Tensor, width: int) -> Tensor:
    """φ: the sines of a distance at width/2 frequencies, then the cosines, float32 (P, width)."""
    return sinusoids_by(distances, frequencies(width, 10000, distances.device))


def sinusoids_by(distances: Tensor, frequencies_C: Tensor) -> Tensor:
    """The same, of frequencies that are known already."""
    angles = distances[:, None] * frequencies_C
    return torch.cat([angles.sin(), angles.cos()], 1)


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
            the last is that of the last key, so that their scores are a shift of one another; None: unknown.
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
    _projected: dict[nn.Module, Tensor] = field(default_factory=dict, repr=False)
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

    def projected(self, layer: nn.Module) -> Tensor:
        """W_r·φ, (P, H): computed once a pass, however many depths share the layer."""
        if layer not in self._projected:
            self._projected[layer] = layer(self.table_PH)
        return self._projected[layer]


@dataclass(frozen=True, eq=False)
class KeysSeen:
    """Which keys some queries see.

    Attributes:
        each: bool (S, 1, L, M). some: whether a query sees any, bool (S, 1, L, 1); None: all do.
    """

    each: Tensor
    some: Tensor | None

    @classmethod
    def of(cls, each: Tensor) -> KeysSeen:
        some = each.any(-1, keepdim=True)
        return cls(each, None if some.device.type == "cpu" and bool(some.all()) else some)

    def first(self, n: int) -> KeysSeen:
        """Those of the first n queries of each sequence."""
        return KeysSeen(self.each[:, :, :n], None if self.some is None else self.some[:, :, :n])

    def after(self, n: int) -> KeysSeen:
        """Those of the queries behind the first n of each sequence."""
        return KeysSeen(self.each[:, :, n:], None if self.some is None else self.some[:, :, n:])


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

    @cached_property
    def segments(self) -> tuple[Tensor, Tensor]:
        """A 1 at the segment of each query and each key, int64 (S, 1, L, C) and (S, 1, M, C)."""
        largest = max(int(x.max()) if len(x) else 0 for x in (self.q_types, self.k_types))
        width = 8 * (1 + largest // 8)
        rows = (self.q_types, self.queries), (self.k_types, self.keys)
        asked, looked_at = (F.one_hot(x, width).view(self.count, 1, n, width) for x, n in rows)
        return asked, looked_at

    def heads(self, x: Tensor) -> Tensor:
        """Rows (S·L, N, D) as (S, N, L, D)."""
        return x.view(self.count, -1, *x.shape[1:]).transpose(1, 2).contiguous()


def shifted_scores(q_SNLD: Tensor, table_PND: Tensor, group: EqualSequences) -> Tensor:
    """qᵢ·W_r·φ(i - j) of the leading queries, (S, N, n, M).

    They look nothing up: their products with the table, read with rows that are one shorter, are the scores.
    Of n queries and distances from M down to 1 - n, element (i, j) is column j + n - i
    (xlnet_and_relatives.md, section 2); no number is copied.

    Args:
        q_SNLD: queries with the bias of positions. table_PND: W_r·φ from `farthest` to -`farthest`.
    """
    n, keys = q_SNLD.shape[2], group.keys
    directed_PND = table_PND.flip(0) if group.backward else table_PND
    near_NDP = directed_PND[group.farthest - keys : group.farthest + n].permute(1, 2, 0)
    scores = (q_SNLD @ near_NDP).contiguous()
    s, h, row, column = scores.stride()
    return scores.as_strided((*scores.shape[:3], keys), (s, h, row - column, column), n)


def looked_up_scores(q_SNLD: Tensor, table_PND: Tensor, group: EqualSequences) -> Tensor:
    """The same of the queries behind the leading ones, wherever they stand."""
    directed_PND = table_PND.flip(0) if group.backward else table_PND
    scores = q_SNLD @ directed_PND.permute(1, 2, 0)
    return scores.gather(3, group.columns[:, None].expand(-1, scores.shape[1], -1, -1))
