"""A run that begins at a checkpoint of another: what it takes over, what it records, what it refuses."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from albertine.errors import AlbertineError, CheckpointError, RunError, SettingsError
from albertine.training.alarms import TrainingAlarms
from albertine.training.checkpoints import MANIFEST, model_tensors, optimizer_tensors, read
from albertine.training.job import Branching, Job, Outcome
from albertine.training.loop import train
from albertine.training.metrics import TIMINGS, read_metrics
from albertine.training.resuming import FILE
from albertine.training.run_folder import RunFolder
from albertine.training.schedules import Schedule, constant, linear, wsd
from tests.training.toy import toy_batches, toy_job

FLAT, RULES = constant(0.0), Branching(("optimizer", "data"))


class Killed(Exception):
    """Ends a run without any clean-up of ours."""


def run(
    path: Path,
    schedule: Schedule = FLAT,
    origin: Path | None = None,
    *,
    resume: str | Path = "auto",
    until: int | None = None,
    branching: Branching | None = RULES,
    data: int = 3,
    **changes: Any,
) -> tuple[Job, Outcome | None]:
    """The toy run with its settings in the fingerprint; `until` kills it at that step."""

    def batches(cursor: Mapping[str, Any] | None) -> Iterator[Any]:
        for drawn in toy_batches(cursor):
            if until is not None and drawn[0]["row"] == 12 * until:
                raise Killed
            yield drawn

    with RunFolder(path) as folder:
        job = toy_job(folder, schedule=schedule, **{"log_every": 1, **changes})
        job.batches, job.branching = batches, branching
        training = {"steps": job.settings.steps, "rate": job.settings.learning_rate}
        job.fingerprint = {"optimizer": "lamb", "data": {"seed": data}, "training": training}
        job.on_start = lambda: folder.describe("name: x\n", {})
        try:
            return job, train(job, resume, branch_from=origin)
        except Killed:
            return job, None


def rows(path: Path) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(path / "metrics.jsonl")
    ]


def same(a: Job, b: Job) -> bool:
    def tensors(job: Job) -> dict[str, torch.Tensor]:
        return model_tensors(job.model) | optimizer_tensors(job.model, job.optimizer)

    before, now = tensors(a), tensors(b)
    return before.keys() == now.keys() and all(torch.equal(before[name], now[name]) for name in before)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A run of 20 steps at a constant rate."""
    run(tmp_path / "parent", steps=20)
    return tmp_path / "parent"


def test_a_longer_run_is_the_run_that_was_as_long_from_the_start(parent: Path, tmp_path: Path) -> None:
    before = content(parent)
    straight, _ = run(tmp_path / "straight")
    origin = parent / "checkpoints" / "step-20"
    job, outcome = run(tmp_path / "branch", origin=origin)
    assert outcome is not None and (outcome.done, outcome.step, outcome.tokens) == (True, 40, 480)
    assert same(straight, job)
    assert rows(tmp_path / "branch") == [row for row in rows(tmp_path / "straight") if row["step"] > 20]
    assert content(parent) == before, "the run that it comes from is as it was"
    assert (
        read(tmp_path / "branch" / "checkpoints" / "step-30").state["fingerprint"]["training"]["steps"] == 40
    )


