"""What a pretraining run may change when it begins with the checkpoint of another one."""

from __future__ import annotations

from albertine.corpus.reader import Corpus
from albertine.pretraining.data import builder_of
from albertine.pretraining.settings import PretrainingSettings
from albertine.training.job import Branching, Cursor

FIXED = ("corpus", "tokenizer", "model", "training.optimizer")
"""The place in the data is of this corpus, the weights of this model, the moments of this optimizer."""


def branching(corpus: Corpus, settings: PretrainingSettings) -> Branching:
    """The rules of a branch; the samples of an epoch depend on the objective, which it may change, and on the
    stage, which may be another one from there on: then, or where they are fewer, the next epoch begins."""

    def fitting(cursor: Cursor | None) -> Cursor | None:
        if cursor is None:
            return None
        if not settings.stages and "stage" not in cursor:
            builder = builder_of(corpus, settings.objective, settings.seed)
            if cursor["offset"] <= builder.rows(cursor["epoch"]):
                return cursor
        return {"epoch": cursor["epoch"] + 1, "offset": 0}

    return Branching(FIXED, fitting)
