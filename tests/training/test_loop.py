"""A run that is interrupted, however and wherever, ends with the bits of one that was not."""

from __future__ import annotations

import gc
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from albertine.errors import CheckpointError, RunError, SettingsError
from albertine.training import loop
from albertine.training.alarms import TrainingAlarms
from albertine.training.checkpoints import (
    CheckpointStore,
    checkpoint_bytes,
    model_tensors,
    optimizer_tensors,
    read,
)
from albertine.training.distributed import World
from albertine.training.job import Branching, Job, Outcome, State
from albertine.training.loop import DISK_MARGIN, train
from albertine.training.metrics import TIMINGS, read_metrics
from albertine.training.optimizers import OptimizerKind, build_optimizer
from albertine.training.progress import Reporter
from albertine.training.recorder import Recorder
from albertine.training.run_folder import RunFolder
from tests.crashes import Disk
from tests.training.toy import Toy, run_toy, toy_batches, toy_evaluate, toy_job, toy_loss, toy_settings


class Killed(Exception):
    """Ends a run without any clean-up of ours."""


def same(a: Job, b: Job) -> bool:
    for before, after in (
        (model_tensors(a.model), model_tensors(b.model)),
        (optimizer_tensors(a.model, a.optimizer), optimizer_tensors(b.model, b.optimizer)),
    ):
        if before.keys() != after.keys() or not all(
            torch.equal(before[name], after[name]) for name in before
        ):
            return False
    return True


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The metrics without the times."""
    return [
        {k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(path / "metrics.jsonl")
    ]


def run_until(path: Path, kind: OptimizerKind, step: int, **changes: Any) -> None:
    """A run that dies while it makes step number `step`."""

    def dying(cursor: Mapping[str, Any] | None) -> Iterator[Any]:
        for count, drawn in enumerate(toy_batches(cursor), start=int(cursor["row"]) // 12 if cursor else 0):
            if count + 1 == step:
                raise Killed
            yield drawn

    with RunFolder(path) as folder, pytest.raises(Killed):
        job = toy_job(folder, kind, **changes)
        job.batches = dying
        train(job)


# Exact resume.


@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
def test_resumed_three_times_is_the_same_run(tmp_path: Path, kind: OptimizerKind) -> None:
    straight, outcome = run_toy(tmp_path / "straight", kind)
    for step in (7, 18, 33):
        run_until(tmp_path / "killed", kind, step)
    killed, again = run_toy(tmp_path / "killed", kind)
    assert outcome.done and again.done and again.step == 40 and again.tokens == outcome.tokens == 480
    assert again.scores == outcome.scores
    assert same(straight, killed)
    assert lines_of(tmp_path / "straight") == lines_of(tmp_path / "killed")
    fresh = toy_job(RunFolder(tmp_path / "x"), kind)
    assert not same(straight, fresh)


def test_an_older_checkpoint_leads_to_the_same_end(tmp_path: Path) -> None:
    straight, _ = run_toy(tmp_path / "straight")
    run_toy(tmp_path / "run")
    job, _ = run_toy(tmp_path / "run", resume=tmp_path / "run" / "checkpoints" / "step-30")
    assert same(straight, job) and lines_of(tmp_path / "straight") == lines_of(tmp_path / "run")


def test_a_checkpoint_of_another_folder(tmp_path: Path) -> None:
    """Lines, scores and the best are those of the folder that the run is in now."""
    first, other = tmp_path / "first", tmp_path / "other"
    straight, _ = run_toy(first)
    origin = first / "checkpoints" / "step-30"

    def begin(path: Path, until: int) -> None:
        def dying(cursor: Mapping[str, Any] | None) -> Iterator[Any]:
            for drawn in toy_batches(cursor):
                if drawn[0]["row"] == 12 * until:
                    raise Killed
                yield drawn

        with RunFolder(path) as folder, pytest.raises(Killed):
            job = toy_job(folder)
            job.batches = dying
            train(job, origin)

    begin(other, 37)
    job, _ = run_toy(other)
    assert same(straight, job)
    assert lines_of(other) == [row for row in lines_of(first) if row["step"] > 30]
    # In a folder with a run of its own, what came after that step is not of the run any more.
    again = tmp_path / "again"
    run_toy(again)
    job, _ = run_toy(again, resume=origin)
    assert lines_of(again) == lines_of(first) and same(straight, job)
    assert (again / "checkpoints" / "abandoned-step-40").is_dir()
    seen: list[int] = []
    with RunFolder(tmp_path / "worse") as folder:
        job = toy_job(folder)
        job.evaluate = lambda poll: {"mlm_loss": 9.0}  # than any score of the other folder's run
        job.on_best = lambda step, scores: seen.append(step)
        train(job, origin)
    assert seen == [32]


def test_the_last_checkpoint_of_another_folder_is_the_run_here_too(tmp_path: Path) -> None:
    """Catches: a folder with a final model and no checkpoint, which cannot be resumed."""
    straight, _ = run_toy(tmp_path / "first")
    last = tmp_path / "first" / "checkpoints" / "step-40"
    job, outcome = run_toy(tmp_path / "other", resume=last)
    assert outcome.done and outcome.updates == 0 and same(straight, job)
    (tmp_path / "other" / "final").mkdir()  # which the caller writes
    again, outcome = run_toy(tmp_path / "other")
    assert outcome.done and outcome.step == 40 and same(straight, again)
    lines = read(tmp_path / "other" / "checkpoints" / "step-40").state["lines"]
    assert lines == len(lines_of(tmp_path / "other"))


def test_a_checkpoint_that_was_put_aside_is_the_run_here_again(tmp_path: Path) -> None:
    """Catches: one of no `step-N` that is taken for saved, so that the plain command resumes from another."""
    straight, _ = run_toy(tmp_path)
    store = tmp_path / "checkpoints"
    (store / "step-40").rename(store / "abandoned-step-40")
    job, outcome = run_toy(tmp_path, resume=store / "abandoned-step-40")
    assert outcome.done and outcome.updates == 0 and same(straight, job)
    assert (store / "step-40").is_dir()


def test_a_full_disk_is_reported_before_later_checkpoints_are_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise RunError("the disk is full")

    run_toy(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(RunError, match="full"):
        patched.setattr(loop, "check_disk_space", full)
        run_toy(tmp_path, resume=tmp_path / "checkpoints" / "step-30")
    assert (tmp_path / "checkpoints" / "step-40").is_dir()
    run_toy(tmp_path, resume=tmp_path / "checkpoints" / "step-30")
    assert (tmp_path / "checkpoints" / "abandoned-step-40").is_dir()


def test_time_left_counts_the_step_just_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []

    class TimeLeft(Reporter):
        def step(self, step: int, progress: float, seconds: float | None) -> None:
            left.append(seconds or 0.0)

    def slowly(*given: Any, **how: Any) -> Any:
        time.sleep(0.2)
        return train_step(*given, **how)

    train_step = loop.train_step
    monkeypatch.setattr(loop, "train_step", slowly)
    with RunFolder(tmp_path) as folder:
        job = toy_job(folder, steps=3, evaluate_every=100, checkpoint_every=100)
        job.reporter = TimeLeft(quiet=True)
        train(job)
    assert left[0] >= 0.4 and left[1] >= 0.2 and left[2] == 0


def test_a_damaged_newest_checkpoint_costs_steps_and_not_the_result(tmp_path: Path) -> None:
    straight, _ = run_toy(tmp_path / "straight")
    run_until(tmp_path / "run", "lamb", 18)
    os.truncate(tmp_path / "run" / "checkpoints" / "step-15" / "model.safetensors", 50)
    with pytest.raises(CheckpointError, match="step-15"), RunFolder(tmp_path / "run") as folder:
        train(toy_job(folder), strict=True)
    job, _ = run_toy(tmp_path / "run")
    assert same(straight, job) and lines_of(tmp_path / "straight") == lines_of(tmp_path / "run")
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "DAMAGED" in log and "going on from step 10" in log


def test_a_damaged_checkpoint_is_not_one_that_was_abandoned(tmp_path: Path) -> None:
    """Only naming an earlier checkpoint moves the later ones aside, where nothing deletes them."""
    run_until(tmp_path, "lamb", 18)
    os.truncate(tmp_path / "checkpoints" / "step-15" / "model.safetensors", 50)
    run_until(tmp_path, "lamb", 12)
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("*step-*")) == [
        "step-10",
        "step-15",
        "step-5",
    ]
    run_toy(tmp_path)
    assert not list((tmp_path / "checkpoints").glob("abandoned-*"))


def test_the_last_checkpoint_counts_every_line(tmp_path: Path) -> None:
    """Those of the end too, which come after the checkpoint that was due at the last step: a branch from it
    would repeat the last steps."""
    run_toy(tmp_path)
    state = read(tmp_path / "checkpoints" / "step-40").state
    assert state["lines"] == len(lines_of(tmp_path)) and lines_of(tmp_path)[-1]["step"] == 40
    assert state["window"]["steps"] == 0


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    run_toy(tmp_path)
    before = lines_of(tmp_path)

    def never(cursor: object) -> Iterator[Any]:
        raise AssertionError("data were drawn")

    with RunFolder(tmp_path) as folder:
        job = toy_job(folder)
        job.batches = never
        assert train(job).step == 40
    assert lines_of(tmp_path) == before


def test_resume_never_and_other_settings(tmp_path: Path) -> None:
    run_toy(tmp_path, steps=6)
    with pytest.raises(RunError, match="earlier run"):
        run_toy(tmp_path, resume="never")
    with (
        RunFolder(tmp_path) as folder,
        pytest.raises(CheckpointError, match=r"data\.seed: checkpoint 3, now 4"),
    ):
        job = toy_job(folder)
        job.fingerprint = {"optimizer": "lamb", "data": {"seed": 4, "batch": 12}}
        train(job)


# Signals.


def send(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def sent_in(place: str, number: int) -> Callable[[Job], None]:
    """Make a job send itself a signal in mid-step, in mid-evaluation or while it waits for data, once."""
    left = [1]

    def once(here: int, at: int) -> None:
        if here >= at and left:
            left.clear()
            send(number)

    def change(job: Job) -> None:
        calls = [0]

        def loss_fn(model: nn.Module, batch: Any) -> Any:
            calls[0] += 1
            once(calls[0], 2 * 13 + 1)  # the first of two micro-batches of step 14
            return toy_loss(model, batch)

        def evaluate(poll: Callable[[], None]) -> dict[str, float]:
            once(calls[0], 2 * 16)
            return toy_evaluate(job.model)(poll)

        def batches(cursor: Mapping[str, Any] | None) -> Iterator[Any]:
            for drawn in toy_batches(cursor):
                if calls[0] >= 2 * 13 and left:
                    once(1, 1)
                    time.sleep(30)  # data that do not come
                yield drawn

        if place == "step":
            job.loss_fn = loss_fn
        else:
            job.loss_fn = lambda model, batch: (calls.__setitem__(0, calls[0] + 1), toy_loss(model, batch))[1]
            job.evaluate, job.batches = (
                (evaluate, toy_batches) if place == "evaluation" else (job.evaluate, batches)
            )

    return change


@pytest.fixture
def heard() -> Iterator[None]:
    """SIGHUP is not ignored, as it is where the tests were begun by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("place", "number", "code", "step"),
    [
        ("step", signal.SIGTERM, 143, 13),
        ("evaluation", signal.SIGINT, 130, 16),
        ("data", signal.SIGUSR1, 138, 13),
        ("step", signal.SIGHUP, 129, 13),
    ],
)
def test_a_signal_saves_without_losing_a_step(
    tmp_path: Path, heard: None, place: str, number: int, code: int, step: int
) -> None:
    straight, _ = run_toy(tmp_path / "straight")
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]
    with RunFolder(tmp_path / "run") as folder:
        job = toy_job(folder)
        sent_in(place, number)(job)
        began = time.monotonic()
        outcome = train(job)
    assert (outcome.done, outcome.exit_code, outcome.step) == (False, code, step)
    assert time.monotonic() - began < 10
    assert (tmp_path / "run" / "checkpoints" / "latest").read_text() == f"step-{step}\n"
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)] == before
    job, outcome = run_toy(tmp_path / "run")
    assert outcome.done and same(straight, job)
    assert lines_of(tmp_path / "straight") == lines_of(tmp_path / "run")


