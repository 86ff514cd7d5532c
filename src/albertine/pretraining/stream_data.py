"""The batches of a run whose sequences go on from step to step, and the fixed ones that judge it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from albertine.corpus.loader import Loader
from albertine.corpus.reader import Corpus
from albertine.errors import CorpusError
from albertine.objectives.stream_batch import StreamBatch, StreamBuilder
from albertine.objectives.streams import forward_first
from albertine.pretraining.data import HELD_OUT_SEED, held_out_corpus
from albertine.pretraining.settings import ObjectiveChoice, PretrainingSettings
from albertine.training.step import MicroBatch

HELD_OUT_LANES = 8
"""Few, so that memory has long texts to show what it is worth on."""

Place = dict[str, Any]
Order = tuple[Place, int, int]
"""Of a step the place after it, its epoch, and the number of its segments in that."""


class StreamBatches:
    """The training batches of one process, from any point on; as `PretrainingBatches`, for streams.

    Iterating yields (cursor after the batch as plain data, micro-batches of this process), without end. Which
    lane is in which micro-batch of which process never changes within a run, so that its memory stays there.

    Args:
        cursor: where to begin, as handed out before; None for the start.
        rank, world: this process among all; the global batches do not depend on them.
        ponders: whether they are for a model that halts.
    """

    def __init__(
        self,
        corpus: Corpus,
        settings: PretrainingSettings,
        cursor: Place | None,
        rank: int = 0,
        world: int = 1,
        *,
        ponders: bool = False,
    ) -> None:
        training = settings.training
        self.ponders, self.penalised = ponders, settings.objective.jacobian is not None
        streams = settings.objective.streams(training.batch_size)
        self.builder = StreamBuilder(corpus, streams, settings.seed, corpus.tokenizer())
        self.cursor, self.workers = cursor, training.workers
        parts = dealt(streams.lanes, rank, world, streams.length, training.micro_batch_tokens)
        self.lanes = [forward_first(lanes, both=streams.both) for lanes in parts]

    def __iter__(self) -> Iterator[tuple[Place, list[MicroBatch]]]:
        if self.workers:  # before they are forked, so that they share what is planned
            self.builder.lanes((self.cursor or {}).get("epoch", 0))
        yield from Loader(self._build, _places(self.builder.segments, self.cursor), self.workers)

    def _build(self, order: Order) -> tuple[Place, list[MicroBatch]]:
        place, epoch, segment = order
        batches = [self.builder.build(epoch, segment, lanes) for lanes in self.lanes]
        return place, [replace(b, ponders=self.ponders, penalised=self.penalised) for b in batches]


def _places(segments: int, cursor: Place | None) -> Iterator[Order]:
    """The steps of a run without end, from a cursor on; of an epoch all segments one after the other."""
    epoch, segment = (cursor["epoch"], cursor["segment"]) if cursor else (0, 0)
    if segment > segments:
        raise CorpusError(
            f"the run stands at segment {segment} of epoch {epoch}, which has {segments}",
            remedy="The corpus or the objective changed since the run began; start a new run",
        )
    while True:
        if segment == segments:
            epoch, segment = epoch + 1, 0
        segment += 1
        yield {"epoch": epoch, "segment": segment}, epoch, segment - 1


def dealt(lanes: int, rank: int, world: int, length: int, micro_batch_tokens: int) -> list[list[int]]:
    """The lanes of each micro-batch of a process: neighbours together, because all are of one length."""
    mine = np.array_split(np.arange(lanes), world)[rank]
    most = max(1, micro_batch_tokens // length)
    count = -(-len(mine) // most)
    return [part.tolist() for part in np.array_split(mine, count)] if count else []


def held_out_streams(
    folder: Path,
    objective: ObjectiveChoice,
    *,
    sequences: int,
    length: int | None = None,
    rank: int = 0,
    world: int = 1,
) -> list[StreamBatch]:
    """Segments of held-out documents, those of a lane in their order; the same whenever they are asked for,
    in runs of every seed and of any number of processes.

    Args:
        sequences: how many, all lanes together; about that, and fewer if the held-out part is smaller.
        length: tokens of one of these; segments of another length, more or fewer of them, then have as much
            text. Default: the segments' own.
        rank, world: every process gets its share of the lanes, which may be none.

    Raises:
        CorpusError: the corpus was prepared without held-out documents, or with too few.
    """
    builder = _widest(held_out_corpus(folder), objective, folder)
    here = builder.settings
    mine = forward_first(np.array_split(np.arange(here.lanes), world)[rank].tolist(), both=here.both)
    count = _segments(builder, sequences, length or here.length)
    return [builder.build(0, segment, mine) for segment in range(count if mine else 0)]


def _segments(builder: StreamBuilder, sequences: int, length: int) -> int:
    """Segments of each lane with the text of `sequences` of `length` tokens: whole ones of these."""
    here = builder.settings
    wanted = max(1, min(sequences // here.lanes, builder.segments * here.length // length))
    return min(builder.segments, max(1, wanted * length // here.length))


def _widest(corpus: Corpus, objective: ObjectiveChoice, folder: Path) -> StreamBuilder:
    """Streams of `HELD_OUT_LANES` lanes, halved until the text has room for them.

    Raises:
        CorpusError: it has room for none.
    """
    least = 2 if objective.permutation.both_directions else 1
    names, count = corpus.tokenizer(), HELD_OUT_LANES
    while count >= least:
        try:
            return StreamBuilder(corpus, objective.streams(count), HELD_OUT_SEED, names)
        except CorpusError:
            count //= 2
    tokens = int(np.asarray(corpus.sentence_lengths, dtype=np.int64).sum())
    raise CorpusError(
        f"its held-out documents have {tokens} tokens, too few for segments of {objective.max_length}",
        where=folder,
        remedy="Prepare it again with a larger --held-out share, or use a shorter max_length",
    )
