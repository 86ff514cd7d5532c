"""Pretraining an encoder that halts: ponder cost, metrics, and errors."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from albertine.errors import SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.objectives.losses import pondering_losses, pretraining_losses
from albertine.pretraining.data import held_out_batches
from albertine.pretraining.held_out import score_batches
from albertine.pretraining.initial_model import initial_model
from albertine.pretraining.run import pretrain
from albertine.pretraining.settings import PretrainingSettings
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from tests.pretraining.conftest import Build
from tests.toy import MODEL

LOOP = {
    **MODEL,
    "num_hidden_layers": 4,
    "positions": "none",
    "position_signal": "sinusoid",
    "step_signal": "learned",
    "halting": "accumulated",
}


def looped(build: Build, change: dict[str, Any] | None = None, **more: Any) -> PretrainingSettings:
    return build(model={"change": {**LOOP, **(change or {})}}, **more)


def run(settings: PretrainingSettings) -> Path:
    result = pretrain(settings, reporter=Reporter(quiet=True))
    assert result.outcome.done
    return result.folder


def test_what_is_paid_is_the_weight_times_steps_and_remainder(build: Build, corpus: Path) -> None:
    model = initial_model(looped(build), torch.ones(500, dtype=torch.int64).numpy())
    batch = held_out_batches(corpus, build().objective, sequences=40)[0]
    parts = pondering_losses(model, replace(batch, ponders=True), 0.25)
    plain = pretraining_losses(model, batch)
    ponder = model.encoder(batch.packed).ponder
    assert ponder is not None
    assert parts["ponder"].loss_sum.item() == pytest.approx(0.25 * float(ponder.cost.detach().sum()))
    assert parts["ponder"].count == batch.num_tokens == replace(batch, ponders=True).counts["ponder"]
    assert int(parts["ponder"].correct) == int(ponder.steps.sum())
    assert {n: p.loss_sum.item() for n, p in plain.items()} == {
        n: p.loss_sum.item() for n, p in parts.items() if n != "ponder"
    }
    parts["ponder"].loss_sum.backward()  # type: ignore[no-untyped-call]
    unit = model.encoder.halting
    assert unit is not None and unit.bias.grad is not None and float(unit.bias.grad) < 0


def test_a_run_records_its_ponder_steps_and_its_model_takes_as_many(build: Build, corpus: Path) -> None:
    settings = looped(build)
    folder = run(settings)
    rows = read_metrics(folder / "metrics.jsonl")
    training = [row for row in rows if "evaluation" not in row]
    judged = [row["evaluation"] for row in rows if "evaluation" in row]
    for row in training:
        assert 1 < row["mean_steps"] <= 4 and "ponder_accuracy" not in row
        assert 0.01 * row["mean_steps"] < row["ponder_loss"] < 0.01 * (row["mean_steps"] + 1)
        parts = ("mlm_loss", "sentence_loss", "ponder_loss")
        assert row["loss"] == pytest.approx(sum(row[name] for name in parts))
    model, batches = load_model(folder / "final"), held_out_batches(corpus, settings.objective, sequences=8)
    assert score_batches(model, batches) == pytest.approx(judged[-1], abs=1e-6)
    with torch.no_grad():
        steps = [n for b in batches for n in model.encoder(b.packed).ponder.steps.tolist()]  # type: ignore[union-attr]
    assert judged[-1]["mean_steps"] == pytest.approx(sum(steps) / len(steps))


def test_a_higher_ponder_cost_means_fewer_steps(build: Build) -> None:
    """Compared by the halting unit alone: everything else has equal initial weights."""
    found = []
    for weight in (0.0, 1.0):
        settings = looped(build, name=f"paid-{weight:g}", objective={"ponder": weight})
        folder = run(settings)
        unit = load_model(folder / "final").encoder.halting
        assert unit is not None
        found.append(float(unit.bias.detach()))
    assert found[1] > found[0] + 0.01


def test_a_run_that_was_interrupted_ends_the_same(build: Build) -> None:
    folder = run(looped(build))
    final = folder / "final" / "model.safetensors"
    whole = final.read_bytes()
    shutil.rmtree(folder / "final")
    for step in ("step-6", "step-8"):
        shutil.rmtree(folder / "checkpoints" / step)
    result = pretrain(looped(build), reporter=Reporter(quiet=True))
    assert result.outcome.updates == 5  # after step 3
    assert final.read_bytes() == whole


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"change": {**LOOP, "halting": "none"}}, "objective": {"ponder": 0.1}}, "does not halt"),
        ({"model": {"change": LOOP, "sharing": "none"}}, "halting repeats one block"),
        (
            {
                "model": {"change": {**LOOP, "positions": "relative"}},
                "objective": {"memory": 8, "pairs": "none"},
            },
            "keeps neither the number of steps",
        ),
    ],
)
def test_what_cannot_be_paid_or_looped_is_refused(
    build: Build, changes: dict[str, Any], message: str
) -> None:
    settings = build(**changes)
    with pytest.raises(SettingsError, match=message) as error:
        pretrain(settings, reporter=Reporter(quiet=True))
    assert error.value.remedy
    assert not (settings.folder / "metrics.jsonl").exists()
