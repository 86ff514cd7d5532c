"""Training batches of a run, and its fixed held-out batches, from a corpus folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.core.randomness import permutation
from albertine.corpus.loader import Loader
from albertine.corpus.reader import Corpus
from albertine.errors import CorpusError
from albertine.objectives.batch import BatchBuilder, PretrainingBatch
from albertine.objectives.pairs import PairSettings
from albertine.objectives.unigram_baseline import count_tokens
from albertine.pretraining.settings import ObjectiveChoice, PretrainingSettings
from albertine.pretraining.stages import Order, orders, resolved_stages, stage_at
from albertine.training.job import Branching, Clock, Cursor
from albertine.training.step import MicroBatch

HELD_OUT_TOKENS = 16384
HELD_OUT_SEED = 1
"""Key of all draws of held-out batches, independent of the seed of a run: runs with different seeds are
evaluated on the same pairs, cuts and masks."""


def builder_of(
    corpus: Corpus, objective: ObjectiveChoice, seed: int, *, depth: int | None = None
) -> BatchBuilder:
    """The pure function from sample numbers to batches of an objective.

    Args:
        depth: as in `BatchBuilder`.
    """
    pairs = PairSettings(
        kind=objective.pairs,
        max_length=objective.max_length,
        short_probability=objective.short_probability,
        reference_defects=objective.reference_defects,
        repeats=objective.repeats,
    )
    return BatchBuilder(
        corpus,
        pairs,
        objective.masks,
        seed,
        corpus.tokenizer(),
        depth=depth,
        causal_share=objective.causal_share,
        causal_predictions=objective.causal_predictions,
    )


def predicted_counts(corpus: Corpus, objective: ObjectiveChoice, vocab_size: int) -> NDArray[np.int64]:
    """How often each token is a target, int64 (V,): its occurrences in the text, and for a causal objective
    also the [SEP] after every document."""
    counts = count_tokens(corpus, vocab_size)
    if objective.kind == "causal":
        counts[corpus.tokenizer().sep_id] += corpus.num_documents
    return counts


class PretrainingBatches:
    """The training batches of one process.

    Iterating yields (cursor after the batch as JSON data, micro-batches of this process), without end.

    Args:
        cursor: of the batch before the first one; None for the start.
        rank, world: of this process; the global batches do not depend on them.
        clock: the progress of the run, which determines the stage.
        ponders: whether the model has adaptive halting.
    """

    def __init__(
        self,
        corpus: Corpus,
        settings: PretrainingSettings,
        cursor: dict[str, Any] | None,
        rank: int = 0,
        world: int = 1,
        clock: Clock | None = None,
        *,
        ponders: bool = False,
    ) -> None:
        self.ponders = ponders
        self.corpus, self.settings, self.rank, self.world = corpus, settings, rank, world
        self.cursor, self.clock = cursor, clock or Clock()
        self.stages, self.stage = resolved_stages(settings), -1
        self._use((cursor or {}).get("stage", 0))

    def _use(self, stage: int) -> BatchBuilder:
        """The builder of a stage; only the last one is kept, as a run never returns to a stage."""
        if self.stage != stage:
            here = self.stages[stage]
            self.builder = builder_of(self.corpus, here.objective, self.settings.seed, depth=here.depth)
            self.stage = stage
        return self.builder

    def __iter__(self) -> Iterator[tuple[dict[str, Any], list[MicroBatch]]]:
        begin, steps = self.clock.step, self.settings.training.steps

        def progress(count: int) -> float:
            # Counted in steps, the stage of a batch does not depend on how far ahead it is prepared.
            return self.clock.progress if steps is None else (begin + count) / steps

        def rows_of(stage: int) -> Callable[[int], int]:
            return self._use(stage).rows

        if self.settings.training.workers:  # before they are forked, so that they share what is planned
            self.builder.ready((self.cursor or {}).get("epoch", 0))
        found = orders(
            self.stages, rows_of, progress, self.settings.seed, self.cursor, named=bool(self.settings.stages)
        )
        yield from Loader(self._build, found, self.settings.training.workers)

    def _build(self, order: Order) -> tuple[dict[str, Any], list[MicroBatch]]:
        place, stage, rows = order
        batches = self._use(stage).build(
            rows, self.rank, self.world, micro_batch_tokens=self.settings.training.micro_batch_tokens
        )
        penalised = self.settings.objective.jacobian is not None and self.stages[stage].depth is None
        distillation = self.settings.objective.distillation
        names = () if distillation is None else distillation.loss_weights.names
        own: dict[str, Any] = {"ponders": self.ponders, "penalised": penalised, "distillation": names}
        if (elastic := self.settings.objective.elastic) is not None:
            own["loops"] = elastic.loops(self.settings.seed, place["epoch"], place["offset"])
            own["teacher_loops"] = elastic.most if elastic.teacher else None
        return place, [replace(batch, **own) for batch in batches]


def held_out_batches(
    folder: Path,
    objective: ObjectiveChoice,
    *,
    sequences: int,
    rank: int = 0,
    world: int = 1,
    causal: bool = False,
) -> list[PretrainingBatch]:
    """Batches of held-out documents, with the same pairs and masks in every call and for every seed of a run.

    Args:
        sequences: their number, or fewer if the held-out part is smaller.
        rank, world: every process gets its share, which may be empty.
        causal: predict next tokens, as part "causal": of the same samples, or where these are pairs of other
            samples of the same documents.

    Raises:
        CorpusError: the corpus was prepared without held-out documents, or with one where pairs need two.
    """
    corpus = held_out_corpus(folder)
    # Without excerpts, whose tokens can be copied from the first segment.
    changed: dict[str, Any] = {"repeats": 0.0, "causal_share": float(causal)}
    changed |= {"pairs": "none"} if causal else {}
    builder = builder_of(corpus, objective.model_copy(update=changed), HELD_OUT_SEED)
    if builder.pairs.crosses and corpus.num_documents < 2:
        raise CorpusError(
            "has one held-out document, and pairs across documents need two",
            where=folder,
            remedy="Prepare it again with a larger --held-out share",
        )
    chosen = np.sort(permutation(builder.rows(0), HELD_OUT_SEED, "held-out")[:sequences])
    rows = [(0, int(i)) for i in chosen]
    parts = [rows[i : i + 128] for i in range(0, len(rows), 128)]
    found = [
        batch
        for part in parts[rank::world]
        for batch in builder.build(part, micro_batch_tokens=HELD_OUT_TOKENS)
    ]
    return [replace(batch, part="causal") for batch in found] if causal else found


def held_out_corpus(folder: Path) -> Corpus:
    """The held-out documents of a corpus.

    Raises:
        CorpusError: it was prepared without them.
    """
    corpus = Corpus(folder, split="heldout")
    if not corpus.num_documents:
        raise CorpusError(
            "has no held-out documents",
            where=folder,
            remedy="Prepare it again with a larger --held-out share",
        )
    return corpus


FIXED = ("corpus", "tokenizer", "model", "training.optimizer")
"""Fingerprint keys that a branch cannot change: those of the cursor, the weights and the optimizer state."""
FIXED_STREAMED = ("objective", "seed", "training.batch_size")
"""Further ones of a streamed objective, whose memory depends on them."""


def branching(corpus: Corpus, settings: PretrainingSettings) -> Branching:
    """The rules of a branch. The samples of an epoch depend on objective and stage; if these change, or the
    epoch has fewer samples than were used, the branch starts with the next epoch, as a new stage does.
    Streamed text and its memory go on."""

    def next_cursor(cursor: Cursor | None, before: Mapping[str, Any], progress: float) -> Cursor | None:
        if cursor is None or settings.objective.streamed:
            return cursor
        stages = resolved_stages(settings)
        now = stage_at(stages, progress)
        if "offset" in cursor and _same_stage(cursor, before, settings, now):
            builder = builder_of(corpus, stages[now].objective, settings.seed)
            if cursor["offset"] <= builder.rows(cursor["epoch"]):
                return cursor
        return {"epoch": cursor["epoch"] + 1, "offset": 0}

    return Branching(FIXED + (FIXED_STREAMED if settings.objective.streamed else ()), next_cursor)


def _same_stage(cursor: Cursor, before: Mapping[str, Any], settings: PretrainingSettings, now: int) -> bool:
    """Whether the current stage is that of the cursor, with the same settings but for its begin."""
    if "stage" not in cursor or not settings.stages:
        return "stage" not in cursor and not settings.stages
    if cursor["stage"] != now:
        return False
    stage = settings.stages[now].model_dump(mode="json")
    return bool(before["stages"][now] | {"begin": 0} == stage | {"begin": 0})
