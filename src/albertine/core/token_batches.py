"""Which rows are computed together: as many as a bound on their tokens allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def batch_longest_first(lengths: Sequence[int] | np.ndarray, limit: int) -> Iterator[list[int]]:
    """All rows by their numbers, in runs of at most `limit` tokens; those of a run are about as long."""
    return batch_by_tokens(np.argsort(-np.asarray(lengths), kind="stable").tolist(), lengths, limit)


def batch_by_tokens(
    order: Sequence[int], lengths: Sequence[int] | np.ndarray, limit: int
) -> Iterator[list[int]]:
    """Runs of `order` with at most `limit` tokens together; what is longer goes alone."""
    group: list[int] = []
    size = 0
    for i in order:
        if group and size + lengths[i] > limit:
            yield group
            group, size = [], 0
        group.append(int(i))
        size += int(lengths[i])
    if group:
        yield group


def batch_padded(lengths: Sequence[int] | np.ndarray, limit: int) -> Iterator[list[int]]:
    """All rows by their numbers, the longest first, in runs that are padded to their longest: at most `limit`
    places each, unless one row alone has more, and no row is less than three quarters of it long."""
    group: list[int] = []
    longest = 0
    for i in np.argsort(-np.asarray(lengths), kind="stable").tolist():
        if group and ((len(group) + 1) * longest > limit or 4 * lengths[i] < 3 * longest):
            yield group
            group = []
        longest = longest if group else int(lengths[i])
        group.append(i)
    if group:
        yield group


def bucket_size(number: int, parts: int, least: int) -> int:
    """At least `number`: the next of `parts` steps from each power of two to the next, of at least `least`
    each."""
    step = max(least, (1 << max(number - 1, 1).bit_length()) // (2 * parts))
    return -(-number // step) * step
