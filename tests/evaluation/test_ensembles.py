"""Averages worked out by hand, and picks on crafted scores."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from albertine.evaluation.ensembles import (
    best_members,
    greedy_members,
    mean_score,
    mean_sigmoid,
    mean_softmax,
)
from albertine.inference.probabilities import sigmoid, softmax


def test_probabilities_are_averaged_and_not_logits() -> None:
    # softmax of (0, ln 3) is (1/4, 3/4), of (ln 9, 0) it is (9/10, 1/10); the mean is (23/40, 17/40).
    logits = [np.array([[0.0, math.log(3)]]), np.array([[math.log(9), 0.0]])]
    assert softmax(mean_softmax(logits))[0].tolist() == pytest.approx([23 / 40, 17 / 40])
    # sigmoid of ln 3 is 3/4, of 0 it is 1/2; the mean is 5/8.
    assert sigmoid(mean_sigmoid([np.array([math.log(3)]), np.zeros(1)])).item() == pytest.approx(5 / 8)
    assert mean_score([np.array([[1.0]]), np.array([[2.0]]), np.array([[6.0]])]).item() == 3


def test_a_confident_member_outvotes_two_that_are_not() -> None:
    members = [np.array([[0.1, 0.0]]), np.array([[0.1, 0.0]]), np.array([[0.0, 5.0]])]
    assert mean_softmax(members).argmax(-1).item() == 1


def test_missing_options_and_certainty_stay_finite_where_they_can() -> None:
    row = np.array([[2.0, 1.0, float("-inf")]])
    assert softmax(mean_softmax([row, row]))[0].tolist() == pytest.approx(softmax(row)[0].tolist())
    far = np.array([[0.0, 2000.0]])
    assert softmax(mean_softmax([far, far]))[0].tolist() == [0, 1]
    assert sigmoid(mean_sigmoid([np.array([2000.0])])).item() == 1


def test_the_best() -> None:
    assert best_members([0.5, 0.9, 0.7, 0.9], 3) == (1, 3, 2)
    assert best_members([0.5, 0.9], 5) == (1, 0)


# What every set of candidates scores: 2 is best alone, 0 and 1 complement each other, 3 spoils everything.
TOGETHER = {
    (0,): 0.70,
    (1,): 0.70,
    (2,): 0.80,
    (3,): 0.10,
    (0, 2): 0.81,
    (1, 2): 0.85,
    (2, 3): 0.20,
    (0, 1, 2): 0.83,
    (1, 2, 3): 0.30,
    (0, 1, 2, 3): 0.40,
}


def crafted(numbers: Sequence[int]) -> float:
    return TOGETHER[tuple(sorted(numbers))]


def test_forward_selection() -> None:
    assert greedy_members(4, 1, crafted) == ((2,), (0.80,))
    assert greedy_members(4, 2, crafted) == ((2, 1), (0.80, 0.85))
    # A third member makes it worse, so the row that scored best is kept; no member is taken twice.
    assert greedy_members(4, 4, crafted) == ((2, 1), (0.80, 0.85))
    # The two best alone would be another pair.
    assert best_members([crafted([i]) for i in range(4)], 2) == (2, 0)


def test_of_equal_ensembles_the_smaller_and_earlier_wins() -> None:
    assert greedy_members(3, 3, lambda numbers: 0.5) == ((0,), (0.5,))


def test_a_mean_holds_few_members_at_once() -> None:
    members = [np.zeros((50_000, 10), np.float32) for _ in range(16)]
    tracemalloc.start()
    mean_softmax(members)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 50_000 * 10 * 8
