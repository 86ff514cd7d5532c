from __future__ import annotations

import pytest
from scipy import stats

from albertine.study.verdicts import Expected, Interval, Verdict, interval, verdict


@pytest.mark.parametrize(
    "values",
    [[0.31, 0.35], [1.0, 2.0, 4.0], [0.1 * i * i for i in range(12)], [float(i % 7) for i in range(60)]],
)
def test_an_interval_is_that_of_scipy(values: list[float]) -> None:
    found = interval(values)
    scale = stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=sum(values) / len(values), scale=scale)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(
    ("low", "high", "expected", "within", "result"),
    [
        (0.1, 0.3, "greater", None, "holds"),
        (-0.3, -0.1, "greater", None, "does not hold"),
        (-0.1, 0.3, "greater", None, "not decided"),
        (-0.3, -0.1, "less", None, "holds"),
        (0.1, 0.3, "less", None, "does not hold"),
        (-0.1, 0.3, "less", None, "not decided"),
        (-0.005, 0.009, "equal", 0.01, "holds"),
        (0.02, 0.03, "equal", 0.01, "does not hold"),
        (-0.03, -0.02, "equal", 0.01, "does not hold"),
        (0.0, 0.02, "equal", 0.01, "not decided"),
    ],
)
def test_the_rule(low: float, high: float, expected: Expected, within: float | None, result: Verdict) -> None:
    assert verdict(Interval((low + high) / 2, low, high, 3), expected, within=within) == result


@pytest.mark.parametrize(
    ("difference", "threshold", "result"),
    [
        (0.5, None, "not decided"),
        (0.5, 0.2, "holds"),
        (-0.5, 0.2, "does not hold"),
        (0.1, 0.2, "not decided"),
    ],
)
def test_one_seed_decides_only_by_a_threshold(
    difference: float, threshold: float | None, result: Verdict
) -> None:
    assert verdict(interval([difference]), "greater", threshold=threshold) == result
