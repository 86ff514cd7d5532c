"""The stages of a run, checks of settings against them, and the order of batches through all stages.

The order of samples is a keyed permutation per epoch, a function of (seed, epoch) for any number of
processes, so a run resumes exactly from a cursor. The stage is part of the cursor. A stage starts with a new
epoch, whose samples are cut and masked by its settings; so every draw has its own key (seed, purpose, epoch,
sample).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.core.randomness import permutation
from albertine.core.settings import unused_setting_error
from albertine.errors import CorpusError, SettingsError
from albertine.model.config import EncoderConfig
from albertine.model.presets import preset
from albertine.pretraining.settings import (
    Distillation,
    Masking,
    ObjectiveChoice,
    PretrainingSettings,
    Stage,
    TrainingChoice,
)


@dataclass(frozen=True)
class ResolvedStage:
    """A stage with the settings of the run filled in.

    Attributes:
        begin: share of the run. batch_size: sequences per update.
        depth: number of layers that are computed; None: all.
    """

    begin: float
    objective: ObjectiveChoice
    batch_size: int
    depth: int | None = None


def resolved_stages(settings: PretrainingSettings) -> tuple[ResolvedStage, ...]:
    """The stages of a run; a run without any is one stage."""
    if not settings.stages:
        return (ResolvedStage(0.0, settings.objective, settings.training.batch_size),)
    return tuple(_resolved(stage, settings) for stage in settings.stages)


def _resolved(stage: Stage, settings: PretrainingSettings) -> ResolvedStage:
    objective = stage.applied(settings.objective)
    tokens = settings.training.batch_size * settings.objective.max_length
    batch_size = stage.batch_size or max(1, round(tokens / objective.max_length))
    return ResolvedStage(stage.begin, objective, batch_size, stage.depth)


def stage_summaries(settings: PretrainingSettings) -> list[str]:
    """A line for each stage."""
    lines = []
    for stage in resolved_stages(settings):
        objective, masking = stage.objective, stage.objective.masking
        words = [f"max_length {objective.max_length}", f"batch_size {stage.batch_size}"]
        share, predicted = objective.causal_share, f"{objective.causal_predictions:.0%} of the next tokens"
        if share == 1:
            words += [f"causal, {predicted}"]
        else:
            kept = 1 - masking.masked - masking.random
            shares = f"{masking.masked:.0%} [MASK], {masking.random:.0%} random, {abs(kept):.0%} kept"
            words += [f"pairs {objective.pairs}"]
            words += [f"{objective.repeats:.0%} repeats"] if objective.repeats else []
            words += [f"mask {masking.probability:g} ({shares})"]
            words += [f"{share:.0%} of the samples causal, {predicted}"] if share else []
        depth = "" if stage.depth is None else f", depth {stage.depth}"
        lines.append(f"from {stage.begin:.0%}: {', '.join(words)}{depth}")
    return lines


def check_depths(settings: PretrainingSettings, depth: int) -> None:
    """
    Raises:
        SettingsError: a stage computes more layers than the encoder has.
    """
    for number, stage in enumerate(settings.stages, 1):
        if (stage.depth or 0) > depth:
            raise SettingsError(
                f"number {number} computes {stage.depth} layers, and the encoder has {depth}",
                where="stages",
                remedy="Leave its depth out to compute all",
            )


def untrained(settings: PretrainingSettings, config: EncoderConfig | None) -> list[str]:
    """Warnings, with remedies, of what the stages of a run leave untrained in the saved model; of a run
    without stages, that it is causal.

    Args:
        config: of an encoder with random weights; None for a run that starts from trained ones.
    """
    if not settings.stages:
        if settings.objective.causal_share < 1:
            return []
        return [
            "objective.causal_share is 1: the model, saved as a masked LM, attends to earlier tokens only; "
            "lower it, or set objective.kind=causal in its place"
        ]
    stages, objective = resolved_stages(settings), settings.objective
    reached = _reached_stages(settings)
    found = []
    if missed := [f"{i + 1} (from {one.begin:g})" for i, one in enumerate(stages) if i not in reached]:
        found.append(
            f"none of {settings.training.steps} steps is of number {', '.join(missed)}; begin it earlier, or "
            "raise training.steps"
        )
    last, name = stages[reached[-1]], f"the run ends in number {reached[-1] + 1}, which"
    if last.objective.causal_share == 1:
        found.append(
            f"{name} is causal: the model, saved as a masked LM, attends to earlier tokens only; "
            "end with a stage that is not causal, or leave stages out and set objective.kind=causal"
        )
    if config is not None:
        seen = [stages[i] for i in reached]
        if last.depth is not None and (config.solves or last.depth < config.num_hidden_layers):
            whole = "the fixed point" if config.solves else f"{config.num_hidden_layers} layers"
            found.append(
                f"{name} computes {last.depth} layers only, and the saved model {whole}; end with a "
                "stage without depth"
            )
        longest = max(stage.objective.max_length for stage in seen)
        if config.positions == "learned" and longest < objective.max_length:
            found.append(
                f"no sample has more than {longest} tokens, so later positions are not trained; end with "
                f"a stage without max_length, or set objective.max_length={longest}"
            )
        if objective.pairs != "none" and all(stage.objective.pairs == "none" for stage in seen):
            found.append(
                f"none has pairs, so the head for sentence pairs ({objective.pairs}) is not trained; "
                "end with a stage that has them, or set objective.pairs=none"
            )
    return [f"stages: {line}" for line in found]


def last_stage(settings: PretrainingSettings) -> int:
    """The index of the last stage that a run reaches."""
    return _reached_stages(settings)[-1]


def _reached_stages(settings: PretrainingSettings) -> list[int]:
    stages = resolved_stages(settings)
    return [i for i in range(len(stages)) if _reached(stages, i, settings.training.steps)]


def _reached(stages: Sequence[ResolvedStage], number: int, steps: int | None) -> bool:
    """Whether any step is in this stage; always for a run by the clock."""
    near = round(stages[number].begin * (steps or 0))
    near_by = range(max(0, near - 1), min(near + 2, steps or 0))
    return steps is None or any(stage_at(stages, step / steps) == number for step in near_by)


def check_processes(settings: PretrainingSettings, processes: int) -> None:
    """
    Raises:
        SettingsError: a batch has fewer sequences than there are processes.
    """
    for number, stage in enumerate(resolved_stages(settings), 1):
        if stage.batch_size < processes:
            name = f"batch_size of stage {number}" if settings.stages else "training.batch_size"
            raise SettingsError(
                f"{name} is {stage.batch_size}, fewer sequences than the {processes} processes",
                remedy=f"Raise {name} or start fewer processes",
            )


Row = tuple[int, int]
"""(epoch, sample of that epoch)"""


@dataclass(frozen=True, order=True)
class Cursor:
    """Position of a run: `offset` samples of `epoch` are used."""

    epoch: int = 0
    offset: int = 0


def epoch_order(rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The samples of an epoch in order, int64 (rows,)."""
    return permutation(rows, seed, "order", epoch)


