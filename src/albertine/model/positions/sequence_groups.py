"""Distances between the rows of a batch, and the groups of sequences that attention by distances computes
together: neighbours of one shape, or, where there are many shapes, all sequences of about one length, padded
to a multiple of `LENGTH_MULTIPLE`.

One product a sequence spends most of its time in calls, and on a CPU every new shape is compiled: with 32
texts of many lengths that was nine tenths of a step of a small encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate, groupby
from typing import NamedTuple

import torch
from torch import Tensor

from albertine.model.positions.relative import (
    LENGTH_MULTIPLE,
    Distances,
    KeyMask,
    SequenceGroup,
    TableSequences,
)
from albertine.model.rows import Rows

MAX_UNPADDED = 2
"""Most groups of neighbours that are computed without padding, such as texts in both directions."""


def with_distances(rows: Rows, table: Callable[[Tensor], Tensor], longest: int | None) -> Rows:
    """The rows with their `distances`.

    Args:
        table: distances, int64 (P,), to `Distances.table_PH`. longest: as of `registry.AddPositions`.
    """
    farthest, leading = longest or rows.longest, rows.known_lengths()
    if longest is None and bool((rows.positions.diff() > 1).any()):
        farthest, leading = _with_gaps(rows, leading)
    farthest = (farthest // LENGTH_MULTIPLE + 2) * LENGTH_MULTIPLE  # room for padded sequences
    table_PH = table(torch.arange(farthest, -farthest - 1, -1, device=rows.positions.device))
    return replace(rows, distances=Distances(table_PH, farthest, leading=leading))


def _with_gaps(rows: Rows, lengths: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """`farthest` and `leading` of `Distances` where positions of a sequence may be left out, as by a mask."""
    each = rows.positions.cpu().split_with_sizes(lengths)
    spans = [int(positions.max() - positions.min()) for positions in each if len(positions)]
    leading = (len(positions) if bool((positions.diff() == 1).all()) else 0 for positions in each)
    return max(rows.longest, *spans), tuple(leading)


def trace_distances(rows: Rows, table: Callable[[Tensor], Tensor], batch: int, length: int) -> Rows:
    """The same in an exported graph of a padded batch, (batch, length), whose sizes are symbols. Distances of
    all queries are looked up in the table: a graph has no views with strides of their own."""
    group = TableSequences.of(batch, length, rows.token_types)
    table_PH = table(torch.arange(length, -length - 1, -1, device=rows.positions.device))
    return replace(rows, distances=Distances(table_PH, length, single_group=group))


class PaddedRows(NamedTuple):
    """Rows laid out in groups of sequences, each padded at its end with copies of its last row.

    Attributes:
        source: for every row of the groups the row that it copies, int64.
        target: for every row its place in the groups, int64 (R,).
        real: for every row of the groups whether it is no padding, bool.
    """

    source: Tensor
    target: Tensor
    real: Tensor

    @classmethod
    def of(
        cls, sizes: Sequence[int], groups: Sequence[tuple[list[int], int]], device: torch.device
    ) -> PaddedRows:
        """
        Args:
            sizes: rows of each sequence. groups: sequences of each group, and the length they are padded to.
        """
        size_S = torch.tensor(sizes, dtype=torch.int64, device="cpu")
        end_S = size_S.cumsum(0)
        source, real = [], []
        for members, length in groups:
            inside_L = torch.arange(length, device="cpu")
            row_SL = (end_S - size_S)[members, None] + inside_L
            source.append(torch.minimum(row_SL, end_S[members, None] - 1).flatten())
            real.append((inside_L < size_S[members, None]).flatten())
        sources, reals = torch.cat(source), torch.cat(real)
        places = reals.nonzero()[:, 0]
        target = torch.empty_like(places).index_copy_(0, sources[places], places)
        return cls(sources.to(device), target.to(device), reals.to(device))


class SequenceGroups(NamedTuple):
    """The groups of a pass, in the order of their rows; `queries` and `keys` are None where the batch has
    that order already."""

    groups: list[SequenceGroup]
    queries: PaddedRows | None = None
    keys: PaddedRows | None = None

    def split(self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Queries, keys and values of each group."""
        q_sizes = [group.count * group.queries for group in self.groups]
        k_sizes = [group.count * group.keys for group in self.groups]
        if self.queries is not None and self.keys is not None:
            q_RND = q_RND.index_select(0, self.queries.source)
            k_TND, v_TND = (x.index_select(0, self.keys.source) for x in (k_TND, v_TND))
        each = (q_RND, q_sizes), (k_TND, k_sizes), (v_TND, k_sizes)
        return zip(*(x.split_with_sizes(sizes) for x, sizes in each), strict=True)

    def join(self, parts: list[Tensor]) -> Tensor:
        """Attention outputs of the groups, in the order of the batch, (R, N, D)."""
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        return joined if self.queries is None else joined.index_select(0, self.queries.target)

    def split_weights(
        self, weights: list[Tensor], q_sizes: Sequence[int], k_sizes: Sequence[int]
    ) -> list[Tensor]:
        """Attention weights of each sequence, (N, L, M), in the order of the batch and without padding.

        Args:
            weights: (S, N, n, M) of the parts of each group, group by group.
            q_sizes, k_sizes: rows of each sequence.
        """
        rest, by_row = iter(weights), dict[int, Tensor]()
        first = 0
        for group in self.groups:
            table_SNLM = torch.cat([next(rest) for _ in group.parts], 2)
            for table_NLM in table_SNLM:
                by_row[first] = table_NLM
                first += group.queries
        firsts = list(accumulate(q_sizes[:-1], initial=0))
        if self.queries is not None:
            firsts = self.queries.target[torch.tensor(firsts, device=self.queries.target.device)].tolist()
        sizes = zip(firsts, q_sizes, k_sizes, strict=True)
        return [by_row[first][:, :length, :keys] for first, length, keys in sizes]


