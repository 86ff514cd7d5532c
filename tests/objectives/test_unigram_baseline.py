from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from albertine.core.batch import pack
from albertine.errors import CorpusError
from albertine.objectives.batch import BatchBuilder, PretrainingBatch
from albertine.objectives.masking import MaskSettings
from albertine.objectives.pairs import PairSettings
from albertine.objectives.unigram_baseline import Unigram, blind_accuracy, count_tokens, masked_labels
from tests.objectives.standin import SPECIALS, random_corpus


def test_accuracy_and_cross_entropy_by_hand() -> None:
    score = Unigram(np.array([0, 5, 1, 0])).score(np.array([1, 1, 2, 3]))  # smoothed: 1, 6, 2, 1 of 10
    assert score.accuracy == 0.5 and score.count == 4
    assert score.cross_entropy == pytest.approx(-(2 * math.log(0.6) + math.log(0.2) + math.log(0.1)) / 4)


def test_over_the_positions_of_real_batches() -> None:
    corpus = random_corpus(4, 60)
    counts = count_tokens(corpus, SPECIALS.vocab_size)
    assert counts.sum() == len(corpus.tokens) and counts[:10].sum() == 0
    np.testing.assert_array_equal(counts, np.bincount(corpus.tokens, minlength=SPECIALS.vocab_size))
    batches = BatchBuilder(corpus, PairSettings("sop", 64), MaskSettings(), 1).build(
        [(0, r) for r in range(50)], micro_batches=3
    )
    score = Unigram(counts).score_batches(batches)
    assert score.count == sum(b.counts["mlm"] for b in batches)
    # The stand-in's tokens are uniform over 990 ids: log 990 nats is the least loss there.
    assert score.cross_entropy == pytest.approx(math.log(990), rel=0.01)


def test_without_tokens() -> None:
    with pytest.raises(CorpusError):
        Unigram(np.zeros(5, dtype=np.int64))
    assert Unigram(np.ones(5)).score_batches([]).count == 0


def test_the_floor_of_a_model_that_copies_and_guesses() -> None:
    """Ten chosen tokens, 8 masked (two of them the commonest), one kept, one replaced by another."""
    masked, commonest = 4, 7
    labels = [7, 7, 1, 2, 3, 5, 6, 8, 9, 10]
    read = [masked] * 8 + [9, 11]
    packed = pack([[2, *read, 3]])
    batch = PretrainingBatch(
        packed,
        torch.arange(1, 11),
        torch.tensor(labels),
        None,
        0,
        torch.zeros(1, 2, dtype=torch.long),
        mask_id=masked,
    )
    assert blind_accuracy([batch], commonest) == pytest.approx(0.3)  # 2 guessed, 1 copied
    assert blind_accuracy([batch, batch], commonest) == pytest.approx(0.3)
    assert blind_accuracy([batch], 12) == pytest.approx(0.1)
    assert masked_labels(batch).tolist() == labels[:8]
    assert blind_accuracy([], commonest) == 0.0
