"""A corpus as a few streams that are read on from step to step: its documents end to end, cut into lanes.

Memory over segments wants each sequence of a batch to go on where it ended in the batch before. So all
documents, in an order drawn anew every epoch, are laid end to end, each closed by a [SEP], and cut into
equal stretches, as `batchify` does in Transformer-XL (1901.02860) and XLNet (zihangdai/xlnet,
`data_utils.py`). A lane is a stretch read forwards, or backwards from its end. As there, a lane's text goes
on over the borders of documents, and its memory with it; what an epoch's last stretch leaves over is at most
a token a lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from albertine.core.randomness import permutation
from albertine.objectives.pairs import Sentences, token_offsets
from albertine.objectives.spans import Shards, SpanReader

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class LaneText(Sentences, Shards, Protocol):
    """What lanes need of a corpus: the lengths of its documents and sentences, and its shards."""


class Stretch(NamedTuple):
    """Tokens of a lane in its order, each (L,).

    Attributes:
        ids: [SEP] where a document ends. starts: whether a token begins a word, as [SEP] does.
        closing: the [SEP] between documents.
    """

    ids: Ints
    starts: Bools
    closing: Bools


class Lanes:
    """The lanes of one epoch.

    Args:
        corpus: with at least one document. reader: of the same corpus.
        count: how many lanes; even where `both` is true.
        both: lanes 2i and 2i + 1 read the same stretch, forwards and backwards.
        seed, epoch: name the order of the documents.
        sep_id: closes a document.
    """

    def __init__(
        self,
        corpus: LaneText,
        reader: SpanReader,
        count: int,
        *,
        both: bool,
        seed: int,
        epoch: int,
        sep_id: int,
    ) -> None:
        self.count, self.both, self.sep_id = count, both, sep_id
        self._corpus, self._reader = corpus, reader
        self._offsets = token_offsets(corpus)
        self._documents = np.asarray(corpus.document_offsets, dtype=np.int64)
        self.order = permutation(len(self._documents) - 1, seed, "document order", epoch)
        bounds = self._offsets[self._documents]
        self._start = bounds[:-1][self.order]
        self._size = np.diff(bounds)[self.order]
        self._laid = np.concatenate([[0], np.cumsum(self._size + 1)])
        self._sentences: Ints | None = None
        self._of_lane: dict[int, Ints] = {}
        self.length = lane_length(int(self._offsets[-1]) + len(self.order), count, both=both)

    def backward(self, lane: int) -> bool:
        """Whether the lane runs against the text."""
        return self.both and lane % 2 == 1

    def read(self, lane: int, start: int, length: int) -> Stretch:
        """Tokens start:start+length of a lane, which has `self.length`."""
        if self.backward(lane):
            ids, starts, closing = self._forward(lane, self.length - start - length, length)
            return Stretch(ids[::-1], starts[::-1], closing[::-1])
        return self._forward(lane, start, length)

    def sentences(self, lane: int) -> Ints:
        """Offsets of the sentences in a lane's own order: first 0, increasing, last `self.length`. The lane's
        ends cut sentences in two; a closing [SEP] belongs to the sentence before it."""
        if lane not in self._of_lane:
            if self._sentences is None:
                self._sentences = self._all_sentences()
            low = self._base(lane)
            inside = self._sentences[slice(*np.searchsorted(self._sentences, [low + 1, low + self.length]))]
            offsets = np.concatenate([[0], inside - low, [self.length]])
            self._of_lane[lane] = self.length - offsets[::-1] if self.backward(lane) else offsets
        return self._of_lane[lane]

    def _base(self, lane: int) -> int:
        return (lane // 2 if self.both else lane) * self.length

    def _forward(self, lane: int, start: int, length: int) -> Stretch:
        low = self._base(lane) + start
        first, last = np.searchsorted(self._laid, [low, low + length - 1], side="right") - 1
        docs = np.arange(first, last + 1)
        begin = np.maximum(low - self._laid[docs], 0)
        end = np.minimum(low + length - self._laid[docs], self._size[docs] + 1)
        closing = np.zeros(length, dtype=bool)
        closing[(self._laid[docs] + self._size[docs] - low)[end > self._size[docs]]] = True
        ids = np.full(length, self.sep_id, dtype=np.int64)
        starts = closing.copy()
        text = np.minimum(end, self._size[docs]) - begin
        some = text > 0
        if some.any():
            ids[~closing], starts[~closing] = self._reader.gather(
                (self._start[docs] + begin)[some], text[some]
            )
        return Stretch(ids, starts, closing)

    def _all_sentences(self) -> Ints:
        """Offsets of all sentences in the laid text, in increasing order."""
        counts = np.diff(self._documents)[self.order]
        ends = np.cumsum(counts)
        inside = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        number = np.repeat(self._documents[:-1][self.order], counts) + inside
        within = self._offsets[number] - np.repeat(self._start, counts)
        laid: Ints = np.repeat(self._laid[:-1], counts) + within
        return laid


def forward_first(lanes: Sequence[int], *, both: bool) -> list[int]:
    """The same lanes, those that run against the text behind the others: only neighbours of one direction are
    computed together."""
    return sorted(lanes, key=lambda lane: both and lane % 2 == 1)


def lane_length(tokens: int, count: int, *, both: bool) -> int:
    """Tokens of each of `count` lanes of a text of so many tokens, closing ones included."""
    return tokens // (count // 2 if both else count)
