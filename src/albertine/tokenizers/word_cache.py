"""Many texts to ids at once, for preparing corpora: new words are encoded together, known ones looked up.

A list of ids per text, as `Tokenizer.encode` gives, costs Python a step for every token. Here the words of a
million characters become row numbers of a table, and numpy copies the rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

ROWS = 1 << 19
ITEMS_PER_ROW = 32
"""Letters and ids of a row: with longer ones, such as DNA or base64, the table is full earlier."""
BATCH_CHARACTERS = 1_000_000
# Put between texts, to be found again among their words. Printable ASCII, because texts with other characters
# are cut more slowly; a batch in which the text has it too is cut text by text.
_BETWEEN = "<|~|>"

Ids = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]


class _Rows(dict[str, int]):
    """Row number by word; a new word gets the next number and is noted."""

    def __init__(self) -> None:
        super().__init__({_BETWEEN: 0})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        row = self[word] = len(self)
        self.new.append(word)
        return row


class BatchEncoder:
    """A table of encoded words that fills itself.

    Args:
        cut: a text to parts that can be encoded alone, at least at every space; None if a text is only right
            as a whole.
        encode: the ids of many parts.
        rows: most words in the table; when it is full it is emptied. Full it takes about 100 MB.
    """

    def __init__(
        self,
        cut: Callable[[str], list[str]] | None,
        encode: Callable[[list[str]], Sequence[Sequence[int]]],
        rows: int = ROWS,
    ) -> None:
        self._cut, self._encode, self._limit = cut, encode, rows
        self._clear()

    def _clear(self) -> None:
        self._rows = _Rows()
        self._ids = array("I")
        self._edges = array("q", [0, 0])
        self._letters = 0

    def __call__(self, texts: Sequence[str]) -> tuple[Ids, Ints]:
        """The ids of all texts end to end, and how many each text has."""
        found = [self._batch(batch) for batch in _batches(texts)]
        if not found:
            return np.zeros(0, np.uint32), np.zeros(0, np.int64)
        return np.concatenate([ids for ids, _ in found]), np.concatenate([sizes for _, sizes in found])

    def _batch(self, texts: Sequence[str]) -> tuple[Ids, Ints]:
        if len(self._rows) > self._limit or self._letters + len(self._ids) > ITEMS_PER_ROW * self._limit:
            self._clear()
        words = list(texts) if self._cut is None else self._cut(f" {_BETWEEN} ".join(texts))
        rows = self._look_up(words)
        between = np.flatnonzero(rows == 0)
        if len(between) != (0 if self._cut is None else len(texts) - 1):
            return self._one_by_one(texts)
        # row 0 holds nothing, so it may count to either neighbour
        borders = np.arange(len(rows) + 1) if self._cut is None else np.r_[0, between, len(rows)]
        edges = np.array(self._edges)
        begin = edges[rows]
        ends = np.concatenate([[0], np.cumsum(edges[rows + 1] - begin)])
        # where each token stands in the table: the start of its row, and on from there
        where = np.repeat(begin - ends[:-1], np.diff(ends)) + np.arange(ends[-1])
        return np.array(self._ids, dtype=np.uint32)[where], np.diff(ends[borders])

    def _look_up(self, words: list[str]) -> Ints:
        """The rows of words; those that the table lacks are put into it."""
        rows = np.fromiter(map(self._rows.__getitem__, words), np.int64, len(words))
        if self._rows.new:
            self._letters += sum(map(len, self._rows.new))
            try:
                for ids in self._encode(self._rows.new):
                    self._ids.extend(ids)
                    self._edges.append(len(self._ids))
            except BaseException:
                self._clear()  # or the rows already given out would have no ids
                raise
            self._rows.new = []
        return rows

    def _one_by_one(self, texts: Sequence[str]) -> tuple[Ids, Ints]:
        parts = [[text] if self._cut is None else self._cut(text) for text in texts]
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
    """A dictionary from word to token ids that fills itself and stays below a size.

    It has two generations. When the young one is full it becomes the old one, and what the old one still held
    is dropped; a word found in the old one moves to the young. So frequent words stay without being counted.
    Full, both hold about 40 MB. Words longer than `MAX_CACHED_CHARACTERS` characters are never kept: few
    return.

    Args:
        compute: gives the ids of a word; it may look up other words here.
        limit: most words of one generation.
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
