"""What a loss carries from step to step: settled with a step that was made, saved, restored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from albertine.errors import RunError
from albertine.training.checkpoints import read
from albertine.training.loop import train
from albertine.training.run_folder import RunFolder
from tests.training.toy import ToyBatch, toy_job, toy_loss


class Running:
    """A loss with the sum of all rows it was ever shown in steps that were made; the next step reads it."""

    nbytes = 8

    def __init__(self, broken: int | None = None) -> None:
        self.settled, self.pending, self.broken, self.calls = torch.zeros(1), torch.zeros(1), broken, 0

    def __call__(self, model: Any, batch: ToyBatch) -> Any:
        parts = toy_loss(model, batch)
        self.pending = self.pending + batch.ids.sum()
        if self.broken is not None and self.calls == self.broken:
            parts["mlm"] = parts["mlm"]._replace(loss_sum=parts["mlm"].loss_sum * float("inf"))
        scale = 1 + self.settled.tanh()[0] / 10 + 1e-4 * self.settled[0]
        return {name: part._replace(loss_sum=part.loss_sum * scale) for name, part in parts.items()}

    def settle(self) -> None:
        self.settled, self.pending, self.calls = self.settled + self.pending, torch.zeros(1), self.calls + 1

    def tensors(self) -> dict[str, Tensor]:
        return {"sum": self.settled}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.settled = tensors["sum"]


def run(path: Path, running: Running, **changes: Any) -> Any:
    with RunFolder(path) as folder:
        job = toy_job(folder, "adamw", **{"steps": 12, "checkpoint_every": 5, **changes})
        job.loss_fn = running
        train(job)
        return {name: tensor.clone() for name, tensor in job.model.state_dict().items()}


def test_a_run_resumes_with_its_carried_state(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", Running())
    run(tmp_path / "parts", Running())
    checkpoints = tmp_path / "parts" / "checkpoints"
    for later in ("step-10", "step-12"):
        (checkpoints / later / "manifest.json").unlink()
    again = Running()
    other = run(tmp_path / "parts", again)
    assert again.calls == 7 and all(torch.equal(value, other[name]) for name, value in whole.items())
    saved = read(tmp_path / "whole" / "checkpoints" / "step-12").optimizer
    assert torch.equal(saved["carried/sum"], again.settled) and float(again.settled) > 0


def test_a_step_that_was_not_made_carries_nothing(tmp_path: Path) -> None:
    straight = Running()
    run(tmp_path / "straight", straight, steps=7)
    broken = Running(broken=7)
    with pytest.raises(RunError, match="not finite at step 8"):
        run(tmp_path / "broken", broken)
    assert float(broken.pending) > 0, "it was under way"
    saved = read(tmp_path / "broken" / "checkpoints" / "step-7").optimizer
    assert torch.equal(saved["carried/sum"], straight.settled)


def test_a_checkpoint_of_a_run_that_carries_nothing_has_nothing(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        train(toy_job(folder, "adamw", steps=5))
    names = read(tmp_path / "checkpoints" / "step-5").optimizer
    assert names and not any("carried" in name for name in names)
