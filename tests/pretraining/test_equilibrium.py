"""Pretraining to a fixed point: its metrics, stages, penalty, going on, and using the model."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine import Predictor
from albertine.errors import SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.model.fixed_point import FixedPoint
from albertine.objectives.equilibrium import EquilibriumLosses
from albertine.pretraining.data import held_out_batches
from albertine.pretraining.initial_model import initial_model
from albertine.pretraining.run import pretrain
from albertine.pretraining.settings import PretrainingSettings
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from tests.pretraining.conftest import Build
from tests.toy import MODEL

CHANGE = {**MODEL, "num_hidden_layers": 20, "solver": "anderson", "input_injection": True}
NAMES = {"iterations", "residual", "converged"}


def settings_of(build: Build, name: str = "toy", **changes: Any) -> PretrainingSettings:
    model = {"preset": "albert-tiny-zh", "change": {**CHANGE, "hidden_dropout_prob": 0.1}}
    objective = {"jacobian": 2.0, "jacobian_frequency": 0.5}
    stages = [{"begin": 0, "depth": 2}, {"begin": 0.25}]
    return build(name=name, **{"model": model, "objective": objective, "stages": stages, **changes})


def run(settings: PretrainingSettings) -> Path:
    result = pretrain(settings, reporter=Reporter(quiet=True))
    assert result.outcome.done
    return result.folder


def test_a_run_records_its_residual(build: Build) -> None:
    folder = run(settings_of(build))
    rows = read_metrics(folder / "metrics.jsonl")
    unrolled, *solved = [row for row in rows if "evaluation" not in row]
    assert not NAMES & unrolled.keys() and "jacobian_loss" not in unrolled and unrolled["stage"] == 0
    for row in solved:
        assert {*NAMES, *(f"gradient_{name}" for name in NAMES), "jacobian_loss", "mlm_loss"} <= row.keys()
        assert 2 <= row["iterations"] <= 20 and 0 <= row["converged"] <= 1 and row["residual"] > 0
        assert "jacobian_accuracy" not in row
    # Half of the passes computed the penalty: the metric is its norm, the loss has its weight and share.
    penalised = [row for row in solved if "jacobian" in row]
    assert penalised and all(0 < row["jacobian"] < 10 for row in penalised)
    paid = sum(row["jacobian_loss"] for row in solved) / sum(row["jacobian"] for row in penalised)
    assert 0.2 < paid < 2.0
    for row in (row["evaluation"] for row in rows if "evaluation" in row):
        assert row.keys() >= NAMES and "gradient_residual" not in row and row["iterations"] <= 20


def test_the_model_is_saved_and_fills_masks(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    folder = run(settings_of(build))
    model = load_model(folder / "final")
    assert model.config.solver == "anderson" and isinstance(model.encoder.loop, FixedPoint)
    caplog.clear()
    few = Predictor(folder / "final", precision="float32")
    assert few.fill_mask("It was a [MASK] night.")[0]
    assert not caplog.records
    model.encoder.loop.tolerance = 1e-9
    with torch.no_grad():
        model(torch.tensor([[5, 6, 7]]))
    (warning,) = caplog.records
    assert "1 of 1 sequences did not converge to their fixed point in 20 iterations" in warning.message


def test_a_signal_saves_and_the_resumed_run_is_the_same_run(build: Build) -> None:
    straight = run(settings_of(build, "straight"))
    settings, seen = settings_of(build, "stopped"), threading.Event()

    class Stopper(Reporter):
        def step(self, step: int, progress: float, left: float | None) -> None:
            if step == 5 and not seen.is_set():
                seen.set()
                os.kill(os.getpid(), signal.SIGTERM)

    stopped = pretrain(settings, reporter=Stopper(quiet=True))
    assert not stopped.outcome.done
    run(settings)
    states = [load_model(f / "final").state_dict() for f in (straight, stopped.folder)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    lines = [
        [
            {k: v for k, v in row.items() if k not in ("elapsed", "tokens_per_second")}
            for row in read_metrics(f / "metrics.jsonl")
        ]
        for f in (straight, stopped.folder)
    ]
    assert lines[0] == lines[1]


def test_a_stage_with_a_depth_is_unrolled(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, int]] = []
    inner = FixedPoint.run

    def watched(self: FixedPoint, step: Any, x: Any, rows: Any, depth: int, *rest: Any) -> Any:
        if torch.is_grad_enabled():
            seen.append((self.unrolled, depth))
        return inner(self, step, x, rows, depth, *rest)

    monkeypatch.setattr(FixedPoint, "run", watched)
    run(settings_of(build))
    assert set(seen) == {(True, 2), (False, 20)}


def test_a_penalty_without_a_solver_is_refused(build: Build) -> None:
    settings = build(objective={"jacobian": 1.0})
    with pytest.raises(SettingsError, match=r"objective\.jacobian.*solver=anderson"):
        pretrain(settings, reporter=Reporter(quiet=True))
    assert not (settings.folder / "metrics.jsonl").exists()


def test_a_plan_that_has_no_fixed_point_is_refused(build: Build) -> None:
    unshared = {"preset": "albert-tiny-zh", "sharing": "none", "change": CHANGE}
    with pytest.raises(SettingsError, match=r"depths of this plan differ.*sharing=all"):
        pretrain(build(model=unshared), reporter=Reporter(quiet=True))


def test_the_penalty_is_its_weight_times_the_size_of_every_token(build: Build, corpus: Path) -> None:
    settings = settings_of(build)
    model = initial_model(settings, np.ones(500, dtype=np.int64)).train()
    batch = replace(held_out_batches(corpus, settings.objective, sequences=8)[0], penalised=True)
    losses = EquilibriumLosses(model, weight=0.25, frequency=1.0)
    part = losses(model, batch)["jacobian"]
    size, tokens = losses.metrics()["jacobian"]
    assert part.count == tokens == batch.num_tokens and size > 0
    assert part.loss_sum.item() == pytest.approx(0.25 * size, rel=1e-5)
