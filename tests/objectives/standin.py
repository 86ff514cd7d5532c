"""A corpus in memory, with what the objectives read of a real one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from albertine.objectives.batch import SpecialTokens

SPECIALS = SpecialTokens(cls_id=2, sep_id=3, mask_id=4, vocab_size=1000)


class MemoryShard:
    def __init__(self, tokens: np.ndarray, words: np.ndarray) -> None:
        self.tokens, self._words = tokens, words
        self.num_tokens = len(tokens)

    def ids(self, start: int, end: int) -> np.ndarray:
        return self.tokens[start:end]

    def words(self, start: int, end: int) -> np.ndarray:
        return self._words[start:end]


class MemoryCorpus:
    """`documents` is a list of documents, each a list of sentence lengths in tokens.

    Token i of the corpus has the id 10 + i mod (vocabulary - 10) unless ids are given, so a test can find
    where a token came from; every `word`-th token of a sentence begins a word, its first one always.
    """

    def __init__(self, documents: list[list[int]], *, shards: int = 2, word: int = 2) -> None:
        flat = np.array([n for d in documents for n in d], dtype=np.int64)
        self.sentence_lengths = flat
        self.document_offsets = np.concatenate([[0], np.cumsum([len(d) for d in documents])])
        edges = np.concatenate([[0], np.cumsum(flat)])
        total = int(edges[-1])
        self.tokens = (10 + np.arange(total) % (SPECIALS.vocab_size - 10)).astype(np.uint16)
        inside = np.arange(total) - np.repeat(edges[:-1], flat)
        self.word_starts = inside % word == 0
        firsts = self.document_offsets[[len(documents) * k // shards for k in range(shards + 1)]]
        cuts = edges[firsts].tolist()
        self._shards = [MemoryShard(self.tokens[a:b], self.word_starts[a:b]) for a, b in pairwise(cuts)]

    def tokenizer(self) -> SpecialTokens:
        return SPECIALS

    @property
    def num_shards(self) -> int:
        return len(self._shards)

    def shard(self, index: int) -> MemoryShard:
        return self._shards[index]


def random_corpus(seed: int, documents: int, **options: int) -> MemoryCorpus:
    """Documents of 1 to 40 sentences of 2 to 60 tokens."""
    rng = np.random.default_rng(seed)
    lengths = [rng.integers(2, 60, rng.integers(1, 40)).tolist() for _ in range(documents)]
    return MemoryCorpus(lengths, **options)


__all__ = ["SPECIALS", "MemoryCorpus", "MemoryShard", "random_corpus"]
