"""The data of a training run: its job, its settings, its state and its outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from albertine.errors import SettingsError
from albertine.training.alarms import TrainingAlarms
from albertine.training.average import Average
from albertine.training.distributed import World
from albertine.training.progress import Reporter
from albertine.training.run_folder import RunFolder
from albertine.training.schedules import Schedule
from albertine.training.step import (
    FastGradientMethod,
    LossFunction,
    MetricSums,
    MicroBatch,
    MicroBatchRunner,
    RecurrentState,
)

Cursor = dict[str, Any]
"""Position in the data after a batch, as JSON data. Opaque to the loop, but for `epoch` and `stage`, which it
writes to the metrics."""

Drawn = tuple[Cursor, list[MicroBatch]]
"""A global batch as the data yields it: the cursor after it, and the micro-batches of this rank."""


@dataclass
class Clock:
    """The progress of a run, for batches and evaluations that depend on it. The same on every rank.

    Attributes:
        step: number of steps made when the batch iterator was opened.
        progress: share of the run that was done when the last batch was drawn.
        cursor: after the last batch that was trained on, during an evaluation.
    """

    step: int = 0
    progress: float = 0.0
    cursor: Cursor | None = None


@dataclass(frozen=True)
class LoopSettings:
    """Length of the run, learning rate, and intervals of logging, evaluations and checkpoints.

    Attributes:
        schedule: from progress to the share of `learning_rate`, the peak.
        steps, minutes: length of the run, exactly one of them; minutes add up over restarts.
        seed: key of the dropout draws.
        clip: largest gradient norm.
        log_every, evaluate_every, checkpoint_every: in steps.
        keep: number of checkpoints kept, at least 2.
        best: metric that selects the best model, and its direction.
        early_stopping: evaluations in a row without a new best after which the run ends.
        stop_on_alarm: end the run at an alarm instead of warning; the same command resumes it.
        tensorboard: also write event files, where tensorboard is installed.
        shown: display names of parts of the loss; None: hidden.
        permutation: permutation language modelling, whose metrics are written as `plm_*`.
    """

    schedule: Schedule
    learning_rate: float
    steps: int | None = None
    minutes: float | None = None
    seed: int = 0
    clip: float | None = 1.0
    log_every: int = 10
    evaluate_every: int = 500
    checkpoint_every: int = 500
    keep: int = 3
    best: tuple[str, Literal["min", "max"]] | None = None
    early_stopping: int | None = None
    stop_on_alarm: bool = False
    tensorboard: bool = True
    shown: Mapping[str, str | None] = field(default_factory=dict)
    permutation: bool = False

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise SettingsError(
                "the length of the run is unclear", remedy="Give steps or minutes, and not both"
            )

    @property
    def early_stopping_warning(self) -> str:
        """A warning where the run has too few evaluations for early stopping; "" otherwise, and for a run by
        the clock, whose number of evaluations is unknown."""
        if self.early_stopping is None or self.steps is None:
            return ""
        evaluations, least = math.ceil(self.steps / self.evaluate_every), self.early_stopping + 2
        if evaluations >= least:
            return ""
        return (
            f"watching.early_stopping={self.early_stopping} can never end this run early: it is scored "
            f"{evaluations} times, and the first is a best one. Set watching.evaluations to at least {least}"
        )

    def progress(self, step: int, elapsed: float) -> float:
        """Share of the run that is done after `step` steps and `elapsed` seconds."""
        return step / self.steps if self.steps is not None else elapsed / (60 * (self.minutes or 1))


@dataclass(frozen=True)
class Branching:
    """What a branch of a run may not change, and where its data starts.

    Attributes:
        fixed: fingerprint keys that must be equal; each stands for all keys below it.
        cursor: from the cursor of the checkpoint, its fingerprint, and the share of the new run that is done
            at that step, to the cursor of the branch.
    """

    fixed: tuple[str, ...]
    cursor: Callable[[Cursor | None, Mapping[str, Any], float], Cursor | None] = lambda cursor, *_: cursor


@dataclass
class Job:
    """Everything the training loop needs.

    Attributes:
        batches: from a cursor (None at the start) to the batches after it. The run ends with the iterator.
        evaluate: from a function to call between its batches, so that signals are handled, to scores, which
            are the same on every rank. None: no evaluations.
        folder: the run's folder, already entered and so locked.
        fingerprint: the settings that determine the result, as JSON data; a checkpoint with another one is
            refused.
        on_start: called by the main process after all checks and before anything is written; writes settings
            and environment.
        on_best: called by the main process with step and scores at every new best score.
        parts, adversary, runner, extra_metrics: see `train_step`.
        branching: rules of a branch; None: no branches.
        average: moving average of the weights, which is evaluated and saved as the best instead of them.
        clock: set by the loop, read by `batches` and `evaluate`.
        no_gradient: remedy of the error that ends a run whose first gradients are exactly zero; None: no
            error, as for a student that begins as a copy of its teacher.
    """

    model: nn.Module
    optimizer: Optimizer
    batches: Callable[[Cursor | None], Iterable[Drawn]]
    loss_fn: LossFunction
    settings: LoopSettings
    folder: RunFolder
    evaluate: Callable[[Callable[[], None]], Mapping[str, float]] | None = None
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    world: World = field(default_factory=World)
    alarms: TrainingAlarms | None = None
    reporter: Reporter | None = None
    on_start: Callable[[], None] | None = None
    on_best: Callable[[int, Mapping[str, float]], None] | None = None
    adversary: FastGradientMethod | None = None
    average: Average | None = None
    parts: Sequence[str] | None = None
    branching: Branching | None = None
    clock: Clock = field(default_factory=Clock)
    runner: MicroBatchRunner | None = None
    extra_metrics: Callable[[], MetricSums] = dict
    no_gradient: str | None = "Look at the data and the loss"

    @property
    def recurrent_state(self) -> RecurrentState | None:
        """The loss function, if it has state from step to step."""
        return self.loss_fn if isinstance(self.loss_fn, RecurrentState) else None


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    Attributes:
        done: False if a signal ended it early; it was saved and can be resumed.
        exit_code: 0, or 128 + the signal, such as 143 SIGTERM, 130 Ctrl-C, 129 a closed terminal.
        elapsed: seconds, over all restarts.
        scores: of the last evaluation.
        updates: steps made by this process; 0 where the run was done before.
    """

    done: bool
    exit_code: int
    step: int
    tokens: int
    elapsed: float
    scores: Mapping[str, float]
    updates: int = 0


@dataclass
class State:
    """The state of a run in a checkpoint, beside its tensors.

    Attributes:
        cursor: after the last batch that was trained on.
        tokens, elapsed: tokens trained on and seconds spent, over all restarts.
        lr: learning rate of the last step.
        saved, evaluated: steps of the last checkpoint and of the last evaluation.
        best: best score, negated if larger is better.
        since_best: evaluations since the last new best.
        window, lines: sums since the last metrics line, and number of lines.
        unaveraged: steps before the moving average began, for a branch that begins one.
        unmoved: steps so far, if the gradient of all of them was exactly zero; else None.
    """

    step: int = 0
    cursor: Cursor | None = None
    tokens: int = 0
    elapsed: float = 0.0
    lr: float = 0.0
    saved: int = -1
    evaluated: int = -1
    best: float | None = None
    since_best: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    window: dict[str, Any] | None = None
    lines: int = 0
    unaveraged: int = 0
    unmoved: int | None = 0

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> State:
        """The state in a checkpoint, whose other keys are ignored."""
        return cls(**{key: value for key, value in saved.items() if key in cls.__dataclass_fields__})
