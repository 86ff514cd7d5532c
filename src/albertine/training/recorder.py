"""Records of a run: metrics file, TensorBoard, progress, log and alarms."""

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
    """Records a run from `state` on, and removes the lines that an earlier process wrote after it.

    Every rank has one with the same sums; only the main process writes.
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
            # The alarms restore their state from the metrics file, so no checkpoint needs it.
            before = read_metrics(folder.metrics)
        for row in before:
            self._alarms(row)
        self.past_onset = onset_minute(before) is not None or bool(branch)
        if state.step:
            self.note(f"resumes at step {state.step}")

    @property
    def elapsed(self) -> float:
        """Seconds of training over all restarts, by this rank's clock."""
        return self._before + time.monotonic() - self._began

    def note(self, text: str) -> None:
        """Write a line to the log and to the terminal."""
        log.info("%s", text)
        self.reporter.note(text)

    def warn(self, text: str) -> None:
        """Write a warning to the log and to the terminal."""
        log.warning("%s", text)

    def step(self, state: State, report: StepReport) -> None:
        """After every step."""
        self.window.add(report)
        elapsed = self.elapsed
        progress = self.job.settings.progress(state.step, elapsed)
        left = elapsed * (1 / progress - 1) if progress > 0 else None
        self.reporter.step(state.step, min(1.0, progress), left)

    def log_metrics(self, state: State) -> list[Alarm]:
        """Write the means over the steps since the last line, if there are any; returns the alarms that they
        raise."""
        if not self.window.steps:
            return []
        now = time.monotonic()
        row: dict[str, Any] = {"step": state.step}
        cursor = state.cursor or {}
        row |= {key: cursor[key] for key in ("epoch", "stage") if key in cursor}
        row |= self.window.means() | {"lr": state.lr, "tokens": state.tokens, "elapsed": self.elapsed}
        row["tokens_per_second"] = (state.tokens - self._last_tokens) / max(now - self._last_time, 1e-9)
        self._last_time, self._last_tokens, self.window = now, state.tokens, RunningSums()
        self._write(row, "train", row)
        self.reporter.metrics(self._displayed(row))
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
        self.note(f"step {step}  held out: {summary(self._displayed(scores))}")
        self._alarms(row)  # kept there; an alarm is raised at the next line of training
        if not self.past_onset and (minute := onset_minute([row])) is not None:
            self.past_onset = True
            depth = ", with the layers of its stage" if "stage_mask_loss" in scores else ""
            self.note(f"context-gain onset by minute {minute:.1f}: over {ONSET:g} nats{depth}")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time without training, such as an evaluation: part of `elapsed`, not of tokens per second."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._last_time += time.monotonic() - began

    def sync(self) -> None:
        """Make the lines written so far as durable as the checkpoint that follows."""
        if self._metrics is not None:
            self._metrics.sync()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error of the run, an error on closing its files is suppressed.
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

    def _displayed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A line with the display names of the parts of the loss, without the hidden ones."""
        names = self.job.settings.shown
        parts = ((key.partition("_"), value) for key, value in row.items())
        found = ((names.get(part, part), rest, value) for (part, *rest), value in parts)
        return {name + "".join(rest): value for name, rest, value in found if name is not None}

    def _alarms(self, row: Mapping[str, Any]) -> list[Alarm]:
        if self.job.alarms is None:
            return []
        return self.job.alarms.update(row, self.job.settings.progress(row["step"], row.get("elapsed", 0.0)))
