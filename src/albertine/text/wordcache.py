"""Words already encoded: text follows Zipf's law, so a small dictionary answers almost every word."""

from __future__ import annotations

from collections.abc import Callable

LONGEST = 48
LIMIT = 1 << 17


class WordCache(dict[str, tuple[int, ...]]):
    """A dictionary from word to token ids that fills itself and stays below a size.

    When full it is emptied: counting uses would cost more than encoding the frequent words again does. Full
        it
    holds about 35 MB. Words longer than `LONGEST` characters are never kept, since they hardly ever return.
    """

    def __init__(self, compute: Callable[[str], tuple[int, ...]], limit: int = LIMIT) -> None:
        super().__init__()
        self.compute, self.limit = compute, limit

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self.compute(word)
        if len(word) <= LONGEST:
            if len(self) >= self.limit:
                self.clear()
            self[word] = ids
        return ids
