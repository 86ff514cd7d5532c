"""XLNet's segment: tokens that were read before, then two new pieces of text, A and B.

    [reused] [A] [SEP] [B] [SEP] [CLS]      segments 0 0 0 1 1 2

A stream is read in steps of `reuse` tokens. What is A in one step comes again as the reused part of the
next, where it is what the memory takes; so memory always ends where the reused part begins, although B may
come from anywhere (zihangdai/xlnet, `data_utils.py`, `create_tfrecords` and `_split_a_and_b`). A ends at a
sentence; B goes on from there, or with equal chance begins at a random sentence of the same stream. A
backward stream is the same text read from its end; the places of [SEP] and [CLS] stay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

SPECIALS = 3
"""[SEP], [SEP] and [CLS] of a segment."""


class Pieces(NamedTuple):
    """Where A and B of a segment lie in their stream; together they fill what there is room for."""

    a_start: int
    a_length: int
    b_start: int
    b_length: int


def two_pieces(sentences: Ints, begin: int, room: int, draws: tuple[float, float, float]) -> Pieces | None:
    """A and B of a step, or None at the end of the stream, which then has no further step.

    Args:
        sentences: offsets of the stream's sentences, increasing, first 0, last its length in tokens.
        begin: where A begins.
        room: tokens of A and B together.
        draws: three uniform numbers: whether B goes on from A, where A ends, and where B begins.
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
    return Pieces(begin, a, b_start, b)


def _elsewhere(sentences: Ints, wanted: int, draw: float) -> tuple[int, int]:
    """Whole sentences around `wanted` tokens at a random place; the stream's last token is never of them."""
    length = int(sentences[-1])
    start = int(draw * (length - wanted))
    end = start + wanted
    from_ = int(sentences[np.searchsorted(sentences, start, side="right") - 1])
    to = int(sentences[np.searchsorted(sentences, end, side="left")])
    return from_, min(to, length - 1)


def _trimmed(a: int, b: int, room: int) -> tuple[int, int]:
    """Lengths with the tokens beyond the room dropped, one at a time from the longer, from B on a tie."""
    over = max(0, a + b - room)
    if a > b:
        from_a = min(over, a - b)
        rest = over - from_a
        return a - from_a - rest // 2, b - (rest - rest // 2)
    from_b = min(over, b - a + 1)
    rest = over - from_b
    return a - (rest - rest // 2), b - from_b - rest // 2
