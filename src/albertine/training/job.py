"""What a training run is made of: its parts, its settings, its state and how it ended."""

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
    Instead,
    LossFunction,
    MicroBatch,
    RecurrentState,
    Told,
    never,
)

Cursor = dict[str, Any]
"""Where in the data a batch ends, as plain JSON data. Only its maker understands it; `epoch` in it is
shown.
"""

Drawn = tuple[Cursor, list[MicroBatch]]


@dataclass
class Clock:
    """Where the run stands, for what follows it: its batches, and how it is judged. The same on every rank.

    Attributes:
        step: the step before which the stream was opened.
        progress: share of the run that was done when the last batch was taken from the stream.
        cursor: after the last batch in use, when the model is judged.
    """

    step: int = 0
    progress: float = 0.0
    cursor: Cursor | None = None


@dataclass(frozen=True)
class LoopSettings:
    """How long to train, how fast to learn, how often to look.

    Attributes:
        schedule: from progress to the share of `learning_rate`, the peak.
        steps, minutes: the end of the run, exactly one of them; minutes add up over restarts.
        seed: names the dropout draws.
        clip: largest gradient norm.
        log_every, evaluate_every, checkpoint_every: in steps.
        keep: checkpoints kept, at least 2.
        best: name of the score that picks the best model, and whether it is to be `min` or `max`.
        early_stopping: end the run after so many evaluations in a row without a new best.
        stop_on_alarm: end the run at an alarm instead of warning; it goes on if it is begun again.
        tensorboard: also write event files, where tensorboard is installed.
        shown: other names of parts of the loss for people to read; None: not shown.
        permutation: words are predicted in a permuted order, and files have them as `plm_loss`.
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
    def never_ends_early(self) -> str:
        """Why early stopping can end nothing, as the run is over when so many evaluations are made; "" where
        it can, and of a run by the clock, in which nobody knows how many there will be."""
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
    """What a branch may not change, and how its data goes on.

    Attributes:
        fixed: keys of the fingerprint that have to be as they were; each stands for all below it.
        cursor: from the cursor of the checkpoint, its fingerprint, and the share of the new run that is done
            there, to a cursor that fits the data as they are now.
    """

    fixed: tuple[str, ...]
    cursor: Callable[[Cursor | None, Mapping[str, Any], float], Cursor | None] = lambda cursor, *_: cursor


@dataclass
class Job:
    """All that a run is made of.

    Attributes:
        batches: from a cursor (None at the start) to the batches after it: (cursor after the batch,
            micro-batches of this rank). A stream that ends, ends the run.
        evaluate: from a function to call between its batches, so that a signal is heard, to scores, which
            are the same on every rank. None: the run is not evaluated.
        folder: entered, so that it is locked.
        fingerprint: the settings that decide the result, as JSON data; a checkpoint with another one is
            refused.
        on_start: called by the main process once nothing can be refused any more and before anything of the
            run's record is written; writes down settings and environment.
        on_best: called by the main process with step and scores whenever the best score is beaten.
        parts, adversary, instead: see `train_step`.
        branching: what a branch of another run may change; None where there are no branches.
        average: of the weights; it is evaluated, and kept as the best, instead of them.
        clock: set by the loop, read by `batches` and `evaluate` where they follow the run.
        carried: what `loss_fn` takes from step to step; None: every step begins anew.
        told: what the passes of a step told beside the loss.
        no_gradient: what to look at if the gradient of the first steps is exactly zero, which ends the run;
            None: that is no error, as for a student that begins as a copy of its teacher.
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
    carried: RecurrentState | None = None
    told: Told = dict
    instead: Instead = never
    no_gradient: str | None = "Look at the data and the loss"


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        done: False if a signal ended it early; it was saved and can be resumed.
        exit_code: 0, or 128 + the signal, such as 143 SIGTERM, 130 Ctrl-C, 129 a closed terminal.
        scores: of the last evaluation.
        updates: how many steps this process made; 0 where the run was done before.
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
    """What a checkpoint holds besides tensors.

    Attributes:
        cursor: after the last batch in use. tokens, elapsed: read and spent, over all restarts.
        saved, evaluated: steps at which that was last done.
        since_best: evaluations since the last new best.
        window, lines: sums since the last metrics line, and how many lines there were.
        unaveraged: steps before the average of the weights began, as where a branch begins one.
        unmoved: how many steps were made, the gradient of all of which was exactly zero; None: of one it was
            not.
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
        """The state in a checkpoint; what another version wrote besides is left out."""
        known = {key: value for key, value in saved.items() if key in cls.__dataclass_fields__}
        if known.get("step", 0) > 0:
            # A checkpoint of an earlier version has no count of the first steps, which are over.
            known.setdefault("unmoved", None)
        return cls(**known)