def test_the_record_states_where_it_begins_and_what_differs(
    parent: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    origin = parent / "checkpoints" / "step-15"
    with caplog.at_level(logging.INFO, logger="albertine.training"):
        run(tmp_path / "branch", origin=origin, learning_rate=0.002)
    import hashlib

    assert json.loads((tmp_path / "branch" / FILE).read_text()) == {
        "checkpoint": str(origin.resolve()),
        "manifest_sha256": hashlib.sha256((origin / MANIFEST).read_bytes()).hexdigest(),
        "step": 15,
        "differences": {
            "training.rate": {"before": 0.02, "now": 0.002},
            "training.steps": {"before": 20, "now": 40},
        },
    }
    assert f"begins at step 15 of {origin.resolve()}" in caplog.text
    assert "training.rate: checkpoint 0.02, now 0.002" in caplog.text
    assert "training.steps: checkpoint 20, now 40" in (tmp_path / "branch" / "log.txt").read_text()


def test_the_rate_is_lowered_and_all_else_continues(parent: Path, tmp_path: Path) -> None:
    origin = parent / "checkpoints" / "step-15"
    run(tmp_path / "branch", origin=origin, learning_rate=0.002, steps=20)
    after = [row for row in rows(tmp_path / "branch") if "lr" in row]
    assert [(row["step"], row["lr"], row["tokens"]) for row in after] == [
        (step, 0.002, 12 * step) for step in range(16, 21)
    ]
    # The first batch and the weights are those that the other run had there.
    there = {row["step"]: row["mlm_loss"] for row in rows(parent) if "lr" in row}
    assert after[0]["mlm_loss"] == there[16] and after[1]["mlm_loss"] != there[17]


def test_a_stable_phase_is_cooled_down(tmp_path: Path) -> None:
    run(tmp_path / "stable", wsd(0.1, 0.25), steps=40, until=26)
    assert {row["lr"] for row in rows(tmp_path / "stable") if row["step"] > 4 and "lr" in row} == {0.02}
    origin = tmp_path / "stable" / "checkpoints" / "step-20"
    run(tmp_path / "cool", wsd(0.16, 0.2), origin, steps=25)
    rates = [row["lr"] for row in rows(tmp_path / "cool") if "lr" in row]
    assert rates == pytest.approx([0.02, 0.016, 0.012, 0.008, 0.004])


def test_the_second_command_resumes_the_branch(parent: Path, tmp_path: Path) -> None:
    straight, _ = run(tmp_path / "straight")
    origin = parent / "checkpoints" / "step-20"
    branch = tmp_path / "branch"
    run(branch, origin=origin, until=28)
    record = (branch / FILE).read_bytes()
    run(branch, origin=origin, until=33)
    shutil.rmtree(parent)  # from its first checkpoint on it needs no other run
    job, _ = run(branch, origin=origin, until=37)
    job, outcome = run(branch)
    assert outcome is not None and outcome.step == 40 and same(straight, job)
    assert rows(branch) == [row for row in rows(tmp_path / "straight") if row["step"] > 20]
    assert (branch / FILE).read_bytes() == record


def test_the_alarms_of_a_branch_begin_where_it_does(parent: Path, tmp_path: Path) -> None:
    """Also when it is resumed."""

    def begun(origin: Path | None, until: int) -> list[int]:
        seen: list[int] = []
        with RunFolder(tmp_path / "branch") as folder:
            job = toy_job(folder, schedule=FLAT, steps=until)
            job.alarms = TrainingAlarms(unigram_entropy=1.0, learning_rate=0.1, batch_size=4)
            job.alarms.begin = seen.append  # type: ignore[method-assign]
            job.branching = Branching(())
            train(job, branch_from=origin)
        return seen

    origin = parent / "checkpoints" / "step-20"
    assert begun(origin, 30) == [20] and begun(None, 40) == [20]


def test_a_branch_killed_in_its_first_step_needs_the_other_run_no_more(parent: Path, tmp_path: Path) -> None:
    branch = tmp_path / "branch"
    run(branch, origin=parent / "checkpoints" / "step-20", until=21)
    assert read(branch / "checkpoints" / "step-20").step == 20
    shutil.rmtree(parent)
    assert run(branch)[0].folder.path == branch and rows(branch)[-1]["step"] == 40


def test_the_first_line_of_a_branch_is_of_its_own_steps(tmp_path: Path) -> None:
    """From the middle of a line of the other run."""
    often = {"log_every": 5, "checkpoint_every": 3}
    run(tmp_path / "parent", steps=6, keep=3, **often)
    run(tmp_path / "branch", origin=tmp_path / "parent" / "checkpoints" / "step-3", steps=10, **often)
    run(tmp_path / "straight", steps=10)
    losses = {row["step"]: row["mlm_loss"] for row in rows(tmp_path / "straight") if "lr" in row}
    first, second = (row for row in rows(tmp_path / "branch") if "lr" in row)
    assert (first["step"], second["step"]) == (5, 10)
    assert first["mlm_loss"] == pytest.approx((losses[4] + losses[5]) / 2)
    assert second["mlm_loss"] == pytest.approx(sum(losses[step] for step in range(6, 11)) / 5)


def test_a_branch_has_a_best_of_its_own(parent: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    with RunFolder(tmp_path / "branch") as folder:
        job = toy_job(folder, schedule=constant(0.0), learning_rate=1e-9)  # so it never beats the other's
        job.branching = Branching(())
        job.on_best = lambda step, scores: seen.append(step)
        train(job, branch_from=parent / "checkpoints" / "step-20")
    assert seen[0] == 24


def test_a_branch_that_is_worse_has_a_best_too_and_its_own_patience(tmp_path: Path) -> None:
    def scored(path: Path, loss: float, origin: Path | None, **changes: Any) -> tuple[list[int], int]:
        seen: list[int] = []
        with RunFolder(path) as folder:
            job = toy_job(folder, schedule=FLAT, **changes)
            job.branching, job.evaluate = Branching(()), lambda poll: {"mlm_loss": loss}
            job.on_best = lambda step, scores: seen.append(step)
            return seen, train(job, branch_from=origin).step

    assert scored(tmp_path / "parent", 1.0, None, steps=20) == ([8], 20)  # and no better at 16 and 20
    origin = tmp_path / "parent" / "checkpoints" / "step-20"
    assert scored(tmp_path / "branch", 9.0, origin, early_stopping=2) == ([24], 40)


def test_a_branch_scores_what_it_begins_with(tmp_path: Path) -> None:
    """Where its own settings require a score: that of the other run stands in the other run's folder."""
    run(tmp_path / "parent")
    origin = tmp_path / "parent" / "checkpoints" / "step-40"
    run(tmp_path / "branch", origin=origin, steps=42, evaluate_every=20)
    run(tmp_path / "later", origin=origin, steps=42, evaluate_every=9)
    scored, unscored = rows(tmp_path / "branch"), rows(tmp_path / "later")
    there = [row for row in rows(tmp_path / "parent") if "evaluation" in row][-1]
    assert scored[0] == there and there["step"] == 40
    assert [row["step"] for row in unscored if "evaluation" in row] == [42]


def refused(kind: type[AlbertineError], match: str, path: Path, *given: Any, **more: Any) -> None:
    """The command is refused, and nothing of the run's folder has changed but its log."""
    before = content(path)
    with pytest.raises(kind, match=match):
        run(path, *given, **more)
    now = content(path)
    assert {k: v for k, v in now.items() if k not in ("log.txt", "lock")} == {
        k: v for k, v in before.items() if k not in ("log.txt", "lock")
    }


def test_what_cannot_be_branched(parent: Path, tmp_path: Path) -> None:
    origin, branch = parent / "checkpoints" / "step-20", tmp_path / "branch"
    refused(
        CheckpointError, r"cannot be branched.*data\.seed: checkpoint 3, now 4", branch, origin=origin, data=4
    )
    refused(SettingsError, "would end where it begins, at step 20", branch, origin=origin, steps=20)
    refused(SettingsError, "of this kind cannot be branched", branch, origin=origin, branching=None)
    refused(CheckpointError, "no such checkpoint", branch, origin=parent / "checkpoints" / "step-99")
    (parent / "final").mkdir()
    for other in (parent, parent / "final", parent / "checkpoints"):
        for named in ({"origin": other}, {"resume": other}):
            refused(CheckpointError, r"is no checkpoint.*checkpoints/step-20.*start_from", branch, **named)
    refused(SettingsError, "exclude each other", branch, origin=origin, resume=origin)
    assert not (branch / "settings.yaml").exists() and not (branch / FILE).exists()


def test_a_folder_of_another_run_is_refused(parent: Path, tmp_path: Path) -> None:
    origin, other = parent / "checkpoints" / "step-20", tmp_path / "other"
    refused(
        RunError, "of another run, which began at step 0", parent, origin=parent / "checkpoints" / "step-15"
    )
    run(other, steps=30)
    refused(RunError, "of another run, which began at step 0", other, origin=origin)
    branch = tmp_path / "branch"
    run(branch, origin=origin, steps=24)
    refused(
        RunError,
        r"of another run, which began at .*step-20",
        branch,
        origin=parent / "checkpoints" / "step-15",
    )
    refused(CheckpointError, "other settings", branch, origin=origin, steps=26)
    refused(RunError, "earlier run", branch, origin=origin, steps=24, resume="never")


def test_a_branch_without_a_checkpoint_is_not_begun_at_step_0(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from albertine.training.checkpoints import CheckpointStore

    def dying(*_: Any) -> None:
        raise Killed

    origin, branch = parent / "checkpoints" / "step-20", tmp_path / "branch"
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "save", dying)
        run(branch, origin=origin)
    assert (branch / FILE).exists() and not (branch / "checkpoints").exists()
    refused(RunError, "has no checkpoint yet", branch)
    refused(RunError, "has no checkpoint yet", branch, resume="never")
    _, outcome = run(branch, origin=origin)
    assert outcome is not None and outcome.step == 40


def test_data_that_changed_continue_where_the_job_allows_it(parent: Path, tmp_path: Path) -> None:
    rules = Branching((), lambda cursor, *_: {"row": cursor["row"] + 120} if cursor else None)
    run(tmp_path / "branch", linear(0.0), parent / "checkpoints" / "step-20", branching=rules, steps=21)
    state = read(tmp_path / "branch" / "checkpoints" / "step-21").state
    assert state["cursor"]["row"] == 12 * 21 + 120


def test_the_stream_of_a_branch_opens_at_the_time_of_its_checkpoint(tmp_path: Path) -> None:
    """And not at each rank's own, by which two of them could be in two stages."""
    run(tmp_path / "a", until=7)
    origin, progress = tmp_path / "a" / "checkpoints" / "step-5", []
    with RunFolder(tmp_path / "b") as folder:
        job = toy_job(folder, steps=None, minutes=60)
        job.branching, job.fingerprint = RULES, {"optimizer": "lamb", "data": {"seed": 3}}

        def batches(cursor: Mapping[str, Any] | None) -> Iterator[Any]:
            progress.append(job.clock.progress)
            yield next(iter(toy_batches(cursor)))

        job.batches = batches
        train(job, branch_from=origin)
    assert progress == [read(origin).state["elapsed"] / 3600]
