"""Words already encoded: text follows Zipf's law, so a small dictionary answers almost every word."""

from __future__ import annotations

from collections.abc import Callable

LONGEST = 48
LIMIT = 1 << 16


class WordCache(dict[str, tuple[int, ...]]):
    """A dictionary from word to token ids that fills itself and stays below a size.

    It has two generations. When the young one is full it becomes the old one, and what the old one still held
    is dropped; a word found in the old one moves to the young. So frequent words stay without being counted.
    Full, both hold about 40 MB. Words longer than `LONGEST` characters are never kept: few return.

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
        if len(word) <= LONGEST:
            if len(self) >= self.limit:
                self.old = dict(self)
                self.clear()
            self[word] = ids
        return ids
