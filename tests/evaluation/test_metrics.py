"""Scores against figures worked out by hand, and against NumPy's own where it has them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albertine.evaluation import metrics

CLASSES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=60)
NUMBERS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=40)


def test_counts_by_hand() -> None:
    gold, predicted = list("1101000"), list("1011000")
    assert metrics.accuracy(gold, predicted) == pytest.approx(5 / 7)
    assert metrics.f1(gold, predicted) == pytest.approx(2 * 2 / (3 + 3))
    # Two hits, one miss and one false alarm of the ones; three hits and the same of the zeros.
    assert metrics.macro_f1(gold, predicted) == pytest.approx((4 / 6 + 6 / 8) / 2)
    assert metrics.matthews(gold, predicted) == pytest.approx((2 * 3 - 1 * 1) / math.sqrt(3 * 3 * 4 * 4))


@given(CLASSES)
def test_matthews_of_any_number_of_classes_is_the_correlation_of_their_indicators(
    pairs: list[tuple[str, str]],
) -> None:
    gold, predicted = [g for g, _ in pairs], [p for _, p in pairs]
    x = np.array([[g == c for c in "abc"] for g in gold], dtype=float)
    y = np.array([[p == c for c in "abc"] for p in predicted], dtype=float)
    x, y = x - x.mean(0), y - y.mean(0)
    spread = math.sqrt((x * x).sum() * (y * y).sum())
    expected = (x * y).sum() / spread if spread > 1e-12 else 0.0
    assert metrics.matthews(gold, predicted) == pytest.approx(expected, abs=1e-9)


@given(NUMBERS)
def test_pearson_is_numpys(pairs: list[tuple[int, int]]) -> None:
    x, y = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    found = metrics.pearson(x.tolist(), y.tolist())
    if x.std() and y.std():
        assert found == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
    else:
        assert found == 0


@given(NUMBERS)
def test_spearman_is_pearson_of_mean_ranks(pairs: list[tuple[int, int]]) -> None:
    def ranks(values: list[int]) -> list[float]:
        return [sum(o < v for o in values) + (values.count(v) + 1) / 2 for v in values]

    x, y = ([p[i] for p in pairs] for i in range(2))
    assert metrics.spearman(x, y) == pytest.approx(metrics.pearson(ranks(x), ranks(y)), abs=1e-9)


def test_what_is_no_number_has_no_rank() -> None:
    for correlation in (metrics.spearman, metrics.pearson):
        assert math.isnan(correlation([1.0, 2.0, 3.0], [1.0, math.nan, 2.0]))


def test_spearman_without_ties_by_its_formula() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 6.0, 7.0, 8.0, 7.5]
    assert metrics.spearman(x, y) == pytest.approx(1 - 6 * (1 + 1) / (5 * 24))


def test_sets_of_labels() -> None:
    gold = [frozenset("ab"), frozenset(), frozenset("c")]
    predicted = [frozenset("a"), frozenset("b"), frozenset("c")]
    assert metrics.micro_f1(gold, predicted) == pytest.approx(2 * 2 / (3 + 3))
    assert metrics.micro_f1([frozenset()], [frozenset()]) == 1
    assert metrics.f1(["0", "0"], ["0", "0"]) == 0


def test_nothing_and_unequal_are_refused() -> None:
    for gold, predicted in (([], []), (["a"], [])):
        with pytest.raises(ValueError, match=r"nothing|predictions"):
            metrics.accuracy(gold, predicted)


def test_the_error_of_scores() -> None:
    assert metrics.mean_squared_error([1.0, 2.0], [1.0, 4.0]) == 2.0


def test_a_class_that_is_only_predicted_counts() -> None:
    assert metrics.macro_f1(list("aa"), list("ac")) == pytest.approx((2 / 3 + 0) / 2)


def test_macro_f1_goes_through_the_examples_once() -> None:
    class Counted(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    gold, same = ([Counted(i % 200) for i in range(2000)] for _ in range(2))
    assert metrics.macro_f1(gold, same) == 1
    assert Counted.compared < 20 * 2000
