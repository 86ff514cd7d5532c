"""XLNet's segments: reused tokens, then two text segments A and B.

    [reused] [A] [SEP] [B] [SEP] [CLS]      segments 0 0 0 1 1 2

A stream advances by `reuse` tokens a step. A of one step is repeated in the reused part of the next, which is
what the memory takes; so the memory always ends where the reused part begins, wherever B comes from
(zihangdai/xlnet, `data_utils.py`, `create_tfrecords` and `_split_a_and_b`). A ends at a sentence boundary; B
continues there, or with equal probability begins at a random sentence of the same stream. In a reversed
stream [SEP] and [CLS] keep their places.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

SPECIALS = 3
"""[SEP], [SEP] and [CLS] of a segment."""


class SegmentPair(NamedTuple):
    """A and B of a segment in their stream; together they have `room` tokens."""

    a_start: int
    a_length: int
    b_start: int
    b_length: int


def draw_segment_pair(
    sentences: Ints, begin: int, room: int, draws: tuple[float, float, float]
) -> SegmentPair | None:
    """A and B of a step, or None at the end of the stream.

    Args:
        sentences: offsets of the stream's sentences, increasing, first 0, last its length in tokens.
        begin: where A begins.
        room: tokens of A and B together.
        draws: three uniform numbers: whether B continues A, where A ends, and where B begins.
    """
    length = int(sentences[-1])
    if begin + room >= length:
        return None
    coin, cut, place = draws
    # Sentence ends after `begin`, up to the first that fills the room.
    first = int(np.searchsorted(sentences, begin, side="right"))
    last = int(np.searchsorted(sentences, begin + room, side="left"))
    end = int(sentences[last])
    cuts = last - first
    a_end = int(sentences[first + int(cut * cuts)]) if cuts else end
    if cuts and coin >= 0.5:
        b_start, b_end = a_end, end
    else:
        b_start, b_end = _elsewhere(sentences, max(1, room - (a_end - begin)), place)
    a, b = _trimmed(a_end - begin, b_end - b_start, room)
    return SegmentPair(begin, a, b_start, b)


def _elsewhere(sentences: Ints, wanted: int, draw: float) -> tuple[int, int]:
    """Whole sentences around `wanted` tokens at a random place, without the last token of the stream."""
    length = int(sentences[-1])
    start = int(draw * (length - wanted))
    end = start + wanted
    from_ = int(sentences[np.searchsorted(sentences, start, side="right") - 1])
    to = int(sentences[np.searchsorted(sentences, end, side="left")])
    return from_, min(to, length - 1)


def _trimmed(a: int, b: int, room: int) -> tuple[int, int]:
    """Lengths after dropping the tokens beyond `room`, one at a time from the longer, from B on a tie."""
    over = max(0, a + b - room)
    if a > b:
        from_a = min(over, a - b)
        rest = over - from_a
        return a - from_a - rest // 2, b - (rest - rest // 2)
    from_b = min(over, b - a + 1)
    rest = over - from_b
    return a - (rest - rest // 2), b - from_b - rest // 2
