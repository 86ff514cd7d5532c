"""Metrics lines: windows, NaN, torn lines, going back to a step."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from albertine.errors import RunError
from albertine.training import metrics
from albertine.training.distributed import World
from albertine.training.metrics import (
    MetricsFile,
    RunningSums,
    as_written,
    cut_metrics,
    open_tensorboard,
    read_metrics,
)
from albertine.training.step import PartSum, StepReport, means
from tests.crashes import Disk
from tests.training.toy import run_toy


def report(loss: float, count: int, correct: int, norm: float) -> StepReport:
    return StepReport({"mlm": PartSum(loss, count, correct), "sentence": PartSum(0.0, 0, 0)}, norm, 100, True)


def test_a_window_weighs_predictions_and_survives_json() -> None:
    window = RunningSums()
    window.add(report(30.0, 10, 4, 1.0))
    window = RunningSums(json.loads(json.dumps(window.saved())))
    window.add(report(10.0, 30, 2, 3.0))
    assert window.means() == {"mlm_loss": 1.0, "mlm_accuracy": 0.15, "loss": 1.0, "grad_norm": 2.0}
    assert window.steps == 2 and window.tokens == 200


def test_the_total_loss_weighs_its_parts() -> None:
    window = RunningSums()
    for weight in (0.25, 0.75):
        parts = {"mlm": PartSum(20.0, 10, 1, 1 - weight), "causal": PartSum(6.0, 2, 1, weight)}
        window.add(StepReport(parts, 1.0, 100, True))
    found = window.means()
    assert (found["mlm_loss"], found["causal_loss"]) == (2.0, 3.0), "without the weight"
    assert found["loss"] == pytest.approx(0.5 * 2.0 + 0.5 * 3.0)


def test_a_window_of_a_checkpoint_before_weights_continues() -> None:
    saved = {"steps": 1, "tokens": 9, "grad_norm": 1.0, "parts": {"mlm": [30.0, 10, 4]}, "extra": {}}
    window = RunningSums(saved)
    window.add(report(10.0, 30, 2, 3.0))
    assert window.means() == {"mlm_loss": 1.0, "mlm_accuracy": 0.15, "loss": 1.0, "grad_norm": 2.0}


def test_extra_metrics_are_means_and_survive_json() -> None:
    def report(iterations: float, sequences: float) -> StepReport:
        parts = {"jacobian": PartSum(6.0, 3, 0)}
        seen = {"iterations": (iterations, sequences), "residual": (0.0, 0.0)}
        return StepReport(parts, 1.0, 100, True, seen)

    window = RunningSums()
    window.add(report(20.0, 2.0))
    window = RunningSums(json.loads(json.dumps(window.saved())))
    window.add(report(10.0, 4.0))
    # A penalty has no accuracy, and the residual has no count.
    assert window.means() == {"jacobian_loss": 2.0, "loss": 2.0, "grad_norm": 1.0, "iterations": 5.0}


def test_extra_metrics_are_summed_over_ranks() -> None:
    class Two(World):
        def add_numbers(self, numbers: Sequence[float]) -> list[float]:
            return [x + other for x, other in zip(numbers, (10.0, 2.0, 0.0, 0.0), strict=True)]

    sums = {"iterations": (20.0, 4.0), "jacobian": (0.0, 0.0)}
    assert means(sums, Two()) == {"iterations": 5.0}
    assert means({}, Two()) == {}


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.write({"step": 1, "loss": float("nan"), "evaluation": {"a": float("inf")}})
    file.write({"step": 2, "名": "甲"})
    file.sync()
    file.close()
    assert read_metrics(path) == [
        {"step": 1, "loss": None, "evaluation": {"a": None}},
        {"step": 2, "名": "甲"},
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_is_reported_also_when_the_file_is_closed(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    file = MetricsFile(tmp_path / "metrics.jsonl")
    for fails in (lambda: file.write({"step": 1}), file.close):
        with pytest.raises(RunError, match=r"metrics.jsonl: the disk is full"):
            fails()


def test_going_back_drops_later_and_torn_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        "".join(json.dumps({"step": s, "loss": s / 3}) + "\n" for s in (5, 10, 15)) + '{"step": 20, "lo'
    )
    assert [row["step"] for row in read_metrics(path)] == [5, 10, 15]
    cut_metrics(path, 2)
    assert path.read_text() == "".join(json.dumps({"step": s, "loss": s / 3}) + "\n" for s in (5, 10))
    cut_metrics(tmp_path / "absent.jsonl", 3)


def test_metrics_of_permutation_language_modelling_have_their_own_prefix(tmp_path: Path) -> None:
    row = {"step": 1, "mlm_loss": 2.5, "evaluation": {"mlm_accuracy": 0.5, "loss": 2.5}}
    written = {"step": 1, "plm_loss": 2.5, "evaluation": {"plm_accuracy": 0.5, "loss": 2.5}}
    assert as_written(row) == written
    (tmp_path / "metrics.jsonl").write_text(json.dumps(written) + "\n")
    assert read_metrics(tmp_path / "metrics.jsonl") == [row]


@pytest.mark.parametrize("wanted", [False, True])
def test_a_run_writes_for_tensorboard_if_its_settings_say_so(tmp_path: Path, wanted: bool) -> None:
    pytest.importorskip("tensorboard")
    job, _ = run_toy(tmp_path, steps=3, tensorboard=wanted)
    assert job.folder.tensorboard.exists() == wanted


def test_tensorboard_gets_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    writer = open_tensorboard(tmp_path, 0)
    assert writer is not None
    writer.write({"step": 4, "loss": 1.5, "evaluation": {"x": 1}, "bad": float("nan")})
    writer.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Tags()["scalars"] == ["train/loss"]
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(4, 1.5)]


@pytest.mark.parametrize("given", [None, "1"])
def test_tensorboard_changes_no_variable_of_the_program(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if given:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", given)
    writer = open_tensorboard(tmp_path, 0)
    assert writer is not None
    writer.close()
    assert os.environ.get("TF_CPP_MIN_LOG_LEVEL") == given


def test_synced_lines_are_there_after_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, tmp_path)
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.write({"step": 1})
    assert disk.lost(tmp_path / "metrics.jsonl")
    file.sync()
    assert disk.lost(tmp_path / "metrics.jsonl") == disk.missing(tmp_path / "metrics.jsonl") == []
    file.close()


def test_a_tensorboard_too_old_for_numpy_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def old(*_: object) -> None:
        raise AttributeError("`np.string_` was removed in the NumPy 2.0 release.")

    monkeypatch.setattr(metrics, "TensorBoard", old)
    assert metrics.open_tensorboard(tmp_path, 0) is None
