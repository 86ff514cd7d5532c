"""Group rows into batches by number of tokens. No torch is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def batch_longest_first(lengths: Sequence[int] | np.ndarray, limit: int) -> Iterator[list[int]]:
    """All rows by index, longest first, in batches of at most `limit` tokens, so of similar length."""
    return batch_by_tokens(np.argsort(-np.asarray(lengths), kind="stable").tolist(), lengths, limit)


def batch_by_tokens(
    order: Sequence[int], lengths: Sequence[int] | np.ndarray, limit: int
) -> Iterator[list[int]]:
    """Consecutive rows of `order` in batches of at most `limit` tokens; a longer row is a batch alone."""
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
    """All rows by index, longest first, in batches that will be padded to their longest row: at most `limit`
    positions with padding (more for a single row), and every row at least three quarters of the longest."""
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
    """`number` rounded up to a bucket: `parts` buckets between powers of two, at least `least` apart."""
    step = max(least, (1 << max(number - 1, 1).bit_length()) // (2 * parts))
    return -(-number // step) * step
