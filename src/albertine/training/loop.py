"""The training loop: draw a batch, make a step, write metrics, evaluate and save at intervals.

Everything that determines the result is in the weights, the optimizer and `State`, and all three are in every
checkpoint. A run that was killed and resumed therefore ends with the same bits as an uninterrupted one, on
the same machine with the same versions, threads and number of ranks, and if its length is in steps, not in
minutes.
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from albertine.core.files import check_disk_space
from albertine.errors import RunError
from albertine.training.alarms import UNMOVED, no_gradient, not_finite, weights_not_finite
from albertine.training.checkpoints import (
    CheckpointStore,
    checkpoint_bytes,
    first_not_finite,
    model_tensors,
    named_recurrent_state,
    optimizer_tensors,
)
from albertine.training.job import Cursor, Drawn, Job, Outcome, State
from albertine.training.progress import Reporter
from albertine.training.recorder import Recorder
from albertine.training.resuming import Start, restored_state
from albertine.training.signals import Signals, StopRequested
from albertine.training.step import MicroBatch, StepReport, train_step

DISK_MARGIN = 64 << 20  # bytes, for logs and plots
COLLECT_EVERY = 1000  # steps


def train(
    job: Job,
    resume: str | Path = "auto",
    *,
    strict: bool = False,
    branch_from: str | Path | None = None,
) -> Outcome:
    """Train until the end of the run or a signal.

    Args:
        resume: `auto` resumes from the newest complete checkpoint, if any; `never` requires a folder without
            one; a path resumes from that checkpoint.
        strict: refuse a damaged newest checkpoint instead of falling back to the one before.
        branch_from: checkpoint of another run to start from, with other settings, where the run has none of
            its own; see `training.resuming`.

    Raises:
        CheckpointError: no checkpoint is complete, or it belongs to another run.
        RunError: disk full, loss not finite, or an alarm under `stop_on_alarm`. Saved files stay.
    """
    with job.reporter or Reporter(quiet=not job.world.main) as reporter:
        store, start = _checked(job, resume, strict, branch_from)
        state, over = start.state, _over(job, start)
        if not over:
            _check_room(job, store)
        if start.goes_back and job.world.main:
            store.abandon_after(state.step)
        if over:
            return Outcome(True, 0, state.step, state.tokens, state.elapsed, state.scores)
        return _Run(job, store, start, reporter).go()


def _checked(
    job: Job, resume: str | Path, strict: bool, branch_from: str | Path | None
) -> tuple[CheckpointStore, Start]:
    """The run's checkpoints, and its start, which is loaded into the model."""
    store = CheckpointStore(job.folder.checkpoints, job.settings.keep)
    job.world.share_weights(job.model)
    return store, restored_state(job, store, resume, strict=strict, branch_from=branch_from)


def _check_room(job: Job, store: CheckpointStore) -> None:
    """Raises RunError: the disk has less free space than the run needs."""
    if job.world.main:
        check_disk_space(job.folder.path, _disk_bytes(job, store))


def _over(job: Job, start: Start) -> bool:
    """Whether the checkpoint is of the end of this run, so that nothing is left to compute or to write."""
    state = start.state
    evaluated = job.evaluate is None or state.evaluated == state.step
    saved = state.saved == state.step  # false for a checkpoint of another folder
    return (
        start.branch is None and evaluated and saved and job.settings.progress(state.step, state.elapsed) >= 1
    )


