from __future__ import annotations

import pytest
from scipy import stats

from albertine.core.quantiles import Z, t_quantile


def test_quantiles_are_those_of_student_and_of_the_normal_distribution() -> None:
    assert pytest.approx(stats.norm.ppf(0.975), abs=1e-6) == Z
    for degrees in (*range(1, 64), 200, 10_000):
        assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), abs=6e-5)