def global_batches(
    rows_of_epoch: Callable[[int], int], batch_size: int, seed: int, cursor: Cursor | None = None
) -> Iterator[tuple[Cursor, list[Row]]]:
    """Endless global batches from `cursor` on.

    The last batch of an epoch is filled from the next epoch, so every batch has `batch_size` rows and every
    epoch has each of its rows exactly once.

    Args:
        rows_of_epoch: number of samples of an epoch.
        cursor: as yielded before; default: the start.

    Yields:
        The cursor after the batch, and the rows of the batch.

    Raises:
        CorpusError: an epoch without samples, or a cursor beyond its epoch.
    """
    if batch_size < 1:
        raise SettingsError(f"a batch needs at least one sample, not {batch_size}")
    here = cursor or Cursor()
    epoch, offset = here.epoch, here.offset
    order = _order(rows_of_epoch, seed, epoch)
    if not 0 <= offset <= len(order):
        raise CorpusError(
            f"the run stands at sample {offset} of epoch {epoch}, which has {len(order)}",
            remedy="The corpus or the objective changed since the run began; start a new run",
        )
    while True:
        rows: list[Row] = []
        while len(rows) < batch_size:
            if offset == len(order):
                epoch, offset = epoch + 1, 0
                order = _order(rows_of_epoch, seed, epoch)
            taken = order[offset : offset + batch_size - len(rows)].tolist()
            rows += [(epoch, row) for row in taken]
            offset += len(taken)
        yield Cursor(epoch, offset), rows


def _order(rows_of_epoch: Callable[[int], int], seed: int, epoch: int) -> NDArray[np.int64]:
    rows = rows_of_epoch(epoch)
    if rows < 1:
        raise CorpusError(
            "the corpus is too small for a single sample",
            remedy="Use more text, shorter sequences, or an objective without sentence pairs",
        )
    return epoch_order(rows, seed, epoch)


