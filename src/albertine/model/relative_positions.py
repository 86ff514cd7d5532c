"""How far rows are from each other, for attention by relative positions (Transformer-XL, Dai et al. 2019,
section 3.3; XLNet, Yang et al. 2019, 2.4)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from albertine.model.rows import Rows


def sinusoids_of(distances: Tensor, width: int) -> Tensor:
    """φ: the sines of a distance at width/2 frequencies, then the cosines, float32 (P, width)."""
    slowing = 10000 ** -(torch.arange(0, width, 2, device=distances.device) / width)
    angles = distances[:, None] * slowing
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
    """

    table_PH: Tensor
    farthest: int
    backward: tuple[bool, ...] | None = None
    leading: tuple[int, ...] | None = None
    reach: int | None = None
    masks: tuple[Tensor, ...] | None = None
    _projected: dict[nn.Module, Tensor] = field(default_factory=dict, repr=False)

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

    def groups(self, queries: Rows, keys: Rows) -> list[EqualSequences]:
        """Neighbouring sequences of one shape and direction."""
        q_sizes, k_sizes = queries.known_lengths(), keys.known_lengths()
        unknown = (0,) * len(q_sizes)
        # A batch may have been filled up with one more sequence, of which nothing was said.
        backward, leading = ((*(known or unknown), 0) for known in (self.backward, self.leading))
        shapes = zip(q_sizes, k_sizes, map(bool, backward), leading, strict=False)
        groups, first, q, k = [], 0, 0, 0
        for shape, same in groupby(shapes):
            count = len(list(same))
            q_end, k_end = q + count * shape[0], k + count * shape[1]
            groups.append(EqualSequences(first, count, slice(q, q_end), slice(k, k_end), *shape))
            first, q, k = first + count, q_end, k_end
        return groups

    def seen(self, group: EqualSequences, queries: Rows, keys: Rows) -> Tensor | None:
        """Which keys the queries of some sequences see, bool (S, 1, L, M); None: all."""
        found = []
        if queries.visible is not None and keys.visible is not None:
            until, when = group.of_queries(queries.visible.until), group.of_keys(keys.visible.when)
            found.append(when < until)
        if self.reach is not None:
            far = group.of_queries(queries.positions) - group.of_keys(keys.positions)
            found.append(far <= self.reach)
        if self.masks is not None:
            found.append(torch.stack(self.masks[group.first : group.first + group.count]))
        if not found:
            return None
        seen, *others = found
        for other in others:
            seen = seen & other
        return seen[:, None]


@dataclass(frozen=True)
class EqualSequences:
    """Some neighbouring sequences of equal shape.

    Attributes:
        first, count: which. q_rows, k_rows: their rows among all queries and all keys.
        queries, keys: rows of each sequence, L and M. backward, leading: as in `Distances`.
    """

    first: int
    count: int
    q_rows: slice
    k_rows: slice
    queries: int
    keys: int
    backward: bool
    leading: int

    def of_queries(self, values_R: Tensor) -> Tensor:
        """What is known of the queries, (S, L, 1)."""
        return values_R[self.q_rows].view(self.count, self.queries, 1)

    def of_keys(self, values_T: Tensor) -> Tensor:
        """What is known of the keys, (S, 1, M)."""
        return values_T[self.k_rows].view(self.count, 1, self.keys)


def position_scores(
    q_SNLD: Tensor, projected_PND: Tensor, group: EqualSequences, distance_SLM: Tensor, farthest: int
) -> Tensor:
    """qᵢ·W_r·φ(i - j) for all pairs of some sequences, (S, N, L, M).

    Queries at consecutive places look nothing up: their products with the table, read as rows that are one
    shorter, are what they want. Of n such queries and distances from M down to 1 - n, element (i, j) is
    column j + n - i (xlnet_and_relatives.md, section 2); no number is copied.

    Args:
        q_SNLD: queries with the bias of positions. projected_PND: W_r·φ from `farthest` to -`farthest`.
        distance_SLM: i - j, int64.
    """
    if group.backward:
        projected_PND = projected_PND.flip(0)
    n, keys, parts = group.leading, group.keys, []
    if n:
        table_NDP = projected_PND[farthest - keys : farthest + n].permute(1, 2, 0)
        shifted = (q_SNLD[:, :, :n] @ table_NDP).flatten(2)[..., n:]
        parts.append(shifted.view(*shifted.shape[:2], n, keys + n - 1)[..., :keys])
    if n < group.queries or not n:
        scores = q_SNLD[:, :, n:] @ projected_PND.permute(1, 2, 0)
        column = (farthest - distance_SLM[:, None, n:]).expand(-1, scores.shape[1], -1, -1)
        parts.append(scores.gather(3, column))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)