def test_a_signal_at_the_very_end_is_handled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the last checkpoint is written; a program of several runs would begin the next one."""
    straight, end = run_toy(tmp_path / "straight")
    save, left = loop.CheckpointStore.save, [end.step]

    def saved(store: loop.CheckpointStore, step: int, *args: Any) -> Path:
        if step in left:
            left.clear()
            send()
        return save(store, step, *args)

    monkeypatch.setattr(loop.CheckpointStore, "save", saved)
    _, outcome = run_toy(tmp_path / "run")
    assert (outcome.done, outcome.exit_code, outcome.step) == (False, 143, end.step)
    monkeypatch.undo()
    job, outcome = run_toy(tmp_path / "run")
    assert outcome.done and outcome.updates == 0 and same(straight, job)


# Not finite.


def poisoned(steps: set[int]) -> Callable[[nn.Module, Any], Any]:
    calls = [0]

    def loss_fn(model: nn.Module, batch: Any) -> Any:
        calls[0] += 1
        parts = toy_loss(model, batch)
        if (calls[0] + 1) // 2 in steps:
            parts["mlm"] = parts["mlm"]._replace(loss_sum=parts["mlm"].loss_sum * float("inf"))
        return parts

    return loss_fn


def test_stop_at_a_loss_that_is_not_finite_and_save_what_is_good(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder, pytest.raises(RunError, match="not finite at step 8"):
        job = toy_job(folder)
        job.loss_fn = poisoned({8})
        train(job)
    assert all(bool(torch.isfinite(t).all()) for t in model_tensors(job.model).values())
    straight, _ = run_toy(tmp_path / "straight")
    resumed, outcome = run_toy(tmp_path)
    assert outcome.step == 40 and same(straight, resumed)


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    """An update may overflow though its gradient did not: the way out is the last checkpoint before it."""
    calls = [0]

    def overflowing(model: nn.Module, batch: Any) -> Any:
        calls[0] += 1
        if calls[0] > 2 * 12:  # two micro-batches a step
            with torch.no_grad():
                next(model.parameters())[0] = float("inf")
        return toy_loss(model, batch)

    with RunFolder(tmp_path) as folder:
        job = toy_job(folder)
        job.loss_fn, job.branching = overflowing, Branching(())
        with pytest.raises(
            RunError, match=r"weights are not finite after step 12.*branch-from .*step-10 "
        ) as error:
            train(job)
        store = CheckpointStore(folder.checkpoints)
    assert store.steps()[-1] == 10 and "step-12" not in str(error.value)
    for step in store.steps():
        assert all(bool(x.isfinite().all()) for x in read(store.path(step)).model.values())


def flat(steps: set[int]) -> Callable[[nn.Module, Any], Any]:
    """The loss without its gradient in some steps, counted from 1."""
    calls = [0]

    def loss_fn(model: nn.Module, batch: Any) -> Any:
        calls[0] += 1
        parts = toy_loss(model, batch)
        if (calls[0] + 1) // 2 in steps:
            return {name: part._replace(loss_sum=0.0 * part.loss_sum) for name, part in parts.items()}
        return parts

    return loss_fn


def test_a_run_without_any_gradient_ends_with_a_reason(tmp_path: Path) -> None:
    """Catches: a run that changes nothing and is "done"; one that is done when the same command resumes."""
    for _ in range(2):
        with (
            RunFolder(tmp_path) as folder,
            pytest.raises(RunError, match=r"all of the first 20 steps.*Look at"),
        ):
            job = toy_job(folder)
            job.loss_fn, job.no_gradient = flat({*range(1, 41)}), "Look at the rows"
            train(job)
    with (
        RunFolder(tmp_path / "short") as folder,
        pytest.raises(RunError, match="in all of the first 7 steps"),
    ):
        job = toy_job(folder, steps=7)
        job.loss_fn = flat({*range(1, 41)})
        train(job)
    assert not folder.final.exists()


@pytest.mark.parametrize("case", ["late", "no rate", "some frozen", "copied teacher"])
def test_a_gradient_that_is_zero_for_good_reasons_ends_nothing(tmp_path: Path, case: str) -> None:
    with RunFolder(tmp_path) as folder:
        job = toy_job(folder, **({"learning_rate": 0.0} if case == "no rate" else {}))
        if case == "late":
            job.loss_fn = flat({*range(1, 20), *range(21, 41)})
        if case == "copied teacher":
            job.loss_fn, job.no_gradient = flat({*range(1, 41)}), None
        if case == "some frozen":
            for name, parameter in job.model.named_parameters():
                parameter.requires_grad_(name.startswith("parity"))
        assert train(job).step == 40


# The rest of the loop.


def test_metrics_lines(tmp_path: Path) -> None:
    run_toy(tmp_path)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    lines = [row for row in rows if "evaluation" not in row]
    assert [row["step"] for row in lines] == [*range(3, 40, 3), 40]
    assert [row["step"] for row in rows if "evaluation" in row] == [8, 16, 24, 32, 40]
    wanted = {"step", "epoch", "loss", "lr", "grad_norm", "tokens", "elapsed", "tokens_per_second"}
    wanted |= {f"{part}_{what}" for part in ("mlm", "sentence") for what in ("loss", "accuracy")}
    assert all(set(row) == wanted for row in lines)
    assert lines[0]["lr"] == pytest.approx(0.02 * 2 / 4)  # the third step, two of forty done, warm-up four
    assert lines[0]["tokens"] == 36 and lines[0]["loss"] == lines[0]["mlm_loss"] + lines[0]["sentence_loss"]
    assert lines[-1]["mlm_loss"] < lines[0]["mlm_loss"]


def test_lines_are_as_safe_as_the_checkpoint_that_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, tmp_path)
    path = tmp_path / "runs" / "toy"
    disk.wanted = {f"step-{step}": path / "metrics.jsonl" for step in range(5, 41, 5)}
    run_toy(path)
    assert disk.complaints == [] and disk.wanted.keys() <= set(disk.renamed)
    run_toy(path, resume=path / "checkpoints" / "step-35")  # cuts the lines, and writes them again
    assert disk.complaints == [] and disk.renamed.count("step-40") == 2


def test_best_scores_are_reported_once_each(tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []
    with RunFolder(tmp_path) as folder:
        job = toy_job(folder)
        job.on_best = lambda step, scores: seen.append((step, scores["mlm_loss"]))
        train(job)
    losses = [row["evaluation"]["mlm_loss"] for row in lines_of(tmp_path) if "evaluation" in row]
    expected = [(8 * (i + 1), x) for i, x in enumerate(losses) if x < min(losses[:i], default=9e9)]
    assert seen == expected and len(seen) >= 2


def test_a_budget_of_time_adds_up_over_restarts(tmp_path: Path) -> None:
    _, first = run_toy(tmp_path, steps=None, minutes=0.02, checkpoint_every=10**9, evaluate_every=10**9)
    assert first.done and 1.2 <= first.elapsed < 6 and first.step > 10
    rates = [row["lr"] for row in lines_of(tmp_path) if "lr" in row]
    assert max(rates) > 0.01 and rates[-1] < 0.005
    _, second = run_toy(tmp_path, steps=None, minutes=0.02, checkpoint_every=10**9, evaluate_every=10**9)
    assert second.step == first.step


def test_the_end_of_the_data_ends_the_run(tmp_path: Path) -> None:
    def short(cursor: Mapping[str, Any] | None) -> Iterator[Any]:
        for _, drawn in zip(range(9), toy_batches(cursor), strict=False):
            yield drawn

    with RunFolder(tmp_path) as folder:
        job = toy_job(folder)
        job.batches = short
        outcome: Outcome = train(job)
    assert outcome.done and outcome.step == 9
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step-9\n"


@pytest.mark.parametrize("stop", [False, True])
def test_alarms_are_reported_and_may_stop_the_run(tmp_path: Path, stop: bool) -> None:
    def run() -> Outcome:
        with RunFolder(tmp_path) as folder:
            job = toy_job(folder, stop_on_alarm=stop, learning_rate=0.0)
            job.alarms = TrainingAlarms(
                unigram_entropy=2.5, learning_rate=0.00176, batch_size=12, total_steps=40, patience=12
            )
            return train(job)

    if not stop:
        assert run().done
    else:
        with pytest.raises(RunError, match=r"training\.learning_rate=0\.00059.*same command resumes"):
            run()
        # Raised alarms are read from the metrics after a restart, and the user has decided to resume.
        assert run().done
    log = (tmp_path / "log.txt").read_text()
    assert log.count("WARNING SLOW START") == 1
    assert "WARNING PLATEAU" not in log and "WARNING DIVERGENCE" not in log


def test_the_garbage_collector_comes_back(tmp_path: Path) -> None:
    states: list[bool] = []

    def loss_fn(model: nn.Module, batch: Any) -> Any:
        states.append(gc.isenabled())
        return toy_loss(model, batch)

    with RunFolder(tmp_path) as folder:
        job = toy_job(folder, steps=2)
        job.loss_fn = loss_fn
        train(job)
    assert not any(states) and gc.isenabled()


def test_the_best_and_the_final_model_need_room_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides keep + 1 checkpoints of weights and two moments: both models, and one more while writing."""
    one = checkpoint_bytes(Toy(), 0)

    def fits(weights: int) -> bool:
        free = weights * one + DISK_MARGIN
        monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free})())
        try:
            with RunFolder(tmp_path) as folder:
                job = toy_job(folder, steps=1)
                loop._check_room(job, loop.CheckpointStore(folder.checkpoints, job.settings.keep))
        except RunError as error:
            assert "the run needs" in str(error)
            return False
        return True

    assert not fits(4 * 3 + 2) and fits(4 * 3 + 3)
    (tmp_path / "best").mkdir()
    assert not fits(4 * 3 + 1) and fits(4 * 3 + 2)


