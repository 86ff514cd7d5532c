from __future__ import annotations

import math

import numpy as np
import pytest

from albertine.errors import CorpusError
from albertine.objectives.baseline import Unigram, count_tokens
from albertine.objectives.batch import BatchBuilder
from albertine.objectives.masking import MaskSettings
from albertine.objectives.pairs import PairSettings
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
    # The stand-in's tokens are uniform over 990 ids: nobody can do better than log 990 nats there.
    assert score.cross_entropy == pytest.approx(math.log(990), rel=0.01)


def test_without_tokens() -> None:
    with pytest.raises(CorpusError):
        Unigram(np.zeros(5, dtype=np.int64))
    assert Unigram(np.ones(5)).score_batches([]).count == 0
