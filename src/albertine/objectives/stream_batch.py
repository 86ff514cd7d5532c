"""Batches of consecutive segments of contiguous streams: causal, masked and permutation LM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from albertine.core.batch import Packed
from albertine.core.randomness import generator, uniforms
from albertine.corpus.reader import SpanReader
from albertine.errors import CorpusError
from albertine.objectives.batch import PretrainingBatch, SpecialTokens, Text, Vocabulary
from albertine.objectives.factorisation import Bools, Ints, factorisation_order
from albertine.objectives.masking import mask_batch
from albertine.objectives.prediction_spans import prediction_spans
from albertine.objectives.stream_settings import StreamSettings
from albertine.objectives.streams import StreamChunk, StreamLayout
from albertine.objectives.xlnet_segments import SPECIALS, draw_segment_pair


@dataclass(frozen=True)
class StreamBatch(PretrainingBatch):
    """One micro-batch of segments.

    Attributes:
        lanes: the stream of every sequence, among those of all processes.
        advance: number of first tokens of each segment that the memory takes.
        when, until: attention mask of a permutation LM, int64 (T,); see `FactorisationOrder`.
        backward: for each sequence whether its text is reversed; None: none is.
    """

    lanes: tuple[int, ...] = ()
    advance: int = 0
    when: Tensor | None = None
    until: Tensor | None = None
    backward: tuple[bool, ...] | None = None

    def to(self, device: torch.device | str) -> StreamBatch:
        moved = super().to(device)
        assert isinstance(moved, StreamBatch)
        when, until = (
            None if tensor is None else tensor.to(device, non_blocking=True)
            for tensor in (self.when, self.until)
        )
        return replace(moved, when=when, until=until)


class _Segments(NamedTuple):
    """Segments (S, L) and their segment ids; `functional` are [SEP] and [CLS], never predicted."""

    ids: Ints
    starts: Bools
    functional: Bools
    types: Ints


class StreamBuilder:
    """Builds the batches of streams: a pure function of corpus, settings, seed and arguments."""

    def __init__(
        self, corpus: Text, settings: StreamSettings, seed: int, vocabulary: Vocabulary | None = None
    ) -> None:
        """
        Args:
            vocabulary: default the corpus' own tokenizer.

        Raises:
            CorpusError: the corpus is too short for a step.
        """
        self.corpus, self.settings, self.seed = corpus, settings, seed
        names = corpus.tokenizer() if vocabulary is None else vocabulary
        self.specials = SpecialTokens(names.cls_id, names.sep_id, names.mask_id, names.vocab_size)
        tokens = int(np.asarray(corpus.sentence_lengths, dtype=np.int64).sum())
        documents = len(corpus.document_offsets) - 1
        self.segments = settings.segments(tokens + documents)
        if not tokens or self.segments < 1:
            raise CorpusError(
                f"has {tokens} tokens, too few for {settings.lanes} streams of segments of {settings.length}",
                remedy="Use more text, a smaller training.batch_size or a shorter objective.max_length",
            )
        self._reader: SpanReader | None = None
        self._lanes: tuple[int, StreamLayout] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        # A spawned loader process gets the arguments, not the tokens.
        return StreamBuilder, (self.corpus, self.settings, self.seed, self.specials)

    def lanes(self, epoch: int) -> StreamLayout:
        """The streams of an epoch; those of the last requested epoch are cached."""
        if self._lanes is None or self._lanes[0] != epoch:
            self._reader = self._reader or SpanReader(self.corpus)
            self._lanes = (
                epoch,
                StreamLayout(
                    self.corpus,
                    self._reader,
                    self.settings.lanes,
                    both=self.settings.both,
                    seed=self.seed,
                    epoch=epoch,
                    sep_id=self.specials.sep_id,
                ),
            )
        return self._lanes[1]

    def build(self, epoch: int, segment: int, lanes: Sequence[int]) -> StreamBatch:
        """Segment number `segment` of some streams, as one micro-batch."""
        streams, here = self.lanes(epoch), self.settings
        at = segment * here.advance
        samples = [segment * here.lanes + lane for lane in lanes]
        if here.reuse:
            parts = [self._with_pieces(streams, lane, at, (epoch, segment)) for lane in lanes]
        else:
            parts = [_plain(streams.read(lane, at, here.length)) for lane in lanes]
        laid = _stacked(parts)
        batch = self._batch(laid, lanes, [(epoch, sample) for sample in samples])
        if here.kind == "causal":
            return self._causal(batch, laid, streams, at)
        if here.kind == "masked":
            return self._masked(batch, laid, epoch, samples)
        return self._permuted(batch, laid, epoch, segment)

    def _with_pieces(self, streams: StreamLayout, lane: int, at: int, key: tuple[int, int]) -> _Segments:
        """[reused][A][SEP][B][SEP][CLS] of one stream, (1, L)."""
        here, (epoch, segment) = self.settings, key
        draws = generator(self.seed, "pieces", epoch, segment, lane).random(3)
        room = here.length - here.reuse - SPECIALS
        pieces = draw_segment_pair(streams.sentences(lane), at + here.reuse, room, tuple(draws.tolist()))
        assert pieces is not None, "an epoch has no more steps than there are pieces for"
        reused = streams.read(lane, at, here.reuse)
        a = streams.read(lane, pieces.a_start, pieces.a_length)
        b = streams.read(lane, pieces.b_start, pieces.b_length)
        sep, cls = (_special(i) for i in (self.specials.sep_id, self.specials.cls_id))
        ids, starts, functional = (np.concatenate(x) for x in zip(reused, a, sep, b, sep, cls, strict=True))
        sizes = [here.reuse + pieces.a_length + 1, pieces.b_length + 1, 1]
        return _Segments(ids[None], starts[None], functional[None], np.repeat(np.arange(3), sizes)[None])

    def _batch(self, laid: _Segments, lanes: Sequence[int], samples: list[tuple[int, int]]) -> StreamBatch:
        """The segments without predictions."""
        count, length = laid.ids.shape
        offsets = np.arange(count + 1, dtype=np.int32) * length
        packed = Packed(
            torch.from_numpy(laid.ids.reshape(-1)),
            torch.from_numpy(laid.types.reshape(-1)),
            torch.arange(length).repeat(count),
            torch.from_numpy(offsets),
            (length,) * count,
        )
        nothing = torch.zeros(0, dtype=torch.int64)
        streams, mask_id = torch.tensor(samples).view(-1, 2), self.specials.mask_id
        batch = StreamBatch(packed, nothing, nothing, None, 0, streams, mask_id=mask_id)
        return replace(batch, lanes=tuple(lanes), advance=self.settings.advance)

    def _causal(self, batch: StreamBatch, laid: _Segments, streams: StreamLayout, at: int) -> StreamBatch:
        """Every row predicts the next token, the last one the first of the segment after this."""
        after = [streams.read(lane, at + self.settings.length, 1).ids for lane in batch.lanes]
        labels = np.concatenate([laid.ids[:, 1:], np.stack(after)], axis=1).reshape(-1)
        return replace(
            batch,
            packed=replace(batch.packed, prefix=(1,) * len(batch.lanes)),
            mlm_positions=torch.arange(len(labels)),
            mlm_labels=torch.from_numpy(labels),
        )

    def _masked(self, batch: StreamBatch, laid: _Segments, epoch: int, samples: list[int]) -> StreamBatch:
        masks, (count, length) = self.settings.masks, laid.ids.shape
        sizes = [masks.draws(length)] * count
        shown, rows, labels = mask_batch(
            laid.ids.reshape(-1),
            laid.starts.reshape(-1),
            laid.functional.reshape(-1),
            np.arange(count + 1) * length,
            uniforms(self.seed, "masking", [epoch] * count, samples, sizes),
            masks,
            mask_id=self.specials.mask_id,
            vocab_size=self.specials.vocab_size,
        )
        packed = replace(batch.packed, input_ids=torch.from_numpy(shown))
        return replace(
            batch, packed=packed, mlm_positions=torch.from_numpy(rows), mlm_labels=torch.from_numpy(labels)
        )

    def _permuted(self, batch: StreamBatch, laid: _Segments, epoch: int, segment: int) -> StreamBatch:
        here = self.settings
        backward = [self.lanes(epoch).backward(lane) for lane in batch.lanes]
        targets = np.zeros_like(laid.functional)
        draws = np.empty((len(batch.lanes), len(here.halves) * here.order_block))
        for s, lane in enumerate(batch.lanes):
            rng = generator(self.seed, "factorisation", epoch, segment, lane)
            draws[s] = rng.random(draws.shape[1])
            begin = 0
            for half, wanted in zip(here.halves, here.wanted, strict=True):
                part = laid.starts[s, begin : begin + half]
                chosen = prediction_spans(part, wanted, here.spans, rng, backward=backward[s])
                targets[s, begin : begin + half] = chosen
                begin += half
        targets &= ~laid.functional
        order = factorisation_order(targets, laid.functional, draws, reuse=here.reuse, block=here.order_block)
        when, until = (torch.from_numpy(x.reshape(-1)) for x in order)
        rows = torch.from_numpy(np.flatnonzero(targets))
        return replace(
            batch,
            mlm_positions=rows,
            mlm_labels=batch.packed.input_ids[rows],
            when=when,
            until=until,
            backward=tuple(backward) if here.both else None,
        )


def _plain(stretch: StreamChunk) -> _Segments:
    """A segment of plain text, (1, L)."""
    types = np.zeros((1, len(stretch.ids)), dtype=np.int64)
    return _Segments(stretch.ids[None], stretch.starts[None], stretch.closing[None], types)


def _special(token: int) -> tuple[Ints, Bools, Bools]:
    """A [SEP] or [CLS]: it begins a word, and is functional."""
    yes = np.ones(1, dtype=bool)
    return np.array([token]), yes, yes


def _stacked(segments: Sequence[_Segments]) -> _Segments:
    ids, starts, functional, types = (np.concatenate(columns) for columns in zip(*segments, strict=True))
    return _Segments(ids, starts, functional, types)
