"""The moving average of the weights: its formula, what is judged, and that a killed run has the same one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from albertine.errors import CheckpointError
from albertine.training.average import Average
from albertine.training.checkpoints import read
from albertine.training.job import Branching, Job, Outcome
from albertine.training.loop import train
from albertine.training.run_folder import RunFolder
from tests.training.toy import run_toy, toy_batches, toy_evaluate, toy_job

DECAY = 0.9


@pytest.mark.parametrize("decay", [0.5, 0.999])
def test_the_average_is_the_weighted_mean_of_all_steps(decay: float) -> None:
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    average = Average(model, decay)
    seen = []
    for step in range(1, 8):
        with torch.no_grad():
            model.weight.add_(torch.randn(2, 3))
        seen.append(model.weight.detach().double().clone())
        average.take(step)
        weights = [decay ** (step - s) for s in range(1, step + 1)]
        wanted = sum(w * x for w, x in zip(weights, seen, strict=True)) / sum(weights)
        torch.testing.assert_close(average.tensors["weight"].double(), wanted, atol=1e-6, rtol=1e-5)
    assert set(average.tensors) == {"weight"}


def test_the_weights_come_back_to_the_bit_also_after_an_error() -> None:
    model = nn.Linear(3, 2)
    average = Average(model, DECAY)
    with torch.no_grad():
        model.weight.mul_(3.0)
    average.take(1)
    with torch.no_grad():
        model.weight.add_(1.0)
    own = model.weight.detach().clone()
    with pytest.raises(KeyError), average.in_place():
        assert torch.equal(model.weight, average.tensors["weight"])
        raise KeyError
    assert torch.equal(model.weight, own) and not torch.equal(own, average.tensors["weight"])


class Stopped(Exception):
    """Ends a run without any clean-up of ours."""


def averaged(
    path: Path,
    stop: int | None = None,
    origin: Path | None = None,
    decay: float = DECAY,
    fingerprint: dict[str, Any] | None = None,
    **changes: Any,
) -> tuple[Job, Outcome | None]:
    """A run with an average, where `decay` is not 0, that dies while it makes step number `stop`."""

    def batches(cursor: Mapping[str, Any] | None) -> Iterator[Any]:
        for count, drawn in enumerate(toy_batches(cursor), start=int(cursor["row"]) // 12 if cursor else 0):
            if count + 1 == stop:
                raise Stopped
            yield drawn

    with RunFolder(path) as folder:
        job = toy_job(folder, "adamw", **changes)
        job.fingerprint = fingerprint or job.fingerprint
        job.batches, job.average = batches, Average(job.model, decay) if decay else None
        job.branching = Branching(())
        try:
            return job, train(job, branch_from=origin)
        except Stopped:
            return job, None


def test_a_killed_run_ends_with_the_same_average(tmp_path: Path) -> None:
    straight, outcome = averaged(tmp_path / "straight")
    for stop in (7, 18, 33):
        assert averaged(tmp_path / "killed", stop)[1] is None
    killed, again = averaged(tmp_path / "killed")
    assert outcome is not None and again is not None and again.scores == outcome.scores
    assert straight.average is not None and killed.average is not None
    for name, tensor in straight.average.tensors.items():
        assert torch.equal(tensor, killed.average.tensors[name]), name
        assert torch.equal(straight.model.get_parameter(name), killed.model.get_parameter(name)), name


def test_the_average_is_evaluated_and_training_continues_without_it(tmp_path: Path) -> None:
    plain, alone = run_toy(tmp_path / "plain", "adamw")
    job, outcome = averaged(tmp_path / "averaged")
    assert outcome is not None and job.average is not None
    for name, tensor in plain.model.named_parameters():
        assert torch.equal(tensor, job.model.get_parameter(name)), name
    with job.average.in_place():
        scores = toy_evaluate(job.model)(lambda: None)
    assert outcome.scores == scores and outcome.scores != alone.scores


def test_a_run_without_an_average_does_not_resume_with_one(tmp_path: Path) -> None:
    averaged(tmp_path, stop=18)
    with pytest.raises(CheckpointError, match="an average of the weights: in it, and none now"):
        run_toy(tmp_path, "adamw")
    run_toy(tmp_path / "other", "adamw")
    with pytest.raises(CheckpointError, match="an average of the weights: none in it"):
        averaged(tmp_path / "other")


def test_a_branch_begins_an_average_of_its_own_steps(tmp_path: Path) -> None:
    """Killed or not. Catches: weights from before the branch in it; a count of steps that is lost by a
    kill."""
    run_toy(tmp_path / "parent", "adamw")
    origin = tmp_path / "parent" / "checkpoints" / "step-30"
    every = {"checkpoint_every": 1, "keep": 50}
    straight, outcome = averaged(tmp_path / "straight", origin=origin, **every)
    weights = [read(tmp_path / f"straight/checkpoints/step-{step}").model for step in range(31, 41)]
    assert straight.average is not None and outcome is not None
    for name, tensor in straight.average.tensors.items():
        shares = [DECAY ** (10 - s) for s in range(1, 11)]
        wanted = sum(w * x[name].double() for w, x in zip(shares, weights, strict=True)) / sum(shares)
        torch.testing.assert_close(tensor.double(), wanted, atol=1e-6, rtol=1e-5)
    for stop in (31, 38):
        assert averaged(tmp_path / "killed", stop, origin)[1] is None
    killed, again = averaged(tmp_path / "killed", origin=origin)
    assert again is not None and again.scores == outcome.scores and killed.average is not None
    for name, tensor in straight.average.tensors.items():
        assert torch.equal(tensor, killed.average.tensors[name]), name


def test_a_branch_that_begins_an_average_is_judged_by_its_first_weights(tmp_path: Path) -> None:
    """Catches: what the model had before the checkpoint was read."""
    run_toy(tmp_path / "parent", "adamw")
    origin = tmp_path / "parent" / "checkpoints" / "step-30"
    averaged(tmp_path / "branch", 31, origin)
    saved = read(tmp_path / "branch" / "checkpoints" / "step-30")
    assert all(torch.equal(saved.optimizer[f"{name}/average"], x) for name, x in saved.model.items())


def test_a_branch_with_another_decay_begins_its_average_anew(tmp_path: Path) -> None:
    """As one does that begins to average; that of the previous run continues where the decay is equal."""
    fingerprints = {decay: {"training": {"average": decay}} for decay in (DECAY, 0.5)}
    averaged(tmp_path / "parent", fingerprint=fingerprints[DECAY])
    origin = tmp_path / "parent" / "checkpoints" / "step-30"
    averaged(tmp_path / "branch", 33, origin, decay=0.5, fingerprint=fingerprints[0.5], checkpoint_every=1)
    saved = [read(tmp_path / f"branch/checkpoints/step-{step}") for step in (31, 32)]
    for name, second in saved[1].model.items():
        wanted = (0.5 * saved[0].model[name] + second) / 1.5
        torch.testing.assert_close(saved[1].optimizer[f"{name}/average"], wanted, atol=1e-6, rtol=1e-5)
    same, _ = averaged(tmp_path / "same", origin=origin, fingerprint=fingerprints[DECAY])
    before = read(tmp_path / "parent" / "checkpoints" / "step-40").optimizer
    assert same.average is not None
    for name, tensor in same.average.tensors.items():
        assert torch.equal(before[f"{name}/average"], tensor), name


def test_a_branch_leaves_an_average_behind(tmp_path: Path) -> None:
    averaged(tmp_path / "parent")
    straight, _ = run_toy(tmp_path / "plain", "adamw")
    origin = tmp_path / "parent" / "checkpoints" / "step-30"
    branch, outcome = averaged(tmp_path / "branch", origin=origin, decay=0)
    assert outcome is not None and branch.average is None
    for name, tensor in straight.model.named_parameters():
        assert torch.equal(tensor, branch.model.get_parameter(name)), name
    last = read(tmp_path / "branch" / "checkpoints" / "step-40")
    assert last.optimizer and not any("average" in name for name in last.optimizer)
