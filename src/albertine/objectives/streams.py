"""A corpus as contiguous streams (lanes): its documents concatenated, and cut into equal parts.

With a memory each sequence of a batch has to continue where it ended in the batch before. So all documents,
shuffled every epoch, are concatenated, each closed by a [SEP], and cut into equal parts, as by `batchify` in
Transformer-XL (1901.02860) and XLNet (zihangdai/xlnet, `data_utils.py`). A stream is a part read forwards, or
backwards from its end. As there, streams and memory continue across documents; an epoch drops at most a token
a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from albertine.core.randomness import permutation
from albertine.corpus.reader import Shards, SpanReader
from albertine.objectives.pairs import Sentences, token_offsets

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class StreamText(Sentences, Shards, Protocol):
    """Interface of a corpus for streams: lengths of documents and sentences, and shards."""


class StreamChunk(NamedTuple):
    """Consecutive tokens of a stream, each (L,).

    Attributes:
        ids: [SEP] where a document ends. starts: whether a token begins a word, as [SEP] does.
        closing: the [SEP] between documents.
    """

    ids: Ints
    starts: Bools
    closing: Bools


class StreamLayout:
    """The streams of one epoch.

    Args:
        corpus: with at least one document. reader: of the same corpus.
        count: number of streams; even where `both` is true.
        both: streams 2i and 2i + 1 read the same part, forwards and backwards.
        seed, epoch: determine the order of the documents.
        sep_id: closes a document.
    """

    def __init__(
        self,
        corpus: StreamText,
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
        self.length = stream_length(int(self._offsets[-1]) + len(self.order), count, both=both)

    def backward(self, lane: int) -> bool:
        """Whether the stream is reversed."""
        return self.both and lane % 2 == 1

    def read(self, lane: int, start: int, length: int) -> StreamChunk:
        """Tokens start:start+length of a stream, which has `self.length`."""
        if self.backward(lane):
            ids, starts, closing = self._forward(lane, self.length - start - length, length)
            return StreamChunk(ids[::-1], starts[::-1], closing[::-1])
        return self._forward(lane, start, length)

    def sentences(self, lane: int) -> Ints:
        """Offsets of the sentences in the order of a stream: first 0, increasing, last `self.length`. The
        ends of a stream may cut sentences; a closing [SEP] belongs to the sentence before it."""
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

    def _forward(self, lane: int, start: int, length: int) -> StreamChunk:
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
        return StreamChunk(ids, starts, closing)

    def _all_sentences(self) -> Ints:
        """Offsets of all sentences in the concatenated documents, increasing."""
        counts = np.diff(self._documents)[self.order]
        ends = np.cumsum(counts)
        inside = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        number = np.repeat(self._documents[:-1][self.order], counts) + inside
        within = self._offsets[number] - np.repeat(self._start, counts)
        laid: Ints = np.repeat(self._laid[:-1], counts) + within
        return laid


def forward_first(lanes: Sequence[int], *, both: bool) -> list[int]:
    """The same streams, reversed ones last: only neighbours of one direction are computed together."""
    return sorted(lanes, key=lambda lane: both and lane % 2 == 1)


def stream_length(tokens: int, count: int, *, both: bool) -> int:
    """Tokens of each of `count` streams of a corpus of this number of tokens, closing [SEP] included."""
    return tokens // (count // 2 if both else count)
