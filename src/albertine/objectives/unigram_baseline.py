"""Unigram baseline of masked prediction: the score of a model that ignores its input.

A few tokens make up much of any text, so masked-LM accuracy needs a baseline over the same positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from albertine.corpus.reader import Shards
from albertine.errors import CorpusError
from albertine.objectives.batch import PretrainingBatch


def count_tokens(corpus: Shards, vocab_size: int) -> NDArray[np.int64]:
    """Token counts of a corpus, int64 (V,).

    Raises:
        CorpusError: it holds an id of `vocab_size` or above.
    """
    counts = np.zeros(vocab_size, dtype=np.int64)
    for index in range(corpus.num_shards):
        found = np.bincount(corpus.shard(index).tokens, minlength=vocab_size)
        if len(found) > vocab_size:
            raise CorpusError(
                f"holds token {len(found) - 1}, beyond a vocabulary of {vocab_size}",
                where=f"shard {index} of the corpus",
                remedy="Use the corpus that was prepared with the model's tokenizer",
            )
        counts += found
    return counts


@dataclass(frozen=True)
class BaselineScore:
    """Baseline over masked positions: accuracy, mean cross-entropy in nats, and number of positions."""

    accuracy: float
    cross_entropy: float
    count: int


class Unigram:
    """Predicts the training frequencies at every position, so its guess is always the most frequent token.

    Args:
        counts: token counts of the training text, (V,).
        smoothing: added to every count, so that unseen tokens have finite cross-entropy.
    """

    def __init__(self, counts: NDArray[np.integer], smoothing: float = 1.0) -> None:
        if counts.sum() == 0:
            raise CorpusError("holds no token to count", remedy="Prepare it again from files with text")
        smoothed = counts + smoothing
        self.log_probabilities: NDArray[np.float64] = np.log(smoothed / smoothed.sum())
        self.guess = int(counts.argmax())

    def score(self, labels: NDArray[np.integer]) -> BaselineScore:
        """The score over the original ids at the masked positions, (P,)."""
        if len(labels) == 0:
            return BaselineScore(0.0, 0.0, 0)
        return BaselineScore(
            float(np.mean(labels == self.guess)), float(-self.log_probabilities[labels].mean()), len(labels)
        )

    def score_batches(self, batches: Iterable[PretrainingBatch], *, masked: bool = False) -> BaselineScore:
        """The score over all predicted positions of some batches.

        Args:
            masked: only positions with [MASK].
        """
        labels = [masked_labels(batch) if masked else batch.mlm_labels.cpu().numpy() for batch in batches]
        return self.score(np.concatenate(labels) if labels else np.empty(0, dtype=np.int64))


def masked_labels(batch: PretrainingBatch) -> NDArray[np.int64]:
    """Original ids at [MASK], (P',): without tokens kept or replaced at random."""
    read, labels = _read(batch)
    masked: NDArray[np.int64] = labels[read == batch.mask_id]
    return masked


def blind_accuracy(batches: Iterable[PretrainingBatch], guess: int) -> float:
    """Baseline of masked-LM accuracy without context: keep every visible token, and predict the same token
    for every [MASK].

    With the published 80/10/10 that is .1 + .8 p, p being the share of that token, plus up to 1/V for tokens
    replaced by themselves.
    """
    right = total = 0
    for batch in batches:
        read, labels = _read(batch)
        right += int((np.where(read == batch.mask_id, guess, read) == labels).sum())
        total += len(labels)
    return right / total if total else 0.0


def _read(batch: PretrainingBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Input ids at the predicted positions, and labels."""
    return batch.packed.input_ids[batch.mlm_positions].cpu().numpy(), batch.mlm_labels.cpu().numpy()
