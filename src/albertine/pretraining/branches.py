"""What a pretraining run may change when it begins with the checkpoint of another one."""

from __future__ import annotations

from albertine.corpus.reader import Corpus
from albertine.pretraining.data import builder_of
from albertine.pretraining.settings import PretrainingSettings
from albertine.training.job import Branching, Cursor

FIXED = ("corpus", "tokenizer", "model", "training.optimizer")
"""The place in the data is of this corpus, the weights of this model, the moments of this optimizer."""
STREAMS = ("objective", "seed", "training.batch_size")
"""Besides, where sequences go on from step to step: the memory is of this text."""


def branching(corpus: Corpus, settings: PretrainingSettings) -> Branching:
    """The rules of a branch; the samples of an epoch depend on the objective, which it may change, and on the
    stage, which may be another one from there on: then, or where they are fewer, the next epoch begins. Where
    sequences go on from step to step, their memory does too, and so the objective stays."""

    def fitting(cursor: Cursor | None) -> Cursor | None:
        if cursor is None:
            return None
        if settings.objective.streamed:
            return cursor
        if not settings.stages and "offset" in cursor and "stage" not in cursor:
            builder = builder_of(corpus, settings.objective, settings.seed)
            if cursor["offset"] <= builder.rows(cursor["epoch"]):
                return cursor
        return {"epoch": cursor["epoch"] + 1, "offset": 0}

    return Branching(FIXED + (STREAMS if settings.objective.streamed else ()), fitting)
