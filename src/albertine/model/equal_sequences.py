"""Which sequences of a batch are computed as one in relative attention: neighbours of one shape, or, where
there are many shapes, all of about one length, filled up to a multiple of `STEP`.

A product of one sequence is mostly calls, and on a processor every new shape is compiled anew: of 32 texts of
many lengths a step of a small encoder spent nine tenths of its time there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from albertine.model.relative_positions import Distances, EqualSequences, KeysSeen
from albertine.model.rows import Rows

STEP = 16
"""Sequences are filled up to a multiple of so many queries."""

FEW = 2
"""Groups of neighbours that are computed as they are, such as texts in both directions."""


class Filled(NamedTuple):
    """Rows laid out in groups of sequences, each filled up behind with its last row.

    Attributes:
        there: for every row of the groups which row it is, int64. back: where every row stands, int64 (R,).
        own: of every row of the groups, whether it is no filling, bool.
    """

    there: Tensor
    back: Tensor
    own: Tensor

    @classmethod
    def of(
        cls, sizes: Sequence[int], groups: Sequence[tuple[list[int], int]], device: torch.device
    ) -> Filled:
        """Of sequences of some sizes: groups of them, each with the length that they are filled up to."""
        size_S = torch.tensor(sizes, dtype=torch.int64, device="cpu")
        end_S = size_S.cumsum(0)
        there, own = [], []
        for members, length in groups:
            inside_L = torch.arange(length, device="cpu")
            row_SL = (end_S - size_S)[members, None] + inside_L
            there.append(torch.minimum(row_SL, end_S[members, None] - 1).flatten())
            own.append((inside_L < size_S[members, None]).flatten())
        every, kept = torch.cat(there), torch.cat(own)
        places = kept.nonzero()[:, 0]
        back = torch.empty_like(places).index_copy_(0, every[places], places)
        return cls(every.to(device), back.to(device), kept.to(device))


class Grouped(NamedTuple):
    """The groups of a pass, in the order in which their rows lie; `queries` and `keys` lie so already where
    `Filled` is None."""

    groups: list[EqualSequences]
    queries: Filled | None = None
    keys: Filled | None = None

    def split(self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Queries, keys and values of each group."""
        q_sizes = [group.count * group.queries for group in self.groups]
        k_sizes = [group.count * group.keys for group in self.groups]
        if self.queries is not None and self.keys is not None:
            q_RND = q_RND.index_select(0, self.queries.there)
            k_TND, v_TND = (x.index_select(0, self.keys.there) for x in (k_TND, v_TND))
        each = (q_RND, q_sizes), (k_TND, k_sizes), (v_TND, k_sizes)
        return zip(*(x.split_with_sizes(sizes) for x, sizes in each), strict=True)

    def joined(self, parts: list[Tensor]) -> Tensor:
        """What the queries of each group got, in the order of the batch, (R, N, D)."""
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        return whole if self.queries is None else whole.index_select(0, self.queries.back)


def grouped(distances: Distances, queries: Rows, keys: Rows) -> Grouped:
    """How the sequences of a pass are computed together, found once."""
    if distances.all_alike is not None:
        return Grouped([distances.all_alike])
    made: Grouped
    if (found := distances.groups.get((id(queries), id(keys)))) is not None:
        _, _, made = found
        return made
    q_sizes, k_sizes = queries.known_lengths(), keys.known_lengths()
    unknown = (0,) * len(q_sizes)
    # A batch may have been filled up with one more sequence, of which nothing was said.
    backward, leading = ((*(known or unknown), 0) for known in (distances.backward, distances.leading))
    shapes = list(zip(q_sizes, k_sizes, map(bool, backward), leading, strict=False))
    if distances.masks is None and sum(1 for _ in groupby(shapes)) > FEW and all(map(_can_be_filled, shapes)):
        made = _side_by_side(distances, queries, keys, shapes)
    else:
        made = _neighbours(distances, queries, keys, shapes)
    distances.groups[id(queries), id(keys)] = queries, keys, made  # held, lest an id is given again
    return made


Shape = tuple[int, int, bool, int]
"""Queries and keys of a sequence, whether it is reversed, and how many queries lead (`Distances`)."""


