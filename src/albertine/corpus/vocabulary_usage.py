"""Token counts of a corpus, and how a smaller vocabulary would encode it."""

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
    """How much of a text has the same encoding with a pruned vocabulary.

    Attributes:
        tokens, sentences: of the text.
        tokens_kept: tokens that stay in the vocabulary.
        sentences_changed: sentences with a removed token; only these are encoded again.
        tokens_after: number of tokens with the pruned vocabulary.
        unknown, unknown_after: number of unknown tokens before and after.
    """

    tokens: int
    tokens_kept: int
    sentences: int
    sentences_changed: int
    tokens_after: int
    unknown: int
    unknown_after: int


def token_counts(folder: Path | str) -> Ints:
    """Count each token of the vocabulary in a corpus, both splits, int64 (V,)."""
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
    """Measure how a corpus is encoded by a vocabulary with only the tokens `kept` (V',).

    Args:
        before: the tokenizer of the corpus.
        after: the pruned tokenizer.
        progress: called with the number of sentences done and in total.
    """
    stays = np.zeros(before.vocab_size, dtype=np.bool_)
    stays[kept] = True
    tokens = tokens_kept = seen = changed = new_tokens = unknown = new_unknown = 0
    total = sum(Corpus(folder, split).num_sentences for split in SPLITS)
    for shard in _shards(folder):
        here, ends = shard.tokens, shard.sentences
        removed = ~stays[here]
        unknown_here = int((here == before.unk_id).sum())
        changed_here = (
            np.flatnonzero(np.add.reduceat(removed, ends[:-1])) if len(here) else np.zeros(0, np.int64)
        )
        old, new, new_unknown_here = _encode_again(
            before, after, [here[ends[i] : ends[i + 1]] for i in changed_here]
        )
        tokens, tokens_kept = tokens + len(here), tokens_kept + len(here) - int(removed.sum())
        seen, changed = seen + len(ends) - 1, changed + len(changed_here)
        new_tokens += len(here) - old + new
        unknown, new_unknown = unknown + unknown_here, new_unknown + unknown_here + new_unknown_here
        progress(seen, total)
    return Coverage(tokens, tokens_kept, seen, changed, new_tokens, unknown, new_unknown)


def _encode_again(before: Tokenizer, after: Tokenizer, sentences: list[NDArray[Any]]) -> tuple[int, int, int]:
    """Number of tokens of some sentences before and after, and of new unknown tokens. Tokens unknown before
    stay unknown, since their characters are lost."""
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
