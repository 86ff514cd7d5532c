"""Caches of encoded words: `WordCache` for single texts, `BatchEncoder` for the many texts of a corpus.

Word frequencies follow Zipf's law, so a small cache has almost every word of a text.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

ROWS = 1 << 19
ITEMS_PER_ROW = 32
"""Average characters and ids of a row; with longer words, such as DNA or base64, the table is full
earlier."""
BATCH_CHARACTERS = 1_000_000
# Joins the texts of a batch and marks their borders among the words. Printable ASCII, because texts with
# other characters are split more slowly; a batch whose texts contain it is encoded text by text.
_BORDER = "<|~|>"

Ids = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]


class _Rows(dict[str, int]):
    """Row number by word; a new word gets the next number and is added to `new`."""

    def __init__(self) -> None:
        super().__init__({_BORDER: 0})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        row = self[word] = len(self)
        self.new.append(word)
        return row


class BatchEncoder:
    """Encodes many texts to one array by a table of encoded words; new words are encoded together and added.

    Lists of ids, as from `Tokenizer.encode`, take a Python operation per token. Here the words of a million
    characters become row numbers of the table, and NumPy copies the rows.

    Args:
        split: splits a text, at least at every space, into parts that can be encoded separately; None if
            texts can only be encoded whole.
        encode: the ids of many parts.
        rows: maximum words in the table, about 100 MB; it is emptied when full.
    """

    def __init__(
        self,
        split: Callable[[str], list[str]] | None,
        encode: Callable[[list[str]], Sequence[Sequence[int]]],
        rows: int = ROWS,
    ) -> None:
        self._split, self._encode, self._limit = split, encode, rows
        self._clear()

    def _clear(self) -> None:
        self._rows = _Rows()
        self._ids = array("I")
        self._edges = array("q", [0, 0])
        self._characters = 0

    def __call__(self, texts: Sequence[str]) -> tuple[Ids, Ints]:
        """The ids of all texts end to end, and the number of ids of each text."""
        found = [self._batch(batch) for batch in _batches(texts)]
        if not found:
            return np.zeros(0, np.uint32), np.zeros(0, np.int64)
        return np.concatenate([ids for ids, _ in found]), np.concatenate([sizes for _, sizes in found])

    def _batch(self, texts: Sequence[str]) -> tuple[Ids, Ints]:
        if len(self._rows) > self._limit or self._characters + len(self._ids) > ITEMS_PER_ROW * self._limit:
            self._clear()
        words = list(texts) if self._split is None else self._split(f" {_BORDER} ".join(texts))
        rows = self._look_up(words)
        between = np.flatnonzero(rows == 0)
        if len(between) != (0 if self._split is None else len(texts) - 1):
            return self._one_by_one(texts)
        # row 0 has no ids, so it may belong to either neighbour
        borders = np.arange(len(rows) + 1) if self._split is None else np.r_[0, between, len(rows)]
        edges = np.array(self._edges)
        begin = edges[rows]
        ends = np.concatenate([[0], np.cumsum(edges[rows + 1] - begin)])
        # index of each token in the table: the start of its row plus its offset in the row
        where = np.repeat(begin - ends[:-1], np.diff(ends)) + np.arange(ends[-1])
        return np.array(self._ids, dtype=np.uint32)[where], np.diff(ends[borders])

    def _look_up(self, words: list[str]) -> Ints:
        """Row numbers of words; missing words are added to the table."""
        rows = np.fromiter(map(self._rows.__getitem__, words), np.int64, len(words))
        if self._rows.new:
            self._characters += sum(map(len, self._rows.new))
            try:
                for ids in self._encode(self._rows.new):
                    self._ids.extend(ids)
                    self._edges.append(len(self._ids))
            except BaseException:
                self._clear()  # else the new rows would have no ids
                raise
            self._rows.new = []
        return rows

    def _one_by_one(self, texts: Sequence[str]) -> tuple[Ids, Ints]:
        parts = [[text] if self._split is None else self._split(text) for text in texts]
        found = [list(chain.from_iterable(self._encode(part))) for part in parts]
        flat = np.fromiter(chain.from_iterable(found), np.uint32)
        return flat, np.array([len(ids) for ids in found], np.int64)


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    begin = size = 0
    for end, text in enumerate(texts, 1):
        size += len(text)
        if size >= BATCH_CHARACTERS:
            yield texts[begin:end]
            begin, size = end, 0
    if begin < len(texts):
        yield texts[begin:]


MAX_CACHED_CHARACTERS = 48
LIMIT = 1 << 16


class WordCache(dict[str, tuple[int, ...]]):
    """A bounded dictionary from word to token ids, which computes missing entries.

    It has two generations. When the young one is full, it replaces the old one; a word found in the old one
    is copied to the young one. So frequent words stay without counting. Full, both take about 40 MB. Words
    longer than `MAX_CACHED_CHARACTERS` characters are not cached: few occur again.

    Args:
        compute: the ids of a word; it may look up other words in the cache.
        limit: maximum words of one generation.
    """

    def __init__(self, compute: Callable[[str], tuple[int, ...]], limit: int = LIMIT) -> None:
        super().__init__()
        self.compute, self.limit = compute, limit
        self.old: dict[str, tuple[int, ...]] = {}

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self.old.get(word)
        if ids is None:
            ids = self.compute(word)
        if len(word) <= MAX_CACHED_CHARACTERS:
            if len(self) >= self.limit:
                self.old = dict(self)
                self.clear()
            self[word] = ids
        return ids
