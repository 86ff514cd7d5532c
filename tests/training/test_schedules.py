"""Schedules at the points where they bend."""

from __future__ import annotations

import pytest

from albertine.errors import SettingsError
from albertine.training.schedules import ScheduleKind, make_schedule, scale_learning_rate


@pytest.mark.parametrize("step", [0, 1, 1562, 3124, 3125, 3126, 62500, 124999])
def test_linear_is_google_s(step: int) -> None:
    """run_pretraining: lr * step / warmup below the warm-up, else lr * (1 - step / total), from step 0 over
    all steps.
    """
    total, warmup = 125_000, 3125
    expected = step / warmup if step < warmup else 1 - step / total
    assert make_schedule("linear", warmup=warmup / total)(step / total) == pytest.approx(expected, abs=1e-12)


def test_linear_has_google_s_small_step_at_the_end_of_the_warmup() -> None:
    schedule = make_schedule("linear", warmup=0.1)
    assert schedule(0.1 - 1e-9) == pytest.approx(1.0)
    assert schedule(0.1) == pytest.approx(0.9)


def test_wsd() -> None:
    schedule = make_schedule("wsd", warmup=0.1, decay=0.2)
    shares = [schedule(p) for p in (0.0, 0.05, 0.1, 0.5, 0.8, 0.9, 1.0, 1.1)]
    assert shares == pytest.approx([0, 0.5, 1, 1, 1, 0.5, 0, 0])


def test_constant_and_no_warmup() -> None:
    assert [make_schedule("constant", warmup=0.5)(p) for p in (0.0, 0.25, 0.5, 1.0)] == [0, 0.5, 1, 1]
    assert make_schedule("linear", warmup=0)(0.0) == 1.0
    assert make_schedule("wsd", warmup=0, decay=0)(1.0) == 1.0


@pytest.mark.parametrize("kind", ["linear", "wsd", "constant"])
def test_never_outside_its_range(kind: ScheduleKind) -> None:
    schedule = make_schedule(kind, warmup=0.3, decay=0.7)
    assert all(0 <= schedule(p / 100) <= 1 for p in range(130))


@pytest.mark.parametrize(
    ("kind", "warmup", "decay"), [("wsd", 0.5, 0.6), ("linear", 1.5, 0.1), ("cosine", 0.1, 0.1)]
)
def test_impossible(kind: ScheduleKind, warmup: float, decay: float) -> None:
    with pytest.raises(SettingsError):
        make_schedule(kind, warmup=warmup, decay=decay)


def test_square_root_rule() -> None:
    assert scale_learning_rate(0.00176, 4096, 4096) == 0.00176
    assert scale_learning_rate(0.00176, 4096, 256) == pytest.approx(0.00044)
