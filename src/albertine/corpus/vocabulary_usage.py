"""Which pieces a prepared corpus uses, and what becomes of it with fewer of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from albertine.corpus.manifest import SPLITS
from albertine.corpus.reader import Corpus
from albertine.corpus.shards import Shard

if TYPE_CHECKING:
    from albertine.tokenizers.base import Tokenizer

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Coverage:
    """What of a text stays as it was with fewer pieces.

    Attributes:
        tokens, sentences: in all. tokens_kept: those whose piece stays.
        sentences_changed: those with a token whose piece does not; only these are cut anew.
        tokens_after: how many tokens there are then.
        unknown, unknown_after: tokens that no piece stands for.
    """

    tokens: int
    tokens_kept: int
    sentences: int
    sentences_changed: int
    tokens_after: int
    unknown: int
    unknown_after: int


def token_counts(folder: Path | str) -> Ints:
    """How often a corpus has each piece, held-out documents included, int64 (V,); a shard after the other,
    at the speed of the disk."""
    size = Corpus(folder).manifest.vocab_size
    counts = np.zeros(size, dtype=np.int64)
    for shard in _shards(folder):
        counts += np.bincount(shard.tokens, minlength=size)
    return counts


def measure_coverage(
    folder: Path | str,
    before: Tokenizer,
    after: Tokenizer,
    kept: Ints,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Coverage:
    """What a corpus loses by a vocabulary that has the pieces `kept` (V',) alone.

    Args:
        before: its tokenizer. after: that of the smaller vocabulary.
        progress: called with sentences seen and sentences in all.
    """
    stays = np.zeros(before.vocab_size, dtype=np.bool_)
    stays[kept] = True
    tokens = tokens_kept = seen = changed = new_tokens = unknown = new_unknown = 0
    total = sum(Corpus(folder, split).num_sentences for split in SPLITS)
    for shard in _shards(folder):
        here, ends = shard.tokens, shard.sentences
        odd = ~stays[here]
        unknown_here = int((here == before.unk_id).sum())
        cut_anew = np.flatnonzero(np.add.reduceat(odd, ends[:-1])) if len(here) else np.zeros(0, np.int64)
        old, new, new_unknown_here = _cut_anew(before, after, [here[ends[i] : ends[i + 1]] for i in cut_anew])
        tokens, tokens_kept = tokens + len(here), tokens_kept + len(here) - int(odd.sum())
        seen, changed = seen + len(ends) - 1, changed + len(cut_anew)
        new_tokens += len(here) - old + new
        unknown, new_unknown = unknown + unknown_here, new_unknown + unknown_here + new_unknown_here
        progress(seen, total)
    return Coverage(tokens, tokens_kept, seen, changed, new_tokens, unknown, new_unknown)


def _cut_anew(before: Tokenizer, after: Tokenizer, sentences: list[NDArray[Any]]) -> tuple[int, int, int]:
    """Tokens of some sentences before, after, and how many more of them are unknown. What was unknown before
    has no letters any more and stays unknown."""
    known = [row[row != before.unk_id] for row in sentences]
    texts = [before.decode(row.tolist()) for row in known]
    ids, _ = after.encode_flat(texts)
    unknown_before = sum(len(row) - len(part) for row, part in zip(sentences, known, strict=True))
    old, new = sum(map(len, sentences)), len(ids) + unknown_before
    return old, new, int((ids == after.unk_id).sum())


def _shards(folder: Path | str) -> Iterator[Shard]:
    for split in SPLITS:
        corpus = Corpus(folder, split)
        yield from map(corpus.shard, range(corpus.num_shards))
