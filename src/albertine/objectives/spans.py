"""Reading many spans of a corpus at once."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class TokenShard(Protocol):
    """One memory-mapped part of a corpus, checked as it is read."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def tokens(self) -> NDArray[np.integer]:
        """All token ids, (tokens,)."""
        ...

    def ids(self, start: int, end: int) -> NDArray[np.integer]:
        """Token ids start:end, (end-start,)."""
        ...

    def words(self, start: int, end: int) -> NDArray[np.bool_]:
        """Whether each token of start:end begins a word."""
        ...


class Shards(Protocol):
    """The shards of a corpus, in order."""

    @property
    def num_shards(self) -> int: ...

    def shard(self, index: int) -> TokenShard: ...


class SpanReader:
    """Tokens by their offset in the whole corpus. Spans never cross a shard, because documents do not."""

    def __init__(self, corpus: Shards) -> None:
        self._shards = [corpus.shard(i) for i in range(corpus.num_shards)]
        self._first = np.concatenate([[0], np.cumsum([shard.num_tokens for shard in self._shards])])

    def gather(self, starts: Ints, lengths: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Tokens and word starts of the spans, end to end; every length is at least 1."""
        home = np.searchsorted(self._first, starts, side="right") - 1
        begin = starts - self._first[home]
        tokens: list[NDArray[np.integer]] = []
        words: list[NDArray[np.bool_]] = []
        for shard, at, end in zip(home.tolist(), begin.tolist(), (begin + lengths).tolist(), strict=True):
            tokens.append(self._shards[shard].ids(at, end))
            words.append(self._shards[shard].words(at, end))
        return np.concatenate(tokens), np.concatenate(words)
