"""From a corpus folder to the stream of batches of a run, and to the fixed batches that judge it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from albertine.corpus.loader import Loader
from albertine.corpus.order import Cursor, steps
from albertine.corpus.reader import Corpus
from albertine.errors import CorpusError
from albertine.objectives.batch import BatchBuilder, PretrainingBatch, Row
from albertine.objectives.masking import MaskSettings
from albertine.objectives.pairs import PairSettings
from albertine.pretraining.settings import ObjectiveChoice, PretrainingSettings
from albertine.randomness import permutation
from albertine.training.step import MicroBatch

HELD_OUT_TOKENS = 16384
HELD_OUT_SEED = 1
"""Names all draws of held-out batches, whatever the seed of a run: runs that differ in their seed are judged
on the same pairs, cuts and masks, so the spread of their scores is that of the models alone."""


def builder_of(corpus: Corpus, objective: ObjectiveChoice, seed: int) -> BatchBuilder:
    """The pure function from sample numbers to batches that `objective` describes."""
    pairs = PairSettings(
        kind=objective.pairs,
        max_length=objective.max_length,
        short_probability=objective.short_probability,
        reference_defects=objective.reference_defects,
    )
    masks = MaskSettings(**objective.masking.model_dump(), reference_defects=objective.reference_defects)
    return BatchBuilder(corpus, pairs, masks, seed, corpus.tokenizer())


class Batches:
    """The training batches of one process, from any point on.

    Iterating yields (cursor after the batch as plain data, micro-batches of this process), without end.

    Args:
        cursor: where to begin, as handed out before; None for the start.
        rank, world: this process among all; the global batches do not depend on them.
    """

    def __init__(
        self,
        corpus: Corpus,
        settings: PretrainingSettings,
        cursor: dict[str, Any] | None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.settings, self.rank, self.world = settings, rank, world
        self.cursor = Cursor(**cursor) if cursor else Cursor(0, 0)
        self.builder = builder_of(corpus, settings.objective, settings.seed)

    def __iter__(self) -> Iterator[tuple[dict[str, Any], list[MicroBatch]]]:
        training = self.settings.training
        orders = steps(self.builder.rows, training.batch_size, self.settings.seed, self.cursor)
        yield from Loader(self._build, orders, training.workers)

    def _build(self, order: tuple[Cursor, list[Row]]) -> tuple[dict[str, Any], list[MicroBatch]]:
        cursor, rows = order
        batches = self.builder.build(
            rows, self.rank, self.world, micro_batch_tokens=self.settings.training.micro_batch_tokens
        )
        return asdict(cursor), list(batches)


def held_out_batches(
    folder: Path, objective: ObjectiveChoice, *, sequences: int, rank: int = 0, world: int = 1
) -> list[PretrainingBatch]:
    """Batches of held-out documents, the same pairs under the same masks whenever they are asked for, in runs
    of every seed.

    Args:
        sequences: how many, fewer if the held-out part is smaller.
        rank, world: every process gets its share, which may be empty.

    Raises:
        CorpusError: the corpus was prepared without held-out documents.
    """
    corpus = Corpus(folder, split="heldout")
    if not corpus.num_documents:
        raise CorpusError(
            "has no held-out documents",
            where=folder,
            remedy="Prepare it again with a larger --held-out share",
        )
    builder = builder_of(corpus, objective, HELD_OUT_SEED)
    chosen = np.sort(permutation(builder.rows(0), HELD_OUT_SEED, "held-out")[:sequences])
    rows = [(0, int(i)) for i in chosen]
    parts = [rows[i : i + 128] for i in range(0, len(rows), 128)]
    return [
        batch
        for part in parts[rank::world]
        for batch in builder.build(part, micro_batch_tokens=HELD_OUT_TOKENS)
    ]
