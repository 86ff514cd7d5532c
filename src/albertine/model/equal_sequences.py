"""Which sequences of a batch are computed as one in relative attention: neighbours of one shape."""

from __future__ import annotations

from functools import reduce
from itertools import groupby

import torch

from albertine.model.relative_positions import Distances, EqualSequences, KeysSeen
from albertine.model.rows import Rows


def grouped(distances: Distances, queries: Rows, keys: Rows) -> list[EqualSequences]:
    """Neighbouring sequences of one shape and direction, found once a pass."""
    if distances.all_alike is not None:
        return [distances.all_alike]
    if (found := distances.groups.get((id(queries), id(keys)))) is not None:
        return found[2]
    q_sizes, k_sizes = queries.known_lengths(), keys.known_lengths()
    unknown = (0,) * len(q_sizes)
    # A batch may have been filled up with one more sequence, of which nothing was said.
    backward, leading = ((*(known or unknown), 0) for known in (distances.backward, distances.leading))
    shapes = zip(q_sizes, k_sizes, map(bool, backward), leading, strict=False)
    groups, first, q, k = [], 0, 0, 0
    for shape, same in groupby(shapes):
        count = len(list(same))
        q_end, k_end = q + count * shape[0], k + count * shape[1]
        rows = slice(q, q_end), slice(k, k_end)
        groups.append(_group(distances, queries, keys, first, count, *rows, shape))
        first, q, k = first + count, q_end, k_end
    distances.groups[id(queries), id(keys)] = queries, keys, groups  # held, lest an id is given again
    return groups


def _group(
    distances: Distances,
    queries: Rows,
    keys: Rows,
    first: int,
    count: int,
    q_rows: slice,
    k_rows: slice,
    shape: tuple[int, int, bool, int],
) -> EqualSequences:
    length, seen_length, backward, leading = shape
    asked, looked_at = (count, length, 1), (count, 1, seen_length)
    places_SL1, places_S1M = queries.positions[q_rows].view(asked), keys.positions[k_rows].view(looked_at)
    seen = []
    if queries.visible is not None and keys.visible is not None:
        until, when = queries.visible.until[q_rows], keys.visible.when[k_rows]
        seen.append(when.view(looked_at) < until.view(asked))
    if distances.reach is not None:
        seen.append(places_SL1 - places_S1M <= distances.reach)
    if distances.masks is not None:
        seen.append(torch.stack(distances.masks[first : first + count]))
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
