"""Stages of a run: which batch is of which, that nothing but the settings decides it, and what is refused."""

from __future__ import annotations

import os
import signal
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from albertine.corpus.reader import Corpus
from albertine.pretraining.data import Batches
from albertine.pretraining.run import pretrain
from albertine.pretraining.settings import PretrainingSettings
from albertine.pretraining.stages import resolved
from albertine.training.checkpoints import read
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from tests.pretraining.conftest import Build
from tests.pretraining.test_run import run, weights

RAMP: list[dict[str, Any]] = [
    {"begin": 0, "max_length": 8},
    {"begin": 0.35, "max_length": 16},
    {"begin": 0.6},
]
"""Of 8 steps: three batches of 32 x 8, two of 16 x 16, three of 8 x 32."""


class Stopper(Reporter):
    """Sends SIGTERM after a step, which is then the last that is saved."""

    def __init__(self, stop: int) -> None:
        super().__init__(quiet=True)
        self.stop = stop

    def step(self, step: int, progress: float, left: float | None) -> None:
        if step == self.stop:
            os.kill(os.getpid(), signal.SIGTERM)


def newest(settings: PretrainingSettings) -> Path:
    return max(
        (settings.folder / "checkpoints").glob("step-*"), key=lambda p: int(p.name.removeprefix("step-"))
    )


def batches(settings: PretrainingSettings, count: int, place: Any = None, **options: Any) -> list[Any]:
    torch.set_num_threads(1)
    return list(islice(iter(Batches(Corpus(settings.corpus), settings, place, **options)), count))


def test_a_ramp_of_lengths_has_as_many_tokens_a_step(build: Build) -> None:
    stages = resolved(build(stages=RAMP))
    assert [(s.objective.max_length, s.batch_size) for s in stages] == [(8, 32), (16, 16), (32, 8)]
    assert [s.objective.pairs for s in stages] == ["none", "none", "sop"]
    own = resolved(build(stages=[{"begin": 0, "max_length": 12, "batch_size": 5, "pairs": "sop"}]))[0]
    assert (own.batch_size, own.objective.pairs) == (5, "sop")
    short = build(objective={"max_length": 16}, stages=[{"begin": 0}])
    assert resolved(short)[0].objective == short.objective, "a stage that changes nothing is the run"


def test_the_stage_of_a_batch_is_a_function_of_its_step(build: Build) -> None:
    drawn = batches(build(stages=RAMP), 9)
    assert [place["stage"] for place, _ in drawn] == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert [place["epoch"] for place, _ in drawn[:6]] == [0, 0, 0, 1, 1, 2]
    assert [place["offset"] for place, _ in drawn[:6]] == [32, 64, 96, 16, 32, 8]
    for place, parts in drawn:
        length, size = {0: (8, 32), 1: (16, 16), 2: (32, 8)}[place["stage"]]
        assert sum(b.packed.num_sequences for b in parts) == size
        assert max(b.packed.max_length for b in parts) == length
        assert all((b.sentence_labels is None) == (length < 32) for b in parts)
    keys = [tuple(key) for _, parts in drawn for b in parts for key in b.samples.tolist()]
    assert len(set(keys)) == len(keys), "no draw is made twice"


def test_a_run_through_a_ramp_and_its_interruptions(build: Build) -> None:
    """Stopped in the middle of a stage, at a border, and one step after it."""
    straight = run(build(name="straight", stages=RAMP))
    rows = [row for row in read_metrics(straight / "metrics.jsonl") if "mlm_loss" in row]
    assert [row["stage"] for row in rows] == [0, 1, 2, 2]
    assert ["sentence_loss" in row for row in rows] == [False, False, True, True]
    for stop, stage in ((2, 0), (3, 0), (4, 1), (5, 1)):
        settings = build(name=f"stopped-{stop}", stages=RAMP)
        result = pretrain(settings, reporter=Stopper(stop))
        assert not result.outcome.done
        assert read(newest(settings)).state["cursor"]["stage"] == stage
        assert weights(run(settings)) == weights(straight)