def group_sequences(distances: Distances, queries: Rows, keys: Rows) -> SequenceGroups:
    """The groups of the sequences of a pass, computed once."""
    if distances.single_group is not None:
        return SequenceGroups([distances.single_group])
    groups: SequenceGroups
    if (cached := distances.groups.get((id(queries), id(keys)))) is not None:
        _, _, groups = cached
        return groups
    q_sizes, k_sizes = queries.known_lengths(), keys.known_lengths()
    default = (0,) * len(q_sizes)
    # A padded batch may have one more sequence than these are known of.
    backward, leading = ((*(known or default), 0) for known in (distances.backward, distances.leading))
    shapes = list(zip(q_sizes, k_sizes, map(bool, backward), leading, strict=False))
    many = sum(1 for _ in groupby(shapes)) > MAX_UNPADDED
    if distances.masks is None and many and all(map(_can_be_padded, shapes)):
        groups = _padded_groups(distances, queries, keys, shapes)
    else:
        groups = _neighbour_groups(distances, queries, keys, shapes)
    distances.groups[id(queries), id(keys)] = queries, keys, groups  # referenced, so that ids stay unique
    return groups


Shape = tuple[int, int, bool, int]
"""Queries and keys of a sequence, whether it is reversed, and its leading queries (`Distances`)."""


def _can_be_padded(shape: Shape) -> bool:
    """Padding continues the positions, so either all queries lead, or none."""
    queries, keys, _, leading = shape
    return leading in (0, queries) and keys > 0


def _padded(shape: Shape) -> Shape:
    queries, keys, backward, leading = shape
    rounded = -(-queries // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
    if leading:  # the last key keeps the position of the last query
        return rounded, keys + rounded - queries, backward, rounded
    return rounded, -(-keys // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, backward, 0


def _by_padded_shape(shapes: list[Shape]) -> Iterator[tuple[Shape, list[int]]]:
    """Indices of sequences of one padded shape, 1, 2, 4, 8 or more at once, because their number is part of
    the compiled shape."""
    members: dict[Shape, list[int]] = {}
    for index, shape in enumerate(shapes):
        members.setdefault(_padded(shape), []).append(index)
    for shape, rest in members.items():
        while rest:
            count = 1 << (len(rest).bit_length() - 1)
            some, rest = rest[:count], rest[count:]
            yield shape, some


def _padded_groups(distances: Distances, queries: Rows, keys: Rows, shapes: list[Shape]) -> SequenceGroups:
    members = list(_by_padded_shape(shapes))
    q_sizes, k_sizes = ([shape[i] for shape in shapes] for i in (0, 1))
    device = queries.positions.device
    padded_q, padded_k = (
        PaddedRows.of(sizes, [(some, shape[i]) for shape, some in members], device)
        for sizes, i in ((q_sizes, 0), (k_sizes, 1))
    )
    groups, q, k = [], 0, 0
    for shape, some in members:
        q_end, k_end = q + len(some) * shape[0], k + len(some) * shape[1]
        q_rows, k_rows = padded_q.source[q:q_end], padded_k.source[k:k_end]
        real = padded_k.real[k:k_end].view(len(some), 1, shape[1]).expand(-1, shape[0], -1)
        masks = [] if all(k_sizes[i] == shape[1] for i in some) else [real]
        groups.append(_group(distances, queries, keys, len(some), q_rows, k_rows, shape, masks))
        q, k = q_end, k_end
    return SequenceGroups(groups, padded_q, padded_k)


def _neighbour_groups(distances: Distances, queries: Rows, keys: Rows, shapes: list[Shape]) -> SequenceGroups:
    groups, first, q, k = [], 0, 0, 0
    for shape, same in groupby(shapes):
        count = len(list(same))
        q_end, k_end = q + count * shape[0], k + count * shape[1]
        given = None if distances.masks is None else distances.masks[first : first + count]
        masks = [] if given is None else [torch.stack(given)]
        groups.append(_group(distances, queries, keys, count, slice(q, q_end), slice(k, k_end), shape, masks))
        first, q, k = first + count, q_end, k_end
    return SequenceGroups(groups)


def _group(
    distances: Distances,
    queries: Rows,
    keys: Rows,
    count: int,
    q_rows: slice | Tensor,
    k_rows: slice | Tensor,
    shape: Shape,
    masks: list[Tensor],
) -> SequenceGroup:
    """
    Args:
        q_rows, k_rows: their rows in the batch. masks: visible keys by other conditions, bool (S, L, M).
    """
    length, num_keys, backward, leading = shape
    q_view, k_view = (count, length, 1), (count, 1, num_keys)
    positions_SL1, positions_S1M = queries.positions[q_rows].view(q_view), keys.positions[k_rows].view(k_view)
    if queries.visible is not None and keys.visible is not None:
        until, when = queries.visible.until[q_rows], keys.visible.when[k_rows]
        masks = [*masks, when.view(k_view) < until.view(q_view)]
    if distances.reach is not None:
        masks = [*masks, positions_SL1 - positions_S1M <= distances.reach]
    return SequenceGroup(
        count,
        length,
        num_keys,
        backward,
        leading,
        distances.farthest,
        distances.farthest - (positions_SL1[:, leading:] - positions_S1M),
        KeyMask.of(reduce(torch.Tensor.logical_and, masks)[:, None]) if masks else None,
        queries.token_types[q_rows],
        keys.token_types[k_rows],
    )
