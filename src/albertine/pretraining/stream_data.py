"""Training batches of a streamed objective, and its fixed held-out batches."""

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
"""Few, so that every stream is long and the memory has an effect."""

JsonCursor = dict[str, Any]
"""A cursor as JSON data: epoch and segment."""

Order = tuple[JsonCursor, int, int]
"""Of a step: the cursor after it, its epoch, and the index of its segments in the epoch."""


class StreamBatches:
    """The training batches of one process; as `PretrainingBatches`, for streams.

    Iterating yields (cursor after the batch as JSON data, micro-batches of this process), without end. A
    stream stays in the same micro-batch of the same process for the whole run, where its memory is.

    Args:
        cursor: of the batch before the first one; None for the start.
        rank, world: of this process; the global batches do not depend on them.
        ponders: whether the model has adaptive halting.
    """

    def __init__(
        self,
        corpus: Corpus,
        settings: PretrainingSettings,
        cursor: JsonCursor | None,
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
        parts = micro_batch_lanes(streams.lanes, rank, world, streams.length, training.micro_batch_tokens)
        self.lanes = [forward_first(lanes, both=streams.both) for lanes in parts]

    def __iter__(self) -> Iterator[tuple[JsonCursor, list[MicroBatch]]]:
        if self.workers:  # before the fork, so that the processes share the plan
            self.builder.lanes((self.cursor or {}).get("epoch", 0))
        yield from Loader(self._build, _orders(self.builder.segments, self.cursor), self.workers)

    def _build(self, order: Order) -> tuple[JsonCursor, list[MicroBatch]]:
        place, epoch, segment = order
        batches = [self.builder.build(epoch, segment, lanes) for lanes in self.lanes]
        return place, [replace(b, ponders=self.ponders, penalised=self.penalised) for b in batches]


def _orders(segments: int, cursor: JsonCursor | None) -> Iterator[Order]:
    """The steps of a run without end, after a cursor; the segments of an epoch in order."""
    epoch, segment = (cursor["epoch"], cursor["segment"]) if cursor else (0, 0)
    if segment > segments:
        raise CorpusError(
            f"the run is at segment {segment} of epoch {epoch}, which has {segments}",
            remedy="The corpus or the objective changed since the run began; start a new run",
        )
    while True:
        if segment == segments:
            epoch, segment = epoch + 1, 0
        segment += 1
        yield {"epoch": epoch, "segment": segment}, epoch, segment - 1


def micro_batch_lanes(
    lanes: int, rank: int, world: int, length: int, micro_batch_tokens: int
) -> list[list[int]]:
    """The streams of each micro-batch of a process: consecutive ones, as all segments have one length."""
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
    """Segments of held-out documents, consecutive in every stream; the same in every call, for every seed and
    number of processes.

    Args:
        sequences: their approximate number over all streams; fewer if the held-out part is smaller.
        length: tokens of a sequence in that number; segments of another length then have as much text in
            all. Default: their own length.
        rank, world: every process gets its share of the streams, which may be empty.

    Raises:
        CorpusError: the corpus has no held-out documents, or too few.
    """
    builder = _widest(held_out_corpus(folder), objective, folder)
    here = builder.settings
    mine = forward_first(np.array_split(np.arange(here.lanes), world)[rank].tolist(), both=here.both)
    count = _segments(builder, sequences, length or here.length)
    return [builder.build(0, segment, mine) for segment in range(count if mine else 0)]


def _segments(builder: StreamBuilder, sequences: int, length: int) -> int:
    """Segments of each stream with the text of `sequences` of `length` tokens."""
    here = builder.settings
    wanted = max(1, min(sequences // here.lanes, builder.segments * here.length // length))
    return min(builder.segments, max(1, wanted * length // here.length))


def _widest(corpus: Corpus, objective: ObjectiveChoice, folder: Path) -> StreamBuilder:
    """`HELD_OUT_LANES` streams, or half as many, and so on, as far as the text is long enough.

    Raises:
        CorpusError: it is too short for one.
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