def test_a_full_disk_is_refused_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(RunError, match="the disk has"):
        run_toy(tmp_path)


def test_a_run_that_is_done_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a script that repeats several runs."""
    run_toy(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 0})())
    assert run_toy(tmp_path)[1].done


def test_a_run_whose_time_ends_while_it_saves_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = loop.CheckpointStore.save

    def slow(*arguments: Any) -> Any:
        written = save(*arguments)
        time.sleep(0.7)
        return written

    monkeypatch.setattr(loop.CheckpointStore, "save", slow)
    often = {"log_every": 1, "evaluate_every": 1, "checkpoint_every": 1}
    first, one = run_toy(tmp_path, steps=None, minutes=0.01, **often)
    second, two = run_toy(tmp_path, steps=None, minutes=0.01, **often)
    assert one.done and two.done and one.updates == one.step > 0
    assert two.updates == 0 and same(first, second)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_while_numbers_are_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"metrics.jsonl: the disk is full"):
        run_toy(tmp_path)
    log = (tmp_path / "log.txt").read_text()
    assert "the run ended: " in log and "bug" not in log
    (tmp_path / "metrics.jsonl").unlink()
    assert run_toy(tmp_path)[1].done


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_what_broke_a_run_off_is_reported_although_its_numbers_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")

    class Stuck(Recorder):
        def sync(self) -> None:
            assert self._metrics is not None
            self._metrics._file.write("{}")
            raise RunError("no more coffee")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(RunError, match="no more coffee"):
        patch.setattr(loop, "Recorder", Stuck)
        run_toy(tmp_path, log_every=100, evaluate_every=100, checkpoint_every=2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_log_that_cannot_be_written_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.txt").symlink_to("/dev/full")
    assert run_toy(tmp_path)[1].done
    output = capsys.readouterr().err
    assert output.count("log.txt: cannot be written (No space left on device)") == output.count("\n") == 1
    assert run_toy(tmp_path)[1].updates == 0, "the folder is free again"


@pytest.mark.parametrize("changes", [{"steps": None}, {"minutes": 1.0}])
def test_one_length_is_wanted(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="steps or minutes"):
        toy_settings(**changes)


def test_memory_stays_flat(tmp_path: Path) -> None:
    """The garbage collector is off, so a reference cycle in every step would show."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    sizes: list[int] = []
    model = Toy()
    with RunFolder(tmp_path) as folder:
        job = toy_job(folder, steps=600, log_every=50, evaluate_every=200, checkpoint_every=10**9)
        job.model, job.optimizer = model, build_optimizer(model, "lamb")
        job.evaluate = lambda poll: (sizes.append(resident()), {"mlm_loss": 1.0})[1]
        train(job)
    assert sizes[-1] < 1.02 * sizes[0]