JsonCursor = dict[str, Any]
"""A cursor as JSON data: epoch, offset, and in a run with stages the stage."""

Order = tuple[JsonCursor, int, list[Row]]
"""Of a global batch: the cursor after it, its stage, and its rows."""


def stage_at(stages: Sequence[ResolvedStage], progress: float) -> int:
    """The index of the stage at this progress of the run."""
    return max(i for i, one in enumerate(stages) if i == 0 or one.begin <= progress)


def orders(
    stages: Sequence[ResolvedStage],
    rows_of: Callable[[int], Callable[[int], int]],
    progress: Callable[[int], float],
    seed: int,
    start: JsonCursor | None,
    *,
    named: bool,
) -> Iterator[Order]:
    """The global batches of a run through all its stages, without end.

    Args:
        stages: at least one.
        rows_of: from the index of a stage to the function from an epoch to its number of samples.
        progress: from the number of batches yielded so far to the share of the run that is done.
        start: the cursor of the batch before the first one; None for the start of the run.
        named: whether cursors have the key `stage`.
    """
    begin = dict(start or {})
    stage: int | None = begin.pop("stage", None)
    cursor = Cursor(**begin)
    batches: Iterator[tuple[Cursor, list[Row]]] | None = None
    count = 0
    while True:
        now = max(stage or 0, stage_at(stages, progress(count)))  # never back, whatever the progress
        if stage is not None and now != stage:
            cursor, batches = Cursor(cursor.epoch + 1), None
        if batches is None:
            batches = global_batches(rows_of(now), stages[now].batch_size, seed, cursor)
        cursor, rows = next(batches)
        stage, count = now, count + 1
        yield asdict(cursor) | ({"stage": stage} if named else {}), stage, rows


def check_unused_settings(settings: PretrainingSettings, config: EncoderConfig) -> None:
    """
    Args:
        config: of the encoder at the start of the run.

    Raises:
        SettingsError: a setting that differs from its default has no effect.
    """
    objective, training, model = settings.objective, settings.training, settings.model
    default = Distillation.model_construct(teacher=Path())
    distillation = objective.distillation or default
    parts = {  # as given, and by default
        "training": (training, TrainingChoice.model_construct()),
        "objective": (objective, ObjectiveChoice()),
        "objective.masking": (objective.masking, Masking()),
        "objective.distillation": (distillation, default),
        "model.change": (model.change, config if model.preset is None else preset(model.preset)),
    }
    causal = any(stage.objective.causal_share for stage in resolved_stages(settings))
    conditions = (  # part, name, whether it has an effect, with what it would
        ("training", "decay", training.schedule == "wsd", "training.schedule=wsd"),
        ("objective", "jacobian_frequency", objective.jacobian is not None, "objective.jacobian"),
        ("objective", "reference_defects", *_has_defects(settings)),
        ("objective", "causal_predictions", causal, "objective.causal_share"),
        ("objective.masking", "favor_shorter", _masks_ngrams(settings), "objective.masking.ngram=2 or more"),
        ("objective.distillation", "temperature", distillation.soft > 0, "objective.distillation.soft"),
        ("objective", "short_probability", not objective.streamed, "text that is cut into samples"),
        ("model.change", "rotary_base", config.positions == "rotary", "model.change.positions=rotary"),
        ("model.change", "halting_epsilon", config.halts, "model.change.halting"),
        ("model.change", "halting_limit", config.halts, "model.change.halting"),
        ("model.change", "tolerance", config.solves, "model.change.solver"),
    )
    for part, name, is_used, needs in conditions:
        given, usual = (getattr(values, name) for values in parts[part])
        if not is_used and given not in (None, usual):
            raise unused_setting_error(f"{part}.{name}", needs, usual)


def _has_defects(settings: PretrainingSettings) -> tuple[bool, str]:
    """Whether the objective has defects of the reference, and the setting that has. They concern a [SEP]
    within a sample, which pairs have, and streams between documents."""
    objective = settings.objective
    if objective.kind == "causal":
        return False, "another objective.kind"
    paired = any(stage.objective.pairs != "none" for stage in resolved_stages(settings))
    return objective.streamed or paired, "objective.pairs=sop or nsp"


def _masks_ngrams(settings: PretrainingSettings) -> bool:
    """Whether any stage masks runs of several words."""
    here = settings.objective.masking.ngram
    longest = (here if stage.ngram is None else stage.ngram for stage in settings.stages)
    return settings.objective.kind == "masked" and max(longest, default=here) > 1
