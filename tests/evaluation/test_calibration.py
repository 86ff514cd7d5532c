"""Calibration and confusion against loops that are written out."""

from __future__ import annotations

import numpy as np
import pytest

from albertine.evaluation.calibration import expected_calibration_error, reliability
from albertine.evaluation.confusion import confusion, most_common_confusions


def by_hand(confidences: list[float], right: list[bool]) -> float:
    total = 0.0
    for tenth in range(10):
        inside = [
            i
            for i, c in enumerate(confidences)
            if tenth / 10 < c <= (tenth + 1) / 10 or (tenth == 0 and c == 0)
        ]
        if inside:
            sure = sum(confidences[i] for i in inside) / len(inside)
            hit = sum(right[i] for i in inside) / len(inside)
            total += len(inside) / len(confidences) * abs(hit - sure)
    return total


def test_the_error_is_that_of_the_formula() -> None:
    rng = np.random.default_rng(5)
    confidences = [*rng.random(500).tolist(), 0.0, 0.1, 0.3, 0.7, 1.0]
    right = (rng.random(505) < np.sqrt(confidences)).tolist()
    bins = reliability(confidences, right)
    assert sum(b.size for b in bins) == 505
    assert expected_calibration_error(bins) == pytest.approx(by_hand(confidences, right), abs=1e-12)


def test_known_cases() -> None:
    # Two answers 0.9 sure, one right: |1/2 - 0.9|; two 0.6 sure, both right: |1 - 0.6|.
    bins = reliability([0.9, 0.9, 0.6, 0.6], [True, False, True, True])
    assert expected_calibration_error(bins) == pytest.approx(0.5 * 0.4 + 0.5 * 0.4)
    # A border belongs to the bin below it.
    assert [b.size for b in reliability([0.7, 0.0, 1.0], [True] * 3)] == [1, 0, 0, 0, 0, 0, 1, 0, 0, 1]
    assert expected_calibration_error(reliability([], [])) == 0
    with pytest.raises(ValueError, match="2 confidences and 1"):
        reliability([0.1, 0.2], [True])


def test_confusion() -> None:
    rng = np.random.default_rng(2)
    labels = ["a", "b", "c"]
    gold, predicted = ([labels[i] for i in rng.integers(3, size=200)] for _ in range(2))
    table = confusion(gold, predicted, labels)
    for i, right in enumerate(labels):
        for j, taken in enumerate(labels):
            assert table[i, j] == sum(g == right and p == taken for g, p in zip(gold, predicted, strict=True))
    with pytest.raises(ValueError, match="`d`"):
        confusion(["d"], ["a"], labels)


def test_the_commonest_mixups() -> None:
    table = np.array([[5, 3, 0], [1, 9, 0], [0, 3, 1]])
    found = most_common_confusions(table, ["a", "b", "c"])
    assert [(m.right, m.taken_for, m.times) for m in found] == [("c", "b", 3), ("a", "b", 3), ("b", "a", 1)]
    assert found[0].share == pytest.approx(0.75)
    assert most_common_confusions(np.diag([3, 4]), ["a", "b"]) == []
