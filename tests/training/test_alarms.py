"""Alarms on synthetic curves: each failure is named, healthy runs raise none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine.core.randomness import generator
from albertine.training.alarms import Alarm, TrainingAlarms, not_finite, onset_minute
from albertine.training.metrics import MetricsFile, read_metrics
from albertine.training.resuming import onset_of_run

UNIGRAM = 7.0
Curve = Callable[[float], tuple[float, float, float]]
"""From progress to masked-LM loss and accuracy and sentence accuracy."""


def alarms_of(**changes: Any) -> TrainingAlarms:
    values: dict[str, Any] = {
        "unigram_entropy": UNIGRAM,
        "unigram_accuracy": 0.05,
        "learning_rate": 0.00044,
        "batch_size": 256,
        "optimizer": "lamb",
        "warmup": 0.05,
        "total_steps": 20_000,
    }
    return TrainingAlarms(**(values | changes))


def run(curve: Curve, noise: float = 1.0, every: int = 50, seed: int = 0, **changes: Any) -> list[Alarm]:
    """All alarms of a run along a curve, with the noise of windows of some hundred predictions."""
    monitor, alarms = alarms_of(**changes), []
    draws = generator(seed, "curve")
    total = 20_000
    for step in range(every, total + 1, every):
        loss, accuracy, order = curve(step / total)
        row = {
            "step": step,
            "mlm_loss": loss + noise * draws.normal(0, 0.08),
            "mlm_accuracy": float(np.clip(accuracy + noise * draws.normal(0, 0.01), 0, 1)),
            "sentence_accuracy": float(np.clip(order + noise * draws.normal(0, 0.03), 0, 1)),
        }
        alarms += monitor.update(row, step / total)
    return alarms


def healthy(p: float) -> tuple[float, float, float]:
    """From ln V to a short plateau at the unigram loss, then down."""
    loss = max(2.6, 10.3 - 3.4 * min(1, p / 0.02) - 4.2 * (1 - math.exp(-6 * max(0, p - 0.08))))
    return loss, max(0.05, 0.62 - 0.075 * max(0.0, loss - 2.6)), 0.5 + 0.4 / (1 + math.exp(-25 * (p - 0.25)))


def slow(p: float) -> tuple[float, float, float]:
    """A small batch: a plateau at the unigram loss for a while, sentence order only after a third of the
    run."""
    loss = 6.95 - 2.2 * (1 - math.exp(-2 * max(0.0, p - 0.13))) + 3.3 * math.exp(-p / 0.01)
    return loss, 0.05 + 0.13 * max(0.0, 6.9 - loss), 0.5 + 0.25 / (1 + math.exp(-20 * (p - 0.3)))


def bumpy(p: float) -> tuple[float, float, float]:
    """Healthy, with two spikes of one reading each and a soft setback."""
    loss, accuracy, order = healthy(p)
    if round(p * 400) in (150, 300):
        return 9.5, 0.02, 0.5
    return loss + (0.5 if 0.5 < p < 0.55 else 0.0), accuracy * (0.8 if 0.5 < p < 0.55 else 1.0), order


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("curve", [healthy, slow, bumpy])
def test_healthy_runs_raise_no_alarm(curve: Curve, seed: int) -> None:
    assert run(curve, seed=seed) == []


def test_a_run_that_learns_everything_at_once_raises_none() -> None:
    assert run(lambda p: (0.5, 0.9, 0.99)) == []


def plateau(p: float) -> tuple[float, float, float]:
    return 7.05 + 3.2 * math.exp(-p / 0.01), 0.05, 0.5


def test_plateau_with_the_published_rate_names_the_rate_for_the_batch() -> None:
    alarms = run(plateau, learning_rate=0.00176)
    assert [a.kind for a in alarms] == ["plateau"]  # once, and not also for the sentences
    assert alarms[0].step <= 5000
    text = str(alarms[0])
    assert "PLATEAU" in text and "7.00" in text
    assert "training.learning_rate=0.00044" in text and "0.00176 fits 4096" in text
    assert "training.warmup=0.1" in text and "takes more steps or a larger batch" in text
    # How many were seen is not step times batch, which stages change.
    assert "were seen" not in text


def test_a_branch_is_given_its_whole_patience() -> None:
    """Its steps before the checkpoint are of another run, whose plateau it may be there to leave."""
    monitor, alarms = alarms_of(warmup=0.0), list[Alarm]()
    monitor.begin(10_000)
    for step in range(10_000, 20_001, 50):
        if step % 500 == 0:
            alarms += monitor.update({"step": step, "evaluation": {"mask_loss": UNIGRAM}}, step / 20_000)
        row = {"mlm_loss": UNIGRAM, "mlm_accuracy": 0.05, "sentence_accuracy": 0.5}
        alarms += monitor.update({"step": step + 10, **row}, step / 20_000)
    assert [alarm.kind for alarm in alarms] == ["plateau"]
    assert 13_000 <= alarms[0].step <= 13_500


@pytest.mark.parametrize("curve", ["slow_start", "sentence_chance"])
def test_a_branch_is_given_time_for_all_it_may_learn(curve: str) -> None:
    monitor, found = alarms_of(warmup=0.0), list[Alarm]()
    monitor.begin(10_000)
    row = {"mlm_loss": UNIGRAM + 2, "mlm_accuracy": 0.2}
    if curve == "sentence_chance":
        row |= {"mlm_loss": 3.0, "sentence_accuracy": 0.5}
    for step in range(10_050, 20_001, 50):
        found += monitor.update({"step": step, **row}, step / 20_000)
    assert [alarm.kind for alarm in found] == [curve]
    assert found[0].step >= (13_000 if curve == "slow_start" else 16_000)


def test_what_a_branch_begins_with_waits_for_its_first_line() -> None:
    """Which determines whether its stage is uninformative."""
    monitor = alarms_of(warmup=0.0, uninformative_stages=frozenset({1}))
    monitor.begin(10_000)
    monitor.update({"step": 10_000, "evaluation": {"mask_loss": UNIGRAM}}, 0.5)
    monitor.update({"step": 10_050, "stage": 1, "mlm_loss": 3.0, "mlm_accuracy": 0.2}, 0.5)
    assert not monitor._evaluations


@pytest.mark.parametrize("curve", ["plateau", "divergence", "collapse"])
def test_a_warm_up_that_is_long_already_is_not_to_be_longer(curve: str) -> None:
    def fall(p: float) -> tuple[float, float, float]:
        return healthy(p) if p < 0.7 else (12.0, 0.01, 0.5)

    def advice(warmup: float) -> str:
        return "\n".join(map(str, run(plateau if curve == "plateau" else fall, warmup=warmup)))

    assert curve.upper() in advice(0.15) and "training.warmup=0.2." in advice(0.15)
    for warmup in (0.2, 0.3):
        assert curve.upper() in advice(warmup) and "warmup" not in advice(warmup)


def test_hints_with_known_settings_come_first() -> None:
    (alarm,) = run(plateau, learning_rate=0.00044, plateau_advice=("Try this.",))
    assert alarm.advice[0] == "Try this."


def test_plateau_far_above_the_rule_is_reported_to_go_down_step_by_step() -> None:
    (alarm,) = run(plateau, learning_rate=0.006)
    assert "14 times" in str(alarm) and "training.learning_rate=0.002" in str(alarm)


@pytest.mark.parametrize("level", [6.65, 7.27])
def test_plateaus_as_reported(level: float) -> None:
    assert [a.kind for a in run(lambda p: (level, 0.06, 0.5))] == ["plateau"]


def test_a_plateau_with_a_usual_rate_does_not_name_the_rate() -> None:
    (alarm,) = run(plateau, learning_rate=0.00044)
    assert "fits batch 256" in str(alarm) and "training.learning_rate=0.00022" in str(alarm)


def test_muons_rate_is_measured_by_no_batch() -> None:
    """By the rule of AdamW its 0.02 would be hundreds of times too large."""
    (alarm,) = run(plateau, learning_rate=0.02, optimizer="muon")
    assert "training.learning_rate=0.01." in str(alarm) and "square-root" not in str(alarm)


SMALL = {"batch_size": 64, "measured_rate": 1e-3}


@pytest.mark.parametrize(
    ("optimizer", "rate", "changes", "advice"),
    [
        ("adamw", 1e-6, {}, "100 times below what fits; raise it: training.learning_rate=0.0001."),
        ("lamb", 1e-6, {}, "raise it: training.learning_rate=0.00044."),
        ("muon", 1e-4, {}, "200 times below what fits; raise it: training.learning_rate=0.02."),
        ("muon", 7e-3, {}, "Try half the learning rate: training.learning_rate=0.0035."),
        ("muon", 1.0, {}, "Try the rate that fits: training.learning_rate=0.02."),
        ("muon", 5e-3, {"suggest_higher_rate": False}, "Try half the learning rate"),
        ("adamw", 1e-3, SMALL, "Try half the learning rate: training.learning_rate=0.0005."),
        ("adamw", 5e-5, SMALL, "raise it: training.learning_rate=0.001."),
        ("adamw", 5e-5, {"batch_size": 64}, "5e-05 fits batch 64"),
    ],
)
def test_a_plateau_at_a_rate_far_below_what_fits_is_reported_to_raise_it(
    optimizer: str, rate: float, changes: dict[str, Any], advice: str
) -> None:
    (alarm,) = run(plateau, optimizer=optimizer, learning_rate=rate, **changes)
    assert alarm.kind == "plateau" and advice in str(alarm)


def test_no_run_that_fell_is_reported_to_raise_its_rate() -> None:
    low = [alarm for alarm in run(collapse, learning_rate=1e-5) if alarm.kind == "collapse"]
    assert low and all("raise it" not in str(alarm) and "5e-06" in str(alarm) for alarm in low)


def collapse(p: float) -> tuple[float, float, float]:
    loss, accuracy, order = healthy(p)
    return (loss, accuracy, order) if p < 0.7 else (7.1, 0.06, 0.5)


def test_collapse_of_both_is_named() -> None:
    alarms = run(collapse)
    kinds = [a.kind for a in alarms]
    assert sorted(kinds) == ["collapse", "sentence_collapse"]
    first = next(a for a in alarms if a.kind == "collapse")
    assert 14_000 < first.step <= 14_000 + 6 * 50
    assert "fell from 60" in first.what and "last good checkpoint" in str(first)


def test_sentence_order_alone_collapses() -> None:
    def curve(p: float) -> tuple[float, float, float]:
        return *healthy(p)[:2], (0.92 if p < 0.6 else 0.51)

    assert [a.kind for a in run(curve)] == ["sentence_collapse"]


def test_sentence_order_that_never_begins() -> None:
    alarms = run(lambda p: (*healthy(p)[:2], 0.5))
    assert [a.kind for a in alarms] == ["sentence_chance"]
    assert "sentences split wrongly" in str(alarms[0])


def test_divergence() -> None:
    def curve(p: float) -> tuple[float, float, float]:
        return healthy(p) if p < 0.3 else (12.0, 0.01, 0.5)

    kinds = {a.kind for a in run(curve, learning_rate=0.00176)}
    assert "divergence" in kinds and "collapse" in kinds


def test_a_high_start_is_no_divergence() -> None:
    monitor = alarms_of()
    assert not any(
        monitor.update({"step": s, "mlm_loss": 10.3, "mlm_accuracy": 0.0}, s / 20_000)
        for s in range(10, 900, 10)
    )


def test_a_slow_start_is_no_plateau_and_no_large_rate() -> None:
    def crawling(p: float) -> tuple[float, float, float]:
        return 10.3 - 1.5 * p, 0.04, 0.5

    for rate, advice in ((2e-4, "learning_rate=0.0004"), (1e-5, "raise it: training.learning_rate=0.00044")):
        alarms = run(crawling, learning_rate=rate, slow_start_advice=("Begin elsewhere.",))
        assert [a.kind for a in alarms if a.kind != "sentence_chance"] == ["slow_start"]
        assert "Begin elsewhere." in str(alarms[0]) and advice in str(alarms[0])
        assert str(alarms[0]).count("learning_rate=") == (2 if rate == 2e-4 else 1)


def test_an_alarm_comes_again_after_it_has_passed() -> None:
    def curve(p: float) -> tuple[float, float, float]:
        loss, accuracy, order = healthy(p)
        return (loss, 0.06 if 0.5 < p < 0.6 or p > 0.8 else accuracy, order)

    assert [a.kind for a in run(curve)].count("collapse") == 2


def test_a_run_by_the_clock_and_without_sentences() -> None:
    monitor = alarms_of(total_steps=None)
    alarms = []
    for step in range(50, 20_001, 50):
        alarms += monitor.update({"step": step, "mlm_loss": 7.1, "mlm_accuracy": 0.05}, step / 20_000)
    assert [a.kind for a in alarms] == ["plateau"]


def test_a_short_run_that_never_began_is_reported_before_its_end() -> None:
    monitor, alarms = alarms_of(total_steps=300, warmup=0.1), []
    for step in range(5, 301, 5):
        alarms += monitor.update({"step": step, "mlm_loss": 6.9, "mlm_accuracy": 0.05}, step / 300)
    assert [a.kind for a in alarms] == ["plateau"] and "more steps" in str(alarms[0])


def test_rows_of_other_kinds_are_passed_over() -> None:
    monitor = alarms_of()
    assert monitor.update({"step": 5, "evaluation": {"mlm_loss": 7.0}}, 0.1) == []
    assert monitor.update({"step": 6, "mlm_loss": None, "mlm_accuracy": None}, 0.1) == []


def test_not_finite_values_come_with_a_feasible_remedy() -> None:
    message = str(not_finite(7, None, None))
    assert "not finite at step 7" in message and "first batch" in message and "another name" in message
    assert "--branch-from" not in message
    message = str(not_finite(7, {"row": 72}, Path("runs/a/checkpoints/step-6")))
    assert "{'row': 72}" in message and "--branch-from runs/a/checkpoints/step-6 (or one before it" in message
    assert "lower training.learning_rate" in message


def judged(gain: Callable[[float], float], cosine: float = 0.5, **changes: Any) -> list[Alarm]:
    """All alarms of a run whose training loss falls by copying alone, with an evaluation every 500 steps."""
    monitor, alarms, total = alarms_of(**changes), [], 20_000
    for step in range(50, total + 1, 50):
        p = step / total
        row = {"step": step, "mlm_loss": 6.3 - 0.2 * p, "mlm_accuracy": 0.138, "sentence_accuracy": 0.7}
        alarms += monitor.update(row, p)
        if step % 500 == 0:
            scores = {"mlm_loss": 6.3, "mask_loss": UNIGRAM - gain(p), "cosine": cosine}
            alarms += monitor.update({"step": step, "evaluation": scores, "elapsed": step * 0.1}, p)
    return alarms


def test_a_model_that_only_copies_rings_by_its_context_gain() -> None:
    """Its loss over all chosen tokens lies .7 nats below the unigram level and still falls."""
    (alarm,) = judged(lambda p: 0.02, cosine=0.97, plateau_advice=("Try stages.",))
    assert alarm.kind == "plateau" and alarm.advice[0] == "Try stages."
    assert "context gain is 0.02 nats" in alarm.what and "on [MASK] the held-out loss is 6.98" in alarm.what
    assert "nearly the same for every word, of mean cosine 0.97" in alarm.what


@pytest.mark.parametrize("objective", ["causal", "permutation"])
def test_without_masked_tokens_there_is_no_alarm(objective: str) -> None:
    def fall(level: float) -> Curve:
        return lambda p: healthy(p) if p < 0.7 else (level, 0.01, 0.5)

    curves = (plateau, fall(7.1), fall(12.0), lambda p: (9.5, 0.01, 0.5))
    alarms = [one for curve in curves for one in run(curve, objective=objective)]
    alarms += judged(lambda p: 0.02, objective=objective)
    alarms = [alarm for alarm in alarms if not alarm.kind.startswith("sentence")]  # they have no pairs
    assert {a.kind for a in alarms} == {"plateau", "collapse", "divergence", "slow_start"}
    for alarm in alarms:
        assert "mask" not in str(alarm).lower(), alarm
        assert any(name in alarm.what for name in ("the LM loss", "LM accuracy", "nats: the held-out loss"))


def test_states_that_differ_are_not_called_the_same() -> None:
    (alarm,) = judged(lambda p: 0.02, cosine=0.6)
    assert "nearly the same" not in alarm.what and "mean cosine 0.60" in alarm.what


@pytest.mark.parametrize("gain", [lambda p: 3 * p, lambda p: 0.4, lambda p: 0.9 * max(0.0, p - 0.1)])
def test_a_model_that_learns_from_context_raises_no_alarm(gain: Callable[[float], float]) -> None:
    assert judged(gain) == []


def test_a_training_loss_at_the_unigram_level_is_no_alarm_where_the_context_gain_is_there() -> None:
    monitor, total = alarms_of(), 20_000
    for step in range(50, total + 1, 50):
        assert monitor.update({"step": step, "mlm_loss": 7.0, "mlm_accuracy": 0.1}, step / total) == []
        if step % 500 == 0:
            monitor.update({"step": step, "evaluation": {"mask_loss": 6.0}}, step / total)


def staged(curve: Curve, **changes: Any) -> list[Alarm]:
    """All alarms of a run of two stages, with an evaluation behind every fourth line."""
    monitor, alarms, total = alarms_of(**changes), [], 20_000
    for number, step in enumerate(range(50, total + 1, 50), 1):
        loss, accuracy, order = curve(step / total)
        row = {"step": step, "mlm_loss": loss, "mlm_accuracy": accuracy, "sentence_accuracy": order}
        alarms += monitor.update({**row, "stage": int(step > 0.4 * total)}, step / total)
        if number % 4 == 0:
            scores = {"mask_loss": UNIGRAM - (0.02 if step <= 0.4 * total else 2)}
            alarms += monitor.update({"step": step, "evaluation": scores}, step / total)
    return alarms


def test_evaluations_do_not_end_a_stage() -> None:
    """The best value is kept over them: otherwise a fall from it would not be detected."""

    def falls(p: float) -> tuple[float, float, float]:
        return (9.5, 0.02, 0.5) if p > 0.8 else (4.0, 0.4, 0.9)

    assert {a.kind for a in staged(falls, uninformative_stages=frozenset({0}))} == {
        "divergence",
        "collapse",
        "sentence_collapse",
    }


def test_a_fall_from_one_stage_to_another_is_none() -> None:
    def harder(p: float) -> tuple[float, float, float]:
        return (4.0, 0.4, 0.9) if p <= 0.4 else (6.0, 0.15, 0.6)

    assert staged(harder, uninformative_stages=frozenset({0})) == []


def test_a_stage_that_trains_on_something_else_is_not_judged_by_evaluations() -> None:
    assert staged(lambda p: (4.0, 0.4, 0.9), uninformative_stages=frozenset({0})) == []
    assert [a.kind for a in staged(lambda p: (4.0, 0.4, 0.9))] == ["plateau"]


def test_an_old_evaluation_raises_no_alarm() -> None:
    monitor, alarms, total = alarms_of(), [], 20_000
    monitor.update({"step": 10, "evaluation": {"mask_loss": UNIGRAM - 2}}, 0.0)
    for step in range(50, total + 1, 50):
        alarms += monitor.update({"step": step, "mlm_loss": 7.0, "mlm_accuracy": 0.05}, step / total)
    assert [a.kind for a in alarms] == ["plateau"]


@pytest.mark.parametrize(("slope", "stuck"), [(0.0, ["plateau"]), (1.5, [])])
def test_one_evaluation_is_a_plateau_only_where_the_training_loss_stands(
    slope: float, stuck: list[str]
) -> None:
    """A short run that is judged once before the patience is over, just below the onset."""
    total = 700
    monitor, alarms = alarms_of(total_steps=total), list[Alarm]()
    for step in range(10, 400, 10):
        loss = UNIGRAM - 1.0 - slope * step / total
        alarms += monitor.update({"step": step, "mlm_loss": loss, "mlm_accuracy": 0.15}, step / total)
        if step == 200:
            monitor.update({"step": step, "evaluation": {"mask_loss": UNIGRAM - 0.28}}, step / total)
    assert [a.kind for a in alarms] == stuck


def test_the_onset_is_the_first_evaluation_that_gains() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 1, "elapsed": 60.0, "loss": 3.0},
        {"step": 2, "elapsed": 90.0, "context_gain": 0.3},
        {"step": 3, "elapsed": 120.0, "context_gain": 0.31},
        {"step": 4, "elapsed": 240.0, "context_gain": 0.9},
    ]
    assert onset_minute(rows) == 2.0
    assert onset_minute(rows[:2]) is None
    unknown = {"step": 1, "elapsed": 60.0, "context_gain": None}
    assert onset_minute([unknown, *rows]) == 2.0


def test_nan_is_null_in_the_metrics_and_raises_no_alarm(tmp_path: Path) -> None:
    nan = {"mask_loss": math.nan, "cosine": math.nan}
    assert alarms_of().context_gain(nan) is None
    total, monitor, alarms = 20_000, alarms_of(), []
    for scores in (nan, {"mask_loss": UNIGRAM - 0.1, "cosine": math.nan}):
        MetricsFile(tmp_path / "metrics.jsonl").write({"step": 1, "evaluation": scores})
    for row in read_metrics(tmp_path / "metrics.jsonl"):
        assert row["evaluation"]["cosine"] is None
        monitor.update(row, 0.0)
    for step in range(50, total + 1, 50):
        alarms += monitor.update({"step": step, "mlm_loss": 6.9, "mlm_accuracy": 0.05}, step / total)
        monitor.update(
            {"step": step, "evaluation": {"mask_loss": UNIGRAM - 0.1, "cosine": None}}, step / total
        )
    assert {alarm.kind for alarm in alarms} == {"plateau"} and "mean cosine" not in alarms[0].what


def test_a_branch_does_not_report_the_context_onset_of_its_first_run(tmp_path: Path) -> None:
    row = {"step": 3, "elapsed": 120.0, "context_gain": 0.31}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert onset_of_run(tmp_path) == 2.0
    (tmp_path / "branch.json").write_text(json.dumps({"checkpoint": "elsewhere", "step": 2}))
    assert onset_of_run(tmp_path) is None


def test_the_first_lines_of_a_later_stage_are_no_slow_start() -> None:
    def jolted(p: float) -> tuple[float, float, float]:
        return (8.5, 0.02, 0.9) if 0.4 < p < 0.45 else (4.0, 0.4, 0.9)

    assert staged(jolted, uninformative_stages=frozenset({0})) == []


def test_patience_begins_behind_a_stage_that_trained_on_something_else() -> None:
    monitor, total = alarms_of(uninformative_stages=frozenset({0})), 20_000
    for number, step in enumerate(range(50, 10_001, 50), 1):  # 2,000 steps of stage 1; patience is 3,000
        row = {"step": step, "mlm_loss": 6.0, "mlm_accuracy": 0.1, "stage": int(step > 8000)}
        assert monitor.update(row, step / total) == []
        if number % 4 == 0:
            monitor.update({"step": step, "evaluation": {"mask_loss": UNIGRAM - 0.02}}, step / total)


def test_a_coin_toss_is_waited_for_from_where_pairs_begin() -> None:
    monitor, total = alarms_of(), 20_000
    for step in range(50, 13_001, 50):  # pairs from 8,000 on; twice the patience is 6,000
        row = {"step": step, "mlm_loss": 4.0, "mlm_accuracy": 0.4, "stage": int(step > 8000)}
        row |= {"sentence_accuracy": 0.5} if step > 8000 else {}
        assert monitor.update(row, step / total) == []


def test_one_and_the_same_answer_to_pairs_is_no_skill_where_one_is_commoner() -> None:
    """Of next sentences up to 58 % are random ones."""
    alarms = run(lambda p: (*healthy(p)[:2], 0.56), majority_accuracy=0.56)
    assert [a.kind for a in alarms] == ["sentence_chance"] and "at 56.0%, that of a" in alarms[0].what
    assert run(lambda p: (*healthy(p)[:2], 0.66), majority_accuracy=0.56) == []
    falls = run(lambda p: (*healthy(p)[:2], 0.85 if p < 0.7 else 0.62), noise=0.0, majority_accuracy=0.56)
    assert [a.kind for a in falls] == ["sentence_collapse"]