def _can_be_filled(shape: Shape) -> bool:
    """Rows behind the last one go on counting places, so either all queries lead, or none."""
    queries, keys, _, leading = shape
    return leading in (0, queries) and keys > 0


def _filled(shape: Shape) -> Shape:
    queries, keys, backward, leading = shape
    rounded = -(-queries // STEP) * STEP
    if leading:  # the last key stays where the last query is
        return rounded, keys + rounded - queries, backward, rounded
    return rounded, -(-keys // STEP) * STEP, backward, 0


def _alike(shapes: list[Shape]) -> Iterator[tuple[Shape, list[int]]]:
    """Sequences of one shape once they are filled up, by their numbers; 1, 2, 4, 8 or more at once, because
    how many there are is part of what is compiled."""
    members: dict[Shape, list[int]] = {}
    for number, shape in enumerate(shapes):
        members.setdefault(_filled(shape), []).append(number)
    for shape, alike in members.items():
        while alike:
            count = 1 << (len(alike).bit_length() - 1)
            some, alike = alike[:count], alike[count:]
            yield shape, some


def _side_by_side(distances: Distances, queries: Rows, keys: Rows, shapes: list[Shape]) -> Grouped:
    members = list(_alike(shapes))
    q_sizes, k_sizes = ([shape[i] for shape in shapes] for i in (0, 1))
    device = queries.positions.device
    asked, looked_at = (
        Filled.of(sizes, [(some, shape[i]) for shape, some in members], device)
        for sizes, i in ((q_sizes, 0), (k_sizes, 1))
    )
    groups, q, k = [], 0, 0
    for shape, some in members:
        q_end, k_end = q + len(some) * shape[0], k + len(some) * shape[1]
        q_rows, k_rows = asked.there[q:q_end], looked_at.there[k:k_end]
        own = looked_at.own[k:k_end].view(len(some), 1, shape[1]).expand(-1, shape[0], -1)
        seen = [] if all(k_sizes[i] == shape[1] for i in some) else [own]
        groups.append(_group(distances, queries, keys, len(some), q_rows, k_rows, shape, seen))
        q, k = q_end, k_end
    return Grouped(groups, asked, looked_at)


def _neighbours(distances: Distances, queries: Rows, keys: Rows, shapes: list[Shape]) -> Grouped:
    groups, first, q, k = [], 0, 0, 0
    for shape, same in groupby(shapes):
        count = len(list(same))
        q_end, k_end = q + count * shape[0], k + count * shape[1]
        masks = None if distances.masks is None else distances.masks[first : first + count]
        seen = [] if masks is None else [torch.stack(masks)]
        groups.append(_group(distances, queries, keys, count, slice(q, q_end), slice(k, k_end), shape, seen))
        first, q, k = first + count, q_end, k_end
    return Grouped(groups)


def _group(
    distances: Distances,
    queries: Rows,
    keys: Rows,
    count: int,
    q_rows: slice | Tensor,
    k_rows: slice | Tensor,
    shape: Shape,
    seen: list[Tensor],
) -> EqualSequences:
    """Args: q_rows, k_rows: which rows they are. seen: masks of the keys, bool (S, L, M)."""
    length, seen_length, backward, leading = shape
    asked, looked_at = (count, length, 1), (count, 1, seen_length)
    places_SL1, places_S1M = queries.positions[q_rows].view(asked), keys.positions[k_rows].view(looked_at)
    if queries.visible is not None and keys.visible is not None:
        until, when = queries.visible.until[q_rows], keys.visible.when[k_rows]
        seen = [*seen, when.view(looked_at) < until.view(asked)]
    if distances.reach is not None:
        seen = [*seen, places_SL1 - places_S1M <= distances.reach]
    return EqualSequences(
        count,
        length,
        seen_length,
        backward,
        leading,
        distances.farthest,
        distances.farthest - (places_SL1[:, leading:] - places_S1M),
        KeysSeen.of(reduce(torch.Tensor.logical_and, seen)[:, None]) if seen else None,
        queries.token_types[q_rows],
        keys.token_types[k_rows],
    )
