"""A and B of a segment are cut as the official `_split_a_and_b` cuts them for the same draws."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from albertine.objectives.xlnet_segments import _trimmed, draw_segment_pair

FACTS = Path(__file__).parent / "facts" / "xlnet_data.npz"


def test_pieces_are_the_official_ones_in_1000_drawings() -> None:
    facts = np.load(FACTS)
    sentences = np.concatenate([[0], np.cumsum(facts["split/lengths"].astype(np.int64))])
    ended = elsewhere = 0
    for begin, room, coin, cut, place, *wanted in facts["split/rows"].tolist():
        pieces = draw_segment_pair(sentences, int(begin), int(room), (coin, cut, place))
        if pieces is None:
            ended += 1
            assert wanted[0] == -1
            continue
        assert list(pieces) == [int(x) for x in wanted], (begin, room)
        assert pieces.a_length + pieces.b_length == int(room)
        elsewhere += pieces.b_start < pieces.a_start
    assert ended == 32 and elsewhere > 100


def test_b_goes_on_from_a_half_of_the_time() -> None:
    sentences = np.arange(0, 4001, 10)
    rng = np.random.default_rng(0)
    on = 0
    for _ in range(4000):
        pieces = draw_segment_pair(sentences, 100, 60, tuple(rng.random(3)))
        assert pieces is not None and pieces.a_start == 100
        cut = pieces.a_start + pieces.a_length
        on += pieces.b_start == cut
    assert abs(on - 2000) < 4.5 * 32


def test_the_last_token_of_a_stream_is_never_of_b() -> None:
    """It has no token after it, which the official layout requires of every one."""
    sentences = np.array([0, 9, 18, 20])
    assert draw_segment_pair(sentences, 0, 10, (0.1, 0.0, 0.999)) == (0, 9, 18, 1)


def test_both_segments_are_trimmed_from_the_longer() -> None:
    """One token at a time, on a tie of B: the closed form of the official loop, for all short lengths."""
    for a, b in product(range(1, 12), repeat=2):
        for room in range(2, a + b + 1):
            x, y = a, b
            while x + y > room:
                x, y = (x - 1, y) if x > y else (x, y - 1)
            assert _trimmed(a, b, room) == (x, y)
