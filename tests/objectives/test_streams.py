"""StreamLayout: every token of the text once, in order, both ways; documents in a new order every epoch."""

from __future__ import annotations

import numpy as np
import pytest

from albertine.corpus.reader import SpanReader
from albertine.objectives.streams import StreamLayout
from tests.objectives.standin import SPECIALS, MemoryCorpus, random_corpus


def lanes_of(
    corpus: MemoryCorpus, count: int, *, both: bool = False, seed: int = 1, epoch: int = 0
) -> StreamLayout:
    reader = SpanReader(corpus)
    return StreamLayout(corpus, reader, count, both=both, seed=seed, epoch=epoch, sep_id=SPECIALS.sep_id)


def laid(corpus: MemoryCorpus, order: np.ndarray) -> tuple[list[int], list[bool], list[int]]:
    """The whole text of an epoch, slowly: ids, word starts, and where its sentences begin."""
    edges = np.concatenate([[0], np.cumsum(corpus.sentence_lengths)])
    ids: list[int] = []
    starts: list[bool] = []
    sentences: list[int] = []
    for document in order.tolist():
        for s in range(corpus.document_offsets[document], corpus.document_offsets[document + 1]):
            sentences.append(len(ids))
            ids += corpus.tokens[edges[s] : edges[s + 1]].tolist()
            starts += corpus.word_starts[edges[s] : edges[s + 1]].tolist()
        ids.append(SPECIALS.sep_id)
        starts.append(True)
    return ids, starts, sentences


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("length", [1, 5, 64])
def test_lanes_are_the_text(count: int, length: int) -> None:
    corpus = random_corpus(3, 12)
    lanes = lanes_of(corpus, count)
    ids, starts, _ = laid(corpus, lanes.order)
    assert sorted(lanes.order.tolist()) == list(range(12)) and lanes.length == len(ids) // count
    for lane in range(count):
        first = lane * lanes.length
        for at in range(0, lanes.length - length + 1, length):
            got = lanes.read(lane, at, length)
            here = slice(first + at, first + at + length)
            assert got.ids.tolist() == ids[here] and got.starts.tolist() == starts[here]
            assert (got.closing == (got.ids == SPECIALS.sep_id)).all()


def test_every_second_lane_is_the_one_before_it_from_its_end() -> None:
    lanes = lanes_of(random_corpus(3, 12), 6, both=True)
    for lane in (1, 3, 5):
        whole, other = lanes.read(lane - 1, 0, lanes.length), lanes.read(lane, 0, lanes.length)
        for column, reverse in zip(whole, other, strict=True):
            assert column.tolist() == reverse[::-1].tolist()
        assert lanes.backward(lane) and not lanes.backward(lane - 1)
        part = lanes.read(lane, 20, 30)
        assert part.ids.tolist() == whole.ids[::-1][20:50].tolist()


@pytest.mark.parametrize("both", [False, True])
def test_sentences_of_a_lane(both: bool) -> None:
    corpus = random_corpus(5, 9)
    lanes = lanes_of(corpus, 4, both=both)
    _, _, all_of = laid(corpus, lanes.order)
    for lane in range(4):
        first = (lane // 2 if both else lane) * lanes.length
        inside = [s - first for s in all_of if first < s < first + lanes.length]
        wanted = [0, *inside, lanes.length]
        if both and lane % 2:
            wanted = [lanes.length - s for s in reversed(wanted)]
        assert lanes.sentences(lane).tolist() == wanted


def test_the_order_of_documents_is_of_seed_and_epoch() -> None:
    corpus = random_corpus(3, 12)
    orders = [
        lanes_of(corpus, 2, seed=s, epoch=e).order.tolist() for s, e in ((1, 0), (1, 0), (1, 1), (2, 0))
    ]
    assert orders[0] == orders[1] and len({tuple(order) for order in orders}) == 3
