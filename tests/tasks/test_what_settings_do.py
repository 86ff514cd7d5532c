"""Settings of a tuning run affect training, and not its fingerprint alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from albertine.tasks import finetune as module
from albertine.tasks.encoded import TaskBatch
from albertine.tasks.finetune import finetune
from albertine.training.job import Job
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune


class Seen(Exception):
    """Raised as soon as the expected value is seen, before training."""


@pytest.mark.parametrize(
    ("clip", "kind", "late", "patience"), [(0.5, "constant", 1.0, 2), (None, "linear", 0.1, None)]
)
def test_how_a_run_is_optimised(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, clip: Any, kind: str, late: float, patience: Any
) -> None:
    settings = tune(
        seed=5,
        training={
            "weight_decay": 0.07,
            "embedding_rate": 3.0,
            "crf_rate": 7.0,
            "clip": clip,
            "schedule": kind,
            "warmup": 0.25,
        },
        watching={"early_stopping": patience},
    )

    def seen(job: Job, *_: Any) -> None:
        groups, loop = job.optimizer.param_groups, job.settings
        assert {group["weight_decay"] for group in groups} == {0.0, 0.07}
        assert {group["rate"] for group in groups} == {1.0, 3.0}
        assert module._rates(settings, job.model)("crf.start") == 7.0  # type: ignore[arg-type]
        assert (loop.clip, loop.seed, loop.early_stopping) == (clip, 5, patience)
        assert [loop.schedule(x) for x in (0.125, 0.9)] == pytest.approx([0.5, late], rel=0.5)
        raise Seen

    monkeypatch.setattr(module, "train", seen)
    with pytest.raises(Seen):
        finetune(settings, reporter=Reporter(quiet=True))


def test_weights_of_classes_reach_the_loss(
    tune: Tune, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tables["train"].read_text().splitlines()
    fine, rare = ([line for line in lines if word in line] for word in ("fine", "poor"))
    skewed = tmp_path / "skewed.csv"
    skewed.write_text("\n".join([lines[0], *fine[:90], *rare[:10]]))

    def seen(job: Job, *_: Any) -> None:
        packed: Any = None  # not looked at
        batch = TaskBatch(packed, torch.tensor([0, 0, 1]), (1, 1, 1), 3)
        part = job.loss_fn(lambda _: torch.zeros(3, 2), batch)["task"]
        assert float(part.loss_sum) == pytest.approx((2 * 100 / 180 + 100 / 20) * math.log(2), rel=1e-6)
        raise Seen

    monkeypatch.setattr(module, "train", seen)
    settings = tune(task={"train": skewed}, training={"class_weights": "balanced"})
    with pytest.raises(Seen):
        finetune(settings, reporter=Reporter(quiet=True))


def test_a_new_head_has_the_seed_and_the_dropout_of_its_run(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[tuple[float, Tensor]] = []

    def seen(job: Job, *_: Any) -> None:
        model: Any = job.model
        heads.append((model.dropout, model.head["classifier.weight"].clone()))
        raise Seen

    monkeypatch.setattr(module, "train", seen)
    for seed in (2, 3):
        settings = tune(name=f"seed {seed}", seed=seed, encoder={"classifier_dropout": 0.3})
        with pytest.raises(Seen):
            finetune(settings, reporter=Reporter(quiet=True))
    assert [dropout for dropout, _ in heads] == [0.3, 0.3]
    assert not torch.equal(heads[0][1], heads[1][1])


def test_an_encoder_computes_as_was_set(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(job: Job, *_: Any) -> None:
        model: Any = job.model
        assert (model.base.encoder.precision, model.base.encoder.recompute) == ("bfloat16", True)
        raise Seen

    monkeypatch.setattr(module, "train", seen)
    settings = tune(training={"precision": "bfloat16", "recompute": True})
    with pytest.raises(Seen):
        finetune(settings, reporter=Reporter(quiet=True))
