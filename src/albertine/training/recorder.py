"""Everything a run tells: metrics file, TensorBoard, progress, log and alarms."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from albertine.errors import RunError
from albertine.training.alarms import ONSET, Alarm, onset_minute
from albertine.training.job import Job, State
from albertine.training.metrics import (
    MetricsFile,
    RunningSums,
    TensorBoard,
    as_written,
    cut_metrics,
    open_tensorboard,
    read_metrics,
)
from albertine.training.progress import Reporter, summary
from albertine.training.resuming import branch_of
from albertine.training.step import StepReport

log = logging.getLogger("albertine.training")


class Recorder:
    """Tells of a run from `state` on; forgets what an earlier process told after it.

    Every rank has one and keeps the same sums; only the main one writes and speaks.
    """

    def __init__(self, job: Job, reporter: Reporter, state: State) -> None:
        self.job, self.reporter = job, reporter
        self.window, self.lines = RunningSums(state.window), state.lines
        self._before, self._began = state.elapsed, time.monotonic()
        self._last_time, self._last_tokens = self._began, state.tokens
        self._metrics: MetricsFile | None = None
        self._tensorboard: TensorBoard | None = None
        folder = job.folder
        if job.world.main:
            cut_metrics(folder.metrics, state.lines)
            self._metrics = MetricsFile(folder.metrics)
            if job.settings.tensorboard:
                self._tensorboard = open_tensorboard(folder.tensorboard, state.step)
        branch, before = branch_of(folder.path), list[dict[str, Any]]()
        if job.alarms is not None:
            job.alarms.begin(branch.get("step", 0))
            # The alarms' memory is the metrics file itself, so it needs no place in a checkpoint.
            before = read_metrics(folder.metrics)
        for row in before:
            self._alarms(row)
        self.reads = onset_minute(before) is not None or bool(branch)
        if state.step:
            self.say(f"going on from step {state.step}")

    @property
    def elapsed(self) -> float:
        """Seconds of training over all restarts, by this rank's clock."""
        return self._before + time.monotonic() - self._began

    def say(self, text: str) -> None:
        log.info("%s", text)
        self.reporter.note(text)

    def warn(self, text: str) -> None:
        log.warning("%s", text)

    def step(self, state: State, report: StepReport) -> None:
        """After every step."""
        self.window.add(report)
        elapsed = self.elapsed
        progress = self.job.settings.progress(state.step, elapsed)
        left = elapsed * (1 / progress - 1) if progress > 0 else None
        self.reporter.step(state.step, min(1.0, progress), left)

    def numbers(self, state: State) -> list[Alarm]:
        """Write the means over the steps since the last time, if any was made; returns the alarms they
        raise.
        """
        if not self.window.steps:
            return []
        now = time.monotonic()
        row: dict[str, Any] = {"step": state.step}
        place = state.cursor or {}
        row |= {key: place[key] for key in ("epoch", "stage") if key in place}
        row |= self.window.means() | {"lr": state.lr, "tokens": state.tokens, "elapsed": self.elapsed}
        row["tokens_per_second"] = (state.tokens - self._last_tokens) / max(now - self._last_time, 1e-9)
        self._last_time, self._last_tokens, self.window = now, state.tokens, RunningSums()
        self._write(row, "train", row)
        self.reporter.numbers(self._shown(row))
        alarms = self._alarms(row)
        for alarm in alarms:
            log.warning("%s", alarm)
        return alarms

    def scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Write the scores of an evaluation."""
        gain = None if self.job.alarms is None else self.job.alarms.context_gain(scores)
        gained = {} if gain is None else {"context_gain": gain}
        row: dict[str, Any] = {"step": step, "evaluation": scores, "elapsed": self.elapsed, **gained}
        self._write(row, "held_out", {"step": step, **scores, **gained})
        self.say(f"step {step}  held out: {summary(self._shown(scores))}")
        self._alarms(row)  # remembered there; the next line of training is judged by them
        if not self.reads and (minute := onset_minute([row])) is not None:
            self.reads = True
            depth = ", computed as deep as its stage" if "stage_mask_loss" in scores else ""
            self.say(
                f"the model reads{depth}: more than {ONSET:g} nats of context gain by minute {minute:.1f}"
            )

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time in which nothing is trained: it counts in `elapsed`, and in no speed."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._last_time += time.monotonic() - began

    def sync(self) -> None:
        """Make the lines written so far as safe as the checkpoint that is about to be written."""
        if self._metrics is not None:
            self._metrics.sync()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Why the run broke off is said already; that its files could not be closed either is no news.
        quiet = contextlib.nullcontext() if error is None else contextlib.suppress(RunError)
        with quiet, contextlib.ExitStack() as stack:
            for writer in (self._tensorboard, self._metrics):
                if writer is not None:
                    stack.callback(writer.close)

    def _write(self, row: Mapping[str, Any], kind: str, curves: Mapping[str, Any]) -> None:
        self.lines += 1
        if self.job.settings.permutation:
            row, curves = as_written(row), as_written(curves)
        if self._metrics is not None:
            self._metrics.write(row)
        if self._tensorboard is not None:
            self._tensorboard.write(curves, kind)

    def _shown(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A line as a person is shown it: parts of the loss by their names in this run, or not at all."""
        names = self.job.settings.shown
        parts = ((key.partition("_"), value) for key, value in row.items())
        found = ((names.get(part, part), rest, value) for (part, *rest), value in parts)
        return {name + "".join(rest): value for name, rest, value in found if name is not None}

    def _alarms(self, row: Mapping[str, Any]) -> list[Alarm]:
        if self.job.alarms is None:
            return []
        return self.job.alarms.see(row, self.job.settings.progress(row["step"], row.get("elapsed", 0.0)))
