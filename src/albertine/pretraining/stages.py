"""Stages: what changes over a run, and the one order of batches that goes through all of them.

A stage is part of the cursor. Where one begins, a new epoch begins at its first sample, with samples cut and
masked as the stage says; so every draw is still named by (seed, purpose, epoch, sample), and none is made
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albertine.core.settings import unused_setting_error
from albertine.corpus.order import Cursor, Row, global_batches
from albertine.errors import SettingsError
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

CAUSAL_SHARE = 1 / 3


@dataclass(frozen=True)
class ResolvedStage:
    """A stage with all that is to be known of it.

    Attributes:
        begin: share of the run. objective: what is predicted. batch_size: sequences per update.
        depth: how many depths are computed; None: all.
        causal: share of the tokens that are predicted from what is before them; None: masked ones are.
    """

    begin: float
    objective: ObjectiveChoice
    batch_size: int
    depth: int | None = None
    causal: float | None = None


def resolved_stages(settings: PretrainingSettings) -> tuple[ResolvedStage, ...]:
    """The stages of a run; a run without any is one stage."""
    if not settings.stages:
        return (ResolvedStage(0.0, settings.objective, settings.training.batch_size),)
    return tuple(_resolved(stage, settings) for stage in settings.stages)


def _resolved(stage: Stage, settings: PretrainingSettings) -> ResolvedStage:
    objective = stage.applied(settings.objective)
    tokens = settings.training.batch_size * settings.objective.max_length
    batch_size = stage.batch_size or max(1, round(tokens / objective.max_length))
    causal = (stage.mask_probability or CAUSAL_SHARE) if stage.causal else None
    return ResolvedStage(stage.begin, objective, batch_size, stage.depth, causal)


def stage_summaries(settings: PretrainingSettings) -> list[str]:
    """What each stage is, a line each, for a person."""
    lines = []
    for stage in resolved_stages(settings):
        objective, masking = stage.objective, stage.objective.masking
        what = [f"max_length {objective.max_length}", f"batch_size {stage.batch_size}"]
        if stage.causal is not None:
            what += [f"causal, {stage.causal:.0%} of the next tokens"]
        else:
            kept = 1 - masking.masked - masking.random
            shares = f"{masking.masked:.0%} [MASK], {masking.random:.0%} random, {abs(kept):.0%} kept"
            what += [f"pairs {objective.pairs}"]
            what += [f"{objective.repeats:.0%} repeats"] if objective.repeats else []
            what += [f"mask {masking.probability:g} ({shares})"]
        depth = "" if stage.depth is None else f", depth {stage.depth}"
        lines.append(f"from {stage.begin:.0%}: {', '.join(what)}{depth}")
    return lines


def check_depths(settings: PretrainingSettings, depth: int) -> None:
    """Refuse a stage that computes more depths than the encoder has.

    Raises:
        SettingsError: it names the stage.
    """
    for number, stage in enumerate(settings.stages, 1):
        if (stage.depth or 0) > depth:
            raise SettingsError(
                f"number {number} computes {stage.depth} depths, and the encoder has {depth}",
                where="stages",
                remedy="Leave its depth out to compute all",
            )


def untrained(settings: PretrainingSettings, config: EncoderConfig | None) -> list[str]:
    """What a run through its stages does not train of the model that it saves, and what to do about it, a
    line each. A run without stages has none.

    Args:
        config: of an encoder that begins at random; None: of weights, which may have learned it before.
    """
    if not settings.stages:
        return []
    stages, objective = resolved_stages(settings), settings.objective
    reached = [i for i in range(len(stages)) if _reached(stages, i, settings.training.steps)]
    found = []
    if missed := [f"{i + 1} (from {one.begin:g})" for i, one in enumerate(stages) if i not in reached]:
        found.append(
            f"none of {settings.training.steps} steps is of number {', '.join(missed)}; begin it earlier, or "
            "raise training.steps"
        )
    last, name = stages[reached[-1]], f"the run ends in number {reached[-1] + 1}, which"
    if last.causal is not None:
        found.append(
            f"{name} is causal: what is saved as a masked LM has learned to see only what is before a token; "
            "end with a stage that is not causal, or leave stages out and set objective.kind=causal"
        )
    if config is not None:
        seen = [stages[i] for i in reached]
        if last.depth is not None and (config.solves or last.depth < config.num_hidden_layers):
            whole = "the fixed point" if config.solves else f"{config.num_hidden_layers} depths"
            found.append(
                f"{name} computes depth {last.depth} only, and the model that is saved {whole}; end with a "
                "stage without depth"
            )
        longest = max(stage.objective.max_length for stage in seen)
        if config.positions == "learned" and longest < objective.max_length:
            found.append(
                f"no sample has more than {longest} tokens, so later places are not trained; end with "
                f"a stage without max_length, or set objective.max_length={longest}"
            )
        if objective.pairs != "none" and all(stage.objective.pairs == "none" for stage in seen):
            found.append(
                f"none has pairs, so the head for sentence pairs ({objective.pairs}) is not trained; "
                "end with a stage that has them, or set objective.pairs=none"
            )
    return [f"stages: {line}" for line in found]


def _reached(stages: Sequence[ResolvedStage], number: int, steps: int | None) -> bool:
    """Whether a step is of this stage; by the clock every one has its time."""
    near = round(stages[number].begin * (steps or 0))
    near_by = range(max(0, near - 1), min(near + 2, steps or 0))
    return steps is None or any(stage_at(stages, step / steps) == number for step in near_by)


def check_processes(settings: PretrainingSettings, processes: int) -> None:
    """Refuse a batch of which a process would get nothing.

    Raises:
        SettingsError: it names the batch.
    """
    for number, stage in enumerate(resolved_stages(settings), 1):
        if stage.batch_size < processes:
            name = f"batch_size of stage {number}" if settings.stages else "training.batch_size"
            raise SettingsError(
                f"{name} is {stage.batch_size}, fewer sequences than the {processes} processes",
                remedy=f"Raise {name} or start fewer processes",
            )


Place = dict[str, Any]
"""A cursor as plain data: epoch, offset, and of a run with stages the stage."""

Order = tuple[Place, int, list[Row]]
"""Of a global batch the place after it, the number of its stage, and its rows."""


def stage_at(stages: Sequence[ResolvedStage], done: float) -> int:
    """The number of the stage that a run is in, of which a share is done."""
    return max(i for i, one in enumerate(stages) if i == 0 or one.begin <= done)


def orders(
    stages: Sequence[ResolvedStage],
    rows_of: Callable[[int], Callable[[int], int]],
    progress: Callable[[int], float],
    seed: int,
    place: Place | None,
    *,
    named: bool,
) -> Iterator[Order]:
    """The global batches of a run, from any point on, through all its stages, without end.

    Args:
        stages: at least one.
        rows_of: from the number of a stage to the function that says how many samples an epoch has in it.
        progress: from the number of batches that were yielded to the share of the run that is done.
        place: where to begin, as yielded before; None for the start.
        named: whether a place names its stage.
    """
    begin = dict(place or {})
    stage: int | None = begin.pop("stage", None)
    cursor = Cursor(**begin)
    batches: Iterator[tuple[Cursor, list[Row]]] | None = None
    count = 0
    while True:
        now = max(stage or 0, stage_at(stages, progress(count)))  # never back, whatever a clock says
        if stage is not None and now != stage:
            cursor, batches = Cursor(cursor.epoch + 1), None
        if batches is None:
            batches = global_batches(rows_of(now), stages[now].batch_size, seed, cursor)
        cursor, rows = next(batches)
        stage, count = now, count + 1
        yield asdict(cursor) | ({"stage": stage} if named else {}), stage, rows


def check_unused_settings(settings: PretrainingSettings, config: EncoderConfig) -> None:
    """Refuse what was changed for nothing. What a recipe says as it is anyway may stand.

    Args:
        config: of the encoder that the run begins with.

    Raises:
        SettingsError: there is such a setting.
    """
    objective, training, model = settings.objective, settings.training, settings.model
    nobody = Distillation.model_construct(teacher=Path())
    taught = objective.distillation or nobody
    parts = {  # as they are here, and where nobody says
        "training": (training, TrainingChoice.model_construct()),
        "objective": (objective, ObjectiveChoice()),
        "objective.masking": (objective.masking, Masking()),
        "objective.distillation": (taught, nobody),
        "model.change": (model.change, config if model.preset is None else preset(model.preset)),
    }
    read_by = (
        ("training", "decay", training.schedule == "wsd", "training.schedule=wsd"),
        ("objective", "jacobian_frequency", objective.jacobian is not None, "objective.jacobian"),
        ("objective", "reference_defects", *_defects(settings)),
        ("objective.masking", "favor_shorter", _runs(settings), "objective.masking.ngram=2 or more"),
        ("objective.distillation", "temperature", taught.soft > 0, "objective.distillation.soft"),
        ("objective", "short_probability", not objective.streamed, "text that is cut into samples"),
        ("model.change", "rotary_base", config.positions == "rotary", "model.change.positions=rotary"),
        ("model.change", "halting_epsilon", config.halts, "model.change.halting"),
        ("model.change", "halting_limit", config.halts, "model.change.halting"),
        ("model.change", "tolerance", config.solves, "model.change.solver"),
    )
    for part, name, is_read, reader in read_by:
        given, usual = (getattr(where, name) for where in parts[part])
        if not is_read and given not in (None, usual):
            raise unused_setting_error(f"{part}.{name}", reader, usual)


def _defects(settings: PretrainingSettings) -> tuple[bool, str]:
    """Whether there is anything that the reference does wrong, and what would have it. Without pairs no
    [SEP] stands inside a sample; in what goes on from step to step one stands between documents."""
    objective = settings.objective
    if objective.kind == "causal":
        return False, "another objective.kind"
    paired = any(stage.objective.pairs != "none" for stage in resolved_stages(settings))
    return objective.streamed or paired, "objective.pairs=sop or nsp"


def _runs(settings: PretrainingSettings) -> bool:
    """Whether several words in a row are hidden, in a stage at least."""
    here = settings.objective.masking.ngram
    longest = (here if stage.ngram is None else stage.ngram for stage in settings.stages)
    return settings.objective.kind == "masked" and max(longest, default=here) > 1