def test_a_run_without_progress_ends_early_and_stays_ended(tmp_path: Path) -> None:
    scores = iter([3.0, 2.0, 2.5, 2.0, 2.1] + [1.0] * 9)

    def run() -> Outcome:
        with RunFolder(tmp_path) as folder:
            job = toy_job(folder, early_stopping=2, evaluate_every=4)
            job.evaluate = lambda poll: {"mlm_loss": next(scores)}
            return train(job)

    first = run()
    assert first.done and first.step == 16  # the best is the second; the third and the fourth are not better
    assert run().step == 16


@pytest.mark.parametrize("every", [1, 2, 3, 4])
def test_early_stopping_that_can_end_nothing_is_reported_at_the_start(tmp_path: Path, every: int) -> None:
    """Only such a run: other runs without improvement stop early."""
    evaluations = math.ceil(6 / every)
    for wait in range(1, 7):
        with RunFolder(tmp_path / str(wait)) as folder:
            job = toy_job(folder, steps=6, early_stopping=wait, evaluate_every=every)
            job.evaluate = lambda poll: {"mlm_loss": 1.0}
            early = train(job).step < 6
        log = (tmp_path / str(wait) / "log.txt").read_text().splitlines()
        warnings = [
            line for line in log if f"WARNING watching.early_stopping={wait} can never end this" in line
        ]
        assert len(warnings) == (not early) and all(
            f"scored {evaluations} times" in line for line in warnings
        )
        assert all(f"watching.evaluations to at least {wait + 2}" in line for line in warnings)
        assert early or warnings[0] == log[0]


