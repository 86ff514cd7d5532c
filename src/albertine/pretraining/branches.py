"""What a pretraining run may change when it begins with the checkpoint of another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from albertine.corpus.reader import Corpus
from albertine.pretraining.data import builder_of
from albertine.pretraining.settings import PretrainingSettings
from albertine.pretraining.stages import due, resolved
from albertine.training.job import Branching, Cursor

FIXED = ("corpus", "tokenizer", "model", "training.optimizer")
"""The place in the data is of this corpus, the weights of this model, the moments of this optimizer."""
STREAMS = ("objective", "seed", "training.batch_size")
"""Besides, where sequences go on from step to step: the memory is of this text."""


def branching(corpus: Corpus, settings: PretrainingSettings) -> Branching:
    """The rules of a branch; the samples of an epoch depend on the objective, which it may change, and on the
    stage, which may be another one from there on: then, or where they are fewer, the next epoch begins, as it
    does where a stage ends. Where sequences go on from step to step, their memory does too, and so the
    objective stays."""

    def fitting(cursor: Cursor | None, before: Mapping[str, Any], progress: float) -> Cursor | None:
        if cursor is None or settings.objective.streamed:
            return cursor
        stages = resolved(settings)
        now = due(stages, progress)
        if "offset" in cursor and _same_stage(cursor, before, settings, now):
            builder = builder_of(corpus, stages[now].objective, settings.seed)
            if cursor["offset"] <= builder.rows(cursor["epoch"]):
                return cursor
        return {"epoch": cursor["epoch"] + 1, "offset": 0}

    return Branching(FIXED + (STREAMS if settings.objective.streamed else ()), fitting)


def _same_stage(cursor: Cursor, before: Mapping[str, Any], settings: PretrainingSettings, now: int) -> bool:
    """Whether the stage that is due is that of the cursor, and says of samples what it said."""
    if "stage" not in cursor or not settings.stages:
        return "stage" not in cursor and not settings.stages
    if cursor["stage"] != now:
        return False
    told = settings.stages[now].model_dump(mode="json")
    return bool(before["stages"][now] | {"begin": 0} == told | {"begin": 0})
