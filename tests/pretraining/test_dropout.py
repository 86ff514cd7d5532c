"""The dropout of a run's settings is what its model trains with."""

from __future__ import annotations

from pathlib import Path

import pytest

from albertine.interop.huggingface.folders import load_model
from albertine.pretraining.run import pretrain
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from tests.pretraining.conftest import Build
from tests.toy import MODEL

KINDS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def losses(build: Build, name: str, precision: str, **dropout: float) -> tuple[list[float], Path]:
    """The training losses of two steps, and the folder. Weights reach far enough for attention to matter."""
    change = {**MODEL, **dict.fromkeys(KINDS, 0.0), **dropout, "initializer_range": 0.2}
    settings = build(
        name=name,
        model={"change": change},
        training={"steps": 2, "precision": precision},
        watching={"log_every": 1},
    )
    folder = pretrain(settings, reporter=Reporter(quiet=True)).folder
    return [row["mlm_loss"] for row in read_metrics(folder / "metrics.jsonl") if "mlm_loss" in row], folder


@pytest.mark.sample(1)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_settings_reach_the_model(build: Build, precision: str) -> None:
    without, _ = losses(build, "without", precision)
    again, _ = losses(build, "again", precision)
    assert len(without) == 2 and without == again
    for kind in KINDS:
        found, folder = losses(build, kind, precision, **{kind: 0.5})
        assert abs(found[0] - without[0]) > 1e-3, kind
        config = load_model(folder / "final").config
        assert getattr(config, kind) == 0.5
        other = next(k for k in KINDS if k != kind)
        assert getattr(config, other) == 0.0
