"""A and B of a segment are cut as the official `_split_a_and_b` cuts them for the same draws (X7)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from albertine.objectives.reused_segments import two_pieces

FACTS = Path(__file__).parent / "facts" / "xlnet_data.npz"


def test_pieces_are_the_official_ones_in_1000_drawings() -> None:
    facts = np.load(FACTS)
    sentences = np.concatenate([[0], np.cumsum(facts["split/lengths"].astype(np.int64))])
    ended = elsewhere = 0
    for begin, room, coin, cut, place, *wanted in facts["split/rows"].tolist():
        pieces = two_pieces(sentences, int(begin), int(room), (coin, cut, place))
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
        pieces = two_pieces(sentences, 100, 60, tuple(rng.random(3)))
        assert pieces is not None and pieces.a_start == 100
        cut = pieces.a_start + pieces.a_length
        on += pieces.b_start == cut
    assert abs(on - 2000) < 4.5 * 32
