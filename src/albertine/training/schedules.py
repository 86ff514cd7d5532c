"""Learning-rate schedules as functions of progress: the share of the run, in steps or time, before the
step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from albertine.errors import SettingsError

Schedule = Callable[[float], float]
"""From progress in [0, 1] to the share of the peak learning rate."""

ScheduleKind = Literal["linear", "wsd", "constant"]


def linear(warmup: float) -> Schedule:
    """Google's (google-research/albert, `optimization.py`): linear decay from 1 at the start of the run to 0
    at its end, replaced by linear warm-up at first.

    After the peak at the end of the warm-up the rate drops to the line, by a small amount. The first step
    has rate 0, as in the reference.
    """
    return lambda progress: _warm(progress, warmup, max(0.0, 1 - progress))


def wsd(warmup: float, decay: float) -> Schedule:
    """Warm-up, stable, decay: the peak up to the last `decay` of the run, then linear decay to 0."""
    if warmup + decay > 1:
        raise SettingsError(
            f"warm-up ({warmup:g}) and decay ({decay:g}) together are longer than the run",
            remedy="Shorten one of them",
        )
    return lambda progress: _warm(
        progress, warmup, min(1.0, max(0.0, 1 - progress) / decay) if decay else 1.0
    )


def constant(warmup: float) -> Schedule:
    """Warm-up, then the peak rate."""
    return lambda progress: _warm(progress, warmup, 1.0)


def make_schedule(kind: ScheduleKind, *, warmup: float, decay: float = 0.2) -> Schedule:
    """The schedule of that name; `warmup` and `decay` are shares of the run.

    Raises:
        SettingsError: an unknown name, or shares that do not fit into a run.
    """
    if not (0 <= warmup <= 1 and 0 <= decay <= 1):
        raise SettingsError(
            f"warm-up ({warmup:g}) and decay ({decay:g}) are shares of the run, between 0 and 1"
        )
    if kind == "linear":
        return linear(warmup)
    if kind == "wsd":
        return wsd(warmup, decay)
    if kind == "constant":
        return constant(warmup)
    raise SettingsError(f"unknown schedule `{kind}`", remedy="Use linear, wsd or constant")


PUBLISHED = {"lamb": (0.00176, 4096), "adamw": (1e-4, 256)}
"""Published peak learning rates and the batches they belong to: ALBERT, section 4.1; BERT and RoBERTa."""
MUON_RATE = 0.02  # Keller Jordan's, for any batch size: the update does not depend on the gradient's norm


def published_rate(optimizer: str, batch_size: int) -> float:
    """The published peak rate of `lamb` or `adamw`, scaled to the batch size, or of `muon`."""
    return MUON_RATE if optimizer == "muon" else scale_learning_rate(*PUBLISHED[optimizer], batch_size)


def scale_learning_rate(base: float, base_batch: int, batch: int) -> float:
    """The rate for another batch size by LAMB's square-root rule, such as 0.00176 at 4096 and 0.00044 at
    256."""
    return float(base * (batch / base_batch) ** 0.5)


def _warm(progress: float, warmup: float, after: float) -> float:
    return progress / warmup if progress < warmup else after