class _Run:
    def __init__(self, job: Job, store: CheckpointStore, start: Start, reporter: Reporter) -> None:
        self.job, self.settings, self.world = job, job.settings, job.world
        self.store, self.state, self.branch = store, start.state, start.branch
        self.first, self.begun = self.state.step, self.state.elapsed  # as read by every rank
        if self.branch is not None:
            self.state.unmoved = 0
        if self.world.main:
            job.folder.begin()
            if self.branch is not None:
                self.branch.write(job.folder.path)
            if job.on_start is not None:
                job.on_start()
        self.recorder = Recorder(job, reporter, self.state)
        self.signals = Signals()
        # A rank that stopped alone, within a step or an evaluation, would leave the others waiting in a
        # collective. With several ranks they agree on stopping when they draw a batch.
        self.poll: Callable[[], None] = self.signals.poll if self.world.size == 1 else lambda: None

    def go(self) -> Outcome:
        self.job.model.train()
        self._set_progress(self.begun)
        with (
            self.signals,
            _collector_off(),
            self.recorder,
            contextlib.ExitStack() as stack,
        ):
            try:
                if self.branch is not None:
                    self.recorder.note("\n".join(self.branch.summary()))
                    self._save()  # the original may be deleted by its own run
                if warning := self.settings.early_stopping_warning:
                    self.recorder.warn(warning)
                if self._due(self.settings.evaluate_every):
                    self._evaluate()  # after a signal between a step and its evaluation
                self._steps(stack)
                self._log_metrics()
                self._evaluate()
                self._save_end()
                if self.world.any(self.signals.received is not None):  # since the last poll
                    raise StopRequested
            except StopRequested:
                self._save()
                self.recorder.note(f"stopped by a signal; saved at step {self.state.step}")
                return self._outcome(self.signals.exit_code)
        return self._outcome(0)

    def _steps(self, stack: contextlib.ExitStack) -> None:
        batches: Iterator[Drawn] | None = None
        while self.settings.steps is None or self.state.step < self.settings.steps:
            if 0 < (self.settings.early_stopping or 0) <= self.state.since_best:
                self.recorder.note(f"no new best in {self.state.since_best} evaluations: the run ends early")
                return
            if batches is None:
                self.job.clock.step = self.state.step
                batches = iter(self.job.batches(self.state.cursor))
                stack.callback(getattr(batches, "close", lambda: None))
            drawn, elapsed = self._draw(batches)
            self._set_progress(elapsed)
            if drawn is None or self.settings.progress(self.state.step, elapsed) >= 1:
                return
            self._step(*drawn, elapsed)
            if self._due(self.settings.log_every):
                self._log_metrics()
            if self._due(self.settings.evaluate_every):
                self._evaluate()
            if self._due(self.settings.checkpoint_every):
                self._save()
            if self._due(COLLECT_EVERY):
                gc.collect()

    def _set_progress(self, elapsed: float) -> None:
        self.job.clock.progress = self.settings.progress(self.state.step, elapsed)

    def _draw(self, batches: Iterator[Drawn]) -> tuple[Drawn | None, float]:
        """The next batch, None at the end of the data, and the elapsed time of the main process."""
        drawn: Drawn | None = None
        # A signal during the wait is shared with the other ranks below.
        with contextlib.suppress(StopRequested), self.signals.interruptible():
            drawn = next(batches, None)
        elapsed = self.recorder.elapsed if self.world.main else 0.0
        stop, empty, elapsed = self.world.add_numbers(
            [self.signals.received is not None, drawn is None, elapsed]
        )
        if stop:
            raise StopRequested
        return (None if empty else drawn), elapsed

    def _step(self, cursor: Cursor, micro_batches: list[MicroBatch], elapsed: float) -> None:
        job, state, settings = self.job, self.state, self.settings
        state.lr = settings.learning_rate * settings.schedule(settings.progress(state.step, elapsed))
        report = train_step(
            job.model,
            micro_batches,
            job.loss_fn,
            job.optimizer,
            lr=state.lr,
            step=state.step,
            seed=settings.seed,
            clip=settings.clip,
            world=self.world,
            parts=job.parts,
            between=self.poll,
            adversary=job.adversary,
            runner=job.runner,
            extra_metrics=job.extra_metrics,
        )
        if not report.finite:
            self._save()
            raise not_finite(state.step + 1, state.cursor, self._origin())
        state.step, state.cursor, state.tokens = state.step + 1, cursor, state.tokens + report.tokens
        if job.average is not None:
            job.average.take(state.step - state.unaveraged)
        if (recurrent := job.recurrent_state) is not None:
            recurrent.settle()
        self.recorder.step(state, report)
        self._check_gradient(report)

    def _check_gradient(self, report: StepReport) -> None:
        """End a run whose first gradients are all exactly zero. Every rank has the same norm.

        Raises:
            RunError: so many gradients were zero. None of these steps is saved.
        """
        state = self.state
        if state.unmoved is None:
            return
        if report.grad_norm > 0 or self.job.no_gradient is None:
            state.unmoved = None
            return
        state.unmoved += 1
        if state.unmoved >= min(UNMOVED, self.settings.steps or UNMOVED):
            loss = sum(part.loss_sum / part.count for part in report.parts.values() if part.count)
            raise no_gradient(state.unmoved, loss, self.job.no_gradient)

    def _log_metrics(self) -> None:
        alarms = self.recorder.log_metrics(self.state)
        if self.settings.stop_on_alarm and self.world.any(bool(alarms)):
            self._save()
            if not alarms:
                raise RunError("another rank raised an alarm")
            resume = "The same command resumes it."  # the same alarm is not raised again
            raise RunError(alarms[0].what, where=alarms[0].kind, remedy=" ".join((*alarms[0].advice, resume)))

    def _evaluate(self) -> None:
        """Evaluate the model after this step, unless that is done."""
        if self.job.evaluate is None or self.state.evaluated == self.state.step:
            return
        with contextlib.nullcontext() if self.job.average is None else self.job.average.in_place():
            self._score(self.job.evaluate)

    def _score(self, evaluate: Callable[[Callable[[], None]], Mapping[str, float]]) -> None:
        job, state = self.job, self.state
        job.clock.cursor = state.cursor
        with self.recorder.paused():
            # The main process' on every rank: scores decide when a run ends, and may differ in the last bits.
            own = evaluate(self.poll)
            scores = {name: self.world.from_main(float(value)) for name, value in own.items()}
        job.model.train()
        state.evaluated = state.step
        state.scores = {name: value for name, value in scores.items() if math.isfinite(value)}
        self.recorder.scores(state.step, scores)
        name, direction = self.settings.best or ("", "min")
        score = state.scores.get(name, math.nan) * (-1 if direction == "max" else 1)
        if score < (math.inf if state.best is None else state.best):
            state.best, state.since_best = score, 0
            if job.on_best is not None and self.world.main:
                with self.recorder.paused():
                    job.on_best(state.step, scores)
        else:
            state.since_best += 1

    def _save(self) -> None:
        """Write a checkpoint, unless nothing changed since the last. Where the main process cannot, because
        the disk is full or the weights are not finite, every rank raises."""
        state, error = self.state, None
        if state.saved == state.step and state.lines == self.recorder.lines:
            return
        saved, recurrent = self._saved_state(), self._recurrent_tensors()
        if self.world.main:
            try:
                with self.recorder.paused():
                    self.recorder.sync()
                    model, optimizer = self._tensors()
                    if (name := first_not_finite(model)) is not None:
                        raise weights_not_finite(state.step, name, self._origin())
                    self.store.save(state.step, model, optimizer | recurrent, saved)
            except RunError as failure:
                error = failure
        if self.world.any(error is not None):
            raise error or RunError("the main process could not save; its message has the cause")
        state.saved = state.step

    def _save_end(self) -> None:
        """Save, also where the last checkpoint has this step but an elapsed time short of the run's minutes,
        so that resuming it would train further."""
        settings, state = self.settings, self.state
        if settings.minutes is not None:
            before, now = (settings.progress(state.step, e) for e in (state.elapsed, self.recorder.elapsed))
            if self.world.any(self.world.main and before < 1 <= now):
                state.saved = State().saved
        self._save()

    def _origin(self) -> Path | None:
        """The newest checkpoint, if the run can be branched; its weights are finite."""
        steps = () if self.job.branching is None else self.store.steps()
        return self.store.path(steps[-1]) if steps else None

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        job = self.job
        return model_tensors(job.model), optimizer_tensors(job.model, job.optimizer, job.average)

    def _recurrent_tensors(self) -> dict[str, Tensor]:
        """The recurrent state of all ranks; a collective call."""
        recurrent = self.job.recurrent_state
        return {} if recurrent is None else named_recurrent_state(recurrent.tensors())

    def _saved_state(self) -> dict[str, Any]:
        state = self.state
        state.elapsed, state.lines = self.recorder.elapsed, self.recorder.lines
        state.window = self.recorder.window.saved()
        return {**asdict(state), "saved": state.step, "fingerprint": dict(self.job.fingerprint)}

    def _outcome(self, code: int) -> Outcome:
        state = self.state
        updates = state.step - self.first
        return Outcome(
            code == 0, code, state.step, state.tokens, self.recorder.elapsed, state.scores, updates
        )

    def _due(self, every: int) -> bool:
        return self.state.step > 0 and self.state.step % every == 0


def _disk_bytes(job: Job, store: CheckpointStore) -> int:
    """Upper bound of the bytes that a run writes: its checkpoints and one being written, both models and one
    being replaced, and a margin for everything else."""
    checkpoints = max(2, job.settings.keep + 1 - len(store.steps()))
    models = 1 + sum(not folder.is_dir() for folder in (job.folder.best, job.folder.final))
    moments = 2 if job.average is None else 3
    recurrent = 0 if job.recurrent_state is None else job.recurrent_state.nbytes
    size = checkpoint_bytes(job.model, moments) + recurrent
    return checkpoints * size + models * checkpoint_bytes(job.model, 0) + DISK_MARGIN


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    """Disable the garbage collector, whose pauses fall on single steps; the loop calls it between steps."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