def test_the_clock_sets_where_a_stream_opens_and_the_progress_of_the_run(tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []

    def follow(job: Job) -> None:
        def batches(cursor: Mapping[str, Any] | None) -> Iterator[Any]:
            for drawn in toy_batches(cursor):
                seen.append((job.clock.step, job.clock.progress))
                yield drawn

        job.batches = batches

    with RunFolder(tmp_path) as folder:
        job = toy_job(folder, steps=10)
        follow(job)
        train(job)
    assert seen == [(0, max(0, k - 1) / 10) for k in range(10)]
    seen.clear()
    (tmp_path / "checkpoints" / "step-10").rename(tmp_path / "away")
    with RunFolder(tmp_path) as folder:
        job = toy_job(folder, steps=10)
        follow(job)
        train(job)
    assert seen == [(5, max(5, k - 1) / 10) for k in range(5, 10)]


def test_the_clock_is_that_of_the_main_process(tmp_path: Path) -> None:
    """In a run by the clock every rank must be in the same stage, whatever its own clock shows."""

    class Second(World):
        def add_numbers(self, numbers: Any) -> list[float]:
            stop, empty, *rest = [*numbers, None]
            if isinstance(stop, bool) and isinstance(empty, bool):  # what ranks agree on when they draw
                assert rest[0] == 0, "its own time does not count"
                return [stop, empty, 90.0]
            return list(numbers)

        def add(self, tensor: torch.Tensor) -> torch.Tensor:
            return tensor

        def from_main(self, number: float) -> float:
            return number

        def share_weights(self, model: nn.Module) -> None:
            pass

    with RunFolder(tmp_path) as folder:
        job = toy_job(folder, steps=None, minutes=3)
        job.world, seen = Second(rank=1, size=2), []

        def batches(cursor: Mapping[str, Any] | None) -> Iterator[Any]:
            for drawn, _ in zip(toy_batches(cursor), range(3), strict=False):
                seen.append(job.clock.progress)
                yield drawn

        job.batches = batches
        train(job)
    assert seen == [0.0, 0.5, 0.5]


def test_a_finished_run_without_its_checkpoints_is_not_begun_again(tmp_path: Path) -> None:
    run_toy(tmp_path)
    (tmp_path / "final").mkdir()
    shutil.rmtree(tmp_path / "checkpoints")
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match="none of its checkpoints"):
        run_toy(tmp_path)
    assert before and (tmp_path / "metrics.jsonl").read_bytes() == before


