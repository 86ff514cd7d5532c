"""Where the first metric is an error, the least is the best."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from albertine.tasks import ensemble as ensembles
from albertine.tasks import finetune as module
from albertine.tasks.finetune import FinetuneResult
from albertine.tasks.seeds import over_seeds
from albertine.tasks.settings import FinetuneSettings
from albertine.training.job import Outcome
from tests.tasks.conftest import Tune

ERROR = "mean_squared_error"


def test_a_run_keeps_the_model_of_the_least_error(tune: Tune) -> None:
    for metric, way in ((ERROR, "min"), ("accuracy", "max")):
        assert module._loop(tune(), 10, metric, 32).best == (metric, way)


def test_the_best_seed_has_the_least_error(tune: Tune) -> None:
    settings = tune()
    settings.output.mkdir()

    def result_of(own: FinetuneSettings, **options: Any) -> FinetuneResult:
        scores = {"step": 3.0, ERROR: {1: 0.9, 2: 0.2, 3: 0.5}[own.seed]}
        return FinetuneResult(own.folder, Outcome(True, 0, 3, 9, 1.0, scores), scores, (), {})

    assert over_seeds(settings, 3, run=result_of).best.name == "toy-seed-2"


class Numbers:
    """A family whose answers are the outputs of its models."""

    metrics = (ERROR,)

    def merge(self, outputs: Any, data: Any) -> Any:
        return np.mean(outputs, axis=0)

    def answers(self, outputs: Any, data: Any) -> list[float]:
        return list(outputs.tolist())

    def gold(self, data: Any) -> list[float]:
        return [0.0, 0.0]


@pytest.mark.parametrize("rule", ["greedy", "best"])
def test_members_are_picked_by_the_least_error(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(run: Any, splits: Any, device: Any) -> ensembles.Member:
        return ensembles.Member(run, {"dev": run.outputs}, {"dev": {ERROR: float((run.outputs**2).mean())}})

    monkeypatch.setattr(ensembles, "check", lambda *arguments: None)
    monkeypatch.setattr(ensembles, "_member", alone)
    family, data = Numbers(), SimpleNamespace(targets=[0])
    runs: Any = [
        SimpleNamespace(family=family, splits={"dev": data}, outputs=np.full(2, x)) for x in (3.0, 1.0, -2.0)
    ]
    found = ensembles.ensemble(runs, pick=2, rule=rule, splits=["dev"])
    assert found.members == (1, 2)


class Settles(Numbers):
    """A family that settles something on the dev set."""

    settled: Any = None

    def tune_on_dev(self, outputs: Any, data: Any) -> None:
        self.settled = outputs.tolist()

    def load_state(self, flags: Any) -> None: ...


def test_what_is_settled_is_of_the_members_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(run: Any, splits: Any, device: Any) -> ensembles.Member:
        return ensembles.Member(run, {"dev": run.outputs}, {"dev": {ERROR: float((run.outputs**2).mean())}})

    monkeypatch.setattr(ensembles, "check", lambda *arguments: None)
    monkeypatch.setattr(ensembles, "_member", alone)
    family, data = Settles(), SimpleNamespace(targets=[0])
    runs: Any = [
        SimpleNamespace(family=family, splits={"dev": data}, outputs=np.full(2, x)) for x in (3.0, 1.0)
    ]
    ensembles.ensemble(runs, splits=["dev"])
    assert family.settled == [2.0, 2.0]