def test_an_evaluation_does_not_slow_the_reported_speed(tmp_path: Path) -> None:
    def slowly(poll: Any) -> dict[str, float]:
        time.sleep(0.5)
        return {"mlm_accuracy": 0.5}

    with RunFolder(tmp_path) as folder:
        job = toy_job(folder, steps=5, log_every=1, evaluate_every=4, checkpoint_every=100)
        job.evaluate = slowly
        assert train(job).done
    before, after = [r for r in read_metrics(tmp_path / "metrics.jsonl") if "tokens_per_second" in r][3:5]
    assert after["tokens_per_second"] > (after["tokens"] - before["tokens"]) / 0.5


def test_writing_the_best_does_not_slow_the_reported_speed(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        job = toy_job(folder, steps=5, log_every=1, evaluate_every=4, checkpoint_every=100)
        job.on_best = lambda *_: time.sleep(0.5)
        assert train(job).done
    before, after = [r for r in read_metrics(tmp_path / "metrics.jsonl") if "tokens_per_second" in r][3:5]
    assert after["tokens_per_second"] > (after["tokens"] - before["tokens"]) / 0.5


def test_every_rank_goes_by_the_scores_of_the_main_process(tmp_path: Path) -> None:
    """Catches: ranks of which one ends early and the others wait for it, their last bits being different."""

    class Second(World):
        def add_numbers(self, numbers: Any) -> list[float]:
            return list(numbers)

        def add(self, tensor: torch.Tensor) -> torch.Tensor:
            return tensor

        def from_main(self, number: float) -> float:
            return 2.0 if number == 1.0 else number

        def share_weights(self, model: nn.Module) -> None:
            pass

    with RunFolder(tmp_path) as folder:
        job = toy_job(folder, steps=4)
        job.world, job.evaluate = Second(rank=1, size=2), lambda poll: {"mlm_loss": 1.0}
        assert train(job).scores == {"mlm_loss": 2.0}


def test_every_step_follows_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a schedule that is recorded and not used; no clipping; one dropout pattern for all steps."""
    made: list[Any] = []
    step = loop.train_step

    def watched(*given: Any, **how: Any) -> Any:
        made.append([how.get(name) for name in ("step", "seed", "clip", "lr")])
        return step(*given, **how)

    monkeypatch.setattr(loop, "train_step", watched)
    run_toy(tmp_path, steps=10, clip=0.5)
    assert [one[:3] for one in made] == [[k, 5, 0.5] for k in range(10)]
    assert [one[3] for one in made] == pytest.approx([0.0, *(0.02 * (1 - k / 10) for k in range(1, 10))])


def test_time_spent_before_a_restart_counts(tmp_path: Path) -> None:
    """Catches: a run by the clock that was killed gets its whole time again."""
    with (
        RunFolder(tmp_path) as folder,
        Recorder(toy_job(folder), Reporter(quiet=True), State(elapsed=100.0)) as recorder,
    ):
        assert 100 <= recorder.elapsed < 130
