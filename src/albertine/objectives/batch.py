"""Pretraining batches from sample numbers: read the tokens, lay out the segments, mask, split over ranks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from albertine.core.batch import Packed
from albertine.core.randomness import uniforms
from albertine.corpus.reader import Shards, SpanReader
from albertine.errors import CorpusError, SettingsError
from albertine.objectives.masking import CAUSAL_PREDICTIONS, MaskSettings, mask_batch, next_tokens
from albertine.objectives.pairs import EpochPlan, PairSettings, Sentences, plan_epoch
from albertine.tokenizers.base import CLS_SEGMENT

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Row = tuple[int, int]  # (epoch, sample of that epoch)


class Vocabulary(Protocol):
    """Interface of a tokenizer for building batches."""

    @property
    def cls_id(self) -> int: ...

    @property
    def sep_id(self) -> int: ...

    @property
    def mask_id(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def cls_last(self) -> bool: ...


class Text(Sentences, Shards, Protocol):
    """Interface of a corpus for building batches: lengths and shards."""

    def tokenizer(self) -> Vocabulary: ...


class SpecialTokens(NamedTuple):
    """`Vocabulary` without the tokenizer, cheap to send to loader processes."""

    cls_id: int
    sep_id: int
    mask_id: int
    vocab_size: int
    cls_last: bool = False


@dataclass(frozen=True)
class PretrainingBatch:
    """One micro-batch, of masked samples or of causal ones.

    Attributes:
        packed: the samples, [CLS] A [SEP] B [SEP] or [CLS] A [SEP], segment ids 0 and 1, or with XLNet's
            tokenizer A [SEP] B [SEP] [CLS], [CLS] in segment 2; causal ones are not masked, and are under a
            causal attention mask.
        mlm_positions: predicted positions in T, increasing, int64 (P,).
        mlm_labels: original ids there, or in causal samples the next ids, int64 (P,).
        sentence_labels: int64 (S,), -100 where a sample has no sentence task; None where no sample has one.
        sentence_count: number of labels that are not -100, known without synchronising with the device.
        samples: (epoch, sample) of every sequence, int64 (S, 2).
        depth: number of layers to compute; None: all.
        loops: instead, how often to compute the core of a plan that repeats one; None: as `depth` says.
        teacher_loops: also compute so many loops, of which the fewer `loops` learn; None: no teacher.
        mask_id: the id of [MASK] in `packed`, to distinguish masked positions from kept and random tokens in
            evaluation; None: unknown.
        ponders: whether the ponder cost is part of the loss.
        penalised: whether the Jacobian penalty is part of the loss.
        distillation: names of the distillation losses: "soft" over predicted positions, others over tokens.
        part: name of the loss of the predicted tokens: "causal" in the causal samples of a run that masks
            others.
        causal_share: of the samples, in a run that masks others; 0: all are of one kind.
    """

    packed: Packed
    mlm_positions: Tensor
    mlm_labels: Tensor
    sentence_labels: Tensor | None
    sentence_count: int
    samples: Tensor
    depth: int | None = None
    mask_id: int | None = None
    ponders: bool = False
    penalised: bool = False
    distillation: tuple[str, ...] = ()
    loops: int | None = None
    teacher_loops: int | None = None
    part: Literal["mlm", "causal"] = "mlm"
    causal_share: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Number of predictions in the sum of each part of the loss."""
        counts: dict[str, int] = {self.part: self.mlm_positions.shape[0]}
        if self.sentence_labels is not None:
            counts["sentence"] = self.sentence_count
        if self.ponders:
            counts["ponder"] = self.num_tokens
        if self.penalised:
            counts["jacobian"] = self.num_tokens
        for name in self.distillation:
            counts[name] = counts[self.part] if name == "soft" else self.num_tokens
        if self.teacher_loops is not None:
            parts = (self.part, "sentence")
            counts |= {f"elastic_{name}": counts[name] for name in parts if name in counts}
        return counts

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the parts of the loss of a mixed run: the shares of the samples."""
        if not self.causal_share:
            return {}
        shares = {"mlm": 1 - self.causal_share, "causal": self.causal_share}
        return shares | {f"elastic_{name}": share for name, share in shares.items()}

    @property
    def num_tokens(self) -> int:
        return self.packed.num_tokens

    def to(self, device: torch.device | str) -> PretrainingBatch:
        return replace(
            self,
            packed=self.packed.to(device),
            mlm_positions=self.mlm_positions.to(device, non_blocking=True),
            mlm_labels=self.mlm_labels.to(device, non_blocking=True),
            sentence_labels=None
            if self.sentence_labels is None
            else self.sentence_labels.to(device, non_blocking=True),
        )


class BatchBuilder:
    """Builds the batches of a run: a pure function of corpus, settings, seed and requested rows.

    Masking is dynamic: a sample is masked anew in every epoch, and no masked copy is stored.
    """

    def __init__(
        self,
        corpus: Text,
        pairs: PairSettings,
        masks: MaskSettings,
        seed: int,
        vocabulary: Vocabulary | None = None,
        *,
        depth: int | None = None,
        causal_share: float = 0.0,
        causal_predictions: float = CAUSAL_PREDICTIONS,
    ) -> None:
        """
        Args:
            vocabulary: default the corpus' own tokenizer.
            depth: number of layers to compute for these batches; None: all.
            causal_share: share of the samples that are causal: not masked, and tokens are predicted from
                those before them. Excludes pairs, because [CLS] sees neither segment.
            causal_predictions: of the tokens of a causal sample, the share that is predicted.

        Raises:
            SettingsError: causal samples with pairs.
        """
        if causal_share and pairs.kind != "none":
            raise SettingsError("a causal objective has no sentence pairs", remedy="Set pairs: none")
        self.corpus, self.pairs, self.masks, self.seed = corpus, pairs, masks, seed
        self.depth, self.causal_share, self.causal_predictions = depth, causal_share, causal_predictions
        names = corpus.tokenizer() if vocabulary is None else vocabulary
        self.specials = SpecialTokens(
            names.cls_id, names.sep_id, names.mask_id, names.vocab_size, names.cls_last
        )
        self._text: SpanReader | None = None
        self._plans: OrderedDict[int, EpochPlan] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        # A spawned loader process gets the arguments, not the tokens: it maps the shards and plans by itself.
        make = partial(
            BatchBuilder,
            depth=self.depth,
            causal_share=self.causal_share,
            causal_predictions=self.causal_predictions,
        )
        return make, (self.corpus, self.pairs, self.masks, self.seed, self.specials)

    @property
    def text(self) -> SpanReader:
        """The corpus' tokens, memory-mapped at the first access."""
        if self._text is None:
            self._text = SpanReader(self.corpus)
        return self._text

    def ready(self, epoch: int) -> None:
        """Map the tokens and plan an epoch, to be shared with processes forked later."""
        _ = self.text
        self.plan(epoch)

    def plan(self, epoch: int) -> EpochPlan:
        """The samples of an epoch; the last two plans are cached, because a batch may span two epochs."""
        if epoch in self._plans:
            self._plans.move_to_end(epoch)
            return self._plans[epoch]
        self._plans[epoch] = plan = plan_epoch(self.corpus, self.pairs, self.seed, epoch)
        if len(self._plans) > 2:
            self._plans.popitem(last=False)
        return plan

    def rows(self, epoch: int) -> int:
        """Number of samples of an epoch; epochs differ by a few, because some documents are cut to another
        length in each."""
        return len(self.plan(epoch))

    def build(
        self,
        rows: Sequence[Row],
        rank: int = 0,
        world: int = 1,
        *,
        micro_batches: int | None = None,
        micro_batch_tokens: int | None = None,
    ) -> list[PretrainingBatch]:
        """This rank's micro-batches of a global batch.

        Args:
            rows: the global batch; every rank passes the same.
            micro_batches: number per rank; default 1, or as many as `micro_batch_tokens` requires. Of
                masked and of causal samples each.
            micro_batch_tokens: maximum tokens of a micro-batch, or the longest sample where that is more.

        Returns:
            The micro-batches, those of masked samples first; those of all ranks together hold every row once.
            With fewer rows than ranks times micro-batches the last ones would be empty and are left out.
        """
        spans = _Spans.of(self, rows)
        is_causal = self._causal_rows(spans)
        found: list[PretrainingBatch] = []
        tokens = np.zeros(world, dtype=np.int64)  # of every rank
        for causal in (False, True):
            own = spans.take(np.flatnonzero(is_causal == causal))
            bins = split(own.lengths, world, micro_batches, micro_batch_tokens)
            if tokens.any():
                bins = _balanced(bins, own.lengths, tokens)
            tokens += _tokens(bins, own.lengths)
            found += [self._micro_batch(own.take(part), causal) for part in bins[rank] if len(part)]
        return found

    def _causal_rows(self, spans: _Spans) -> Bools:
        """Which samples are causal, (S,): the same in any batch."""
        if self.causal_share in (0, 1):
            return np.full(len(spans.samples), bool(self.causal_share))
        ones = [1] * len(spans.samples)
        draws = uniforms(self.seed, "causal", spans.epochs.tolist(), spans.samples.tolist(), ones)
        return draws < self.causal_share

    def _micro_batch(self, spans: _Spans, causal: bool) -> PretrainingBatch:
        lengths = spans.lengths
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        total = int(offsets[-1])
        two = spans.b_length > 0
        last = self.specials.cls_last
        a_end = spans.a_length if last else 1 + spans.a_length
        cls = offsets[1:] - 1 if last else offsets[:-1]
        special = np.zeros(total, dtype=bool)
        special[cls] = special[offsets[:-1] + a_end] = special[offsets[1:] - (2 if last else 1)] = True
        ids = np.full(total, self.specials.sep_id, dtype=np.int64)
        ids[cls] = self.specials.cls_id
        starts = special.copy()
        # A and B of a sample, then A and B of the next: the order in which ordinary tokens lie in the layout.
        begin = np.stack([spans.a_start, spans.b_start], 1).reshape(-1)
        size = np.stack([spans.a_length, spans.b_length], 1).reshape(-1)
        ids[~special], starts[~special] = self.text.gather(begin[size > 0], size[size > 0])
        position = np.arange(total) - np.repeat(offsets[:-1], lengths)
        types = (position > np.repeat(a_end, lengths)).astype(np.int64)
        if last:
            types[cls] = CLS_SEGMENT
        predicted = self._next if causal else self._masked
        shown, where, labels = predicted(spans, ids, starts, special, offsets)
        mixed = 0 < self.causal_share < 1
        packed = Packed(
            torch.from_numpy(shown),
            torch.from_numpy(types),
            torch.from_numpy(position),
            torch.from_numpy(offsets.astype(np.int32)),
            tuple(lengths.tolist()),
            (1,) * len(lengths) if causal else None,
        )
        return PretrainingBatch(
            packed,
            torch.from_numpy(where),
            torch.from_numpy(labels),
            None if self.pairs.kind == "none" else torch.from_numpy(spans.label),
            int((two & (spans.label >= 0)).sum()),
            torch.from_numpy(np.stack([spans.epochs, spans.samples], 1)),
            self.depth,
            self.specials.mask_id,
            part="causal" if mixed and causal else "mlm",
            causal_share=self.causal_share if mixed else 0.0,
        )

    def _next(
        self, spans: _Spans, ids: Ints, starts: Bools, special: Bools, offsets: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Input ids (T,), positions (P,) that predict the next token, and these tokens (P,)."""
        epochs, samples, lengths = spans.epochs.tolist(), spans.samples.tolist(), spans.lengths.tolist()
        draws = uniforms(self.seed, "next token", epochs, samples, lengths)
        special = special.copy()
        special[offsets[:-1]] = True  # no token comes before it, [CLS] or not
        return ids, *next_tokens(ids, special, offsets, draws, self.causal_predictions)

    def _masked(
        self, spans: _Spans, ids: Ints, starts: Bools, special: Bools, offsets: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Input ids (T,), predicted positions (P,), and labels (P,)."""
        epochs, samples, lengths = spans.epochs.tolist(), spans.samples.tolist(), spans.lengths.tolist()
        draws = uniforms(self.seed, "masking", epochs, samples, [self.masks.draws(n) for n in lengths])
        return mask_batch(
            ids,
            starts,
            special,
            offsets,
            draws,
            self.masks,
            mask_id=self.specials.mask_id,
            vocab_size=self.specials.vocab_size,
        )


@dataclass(frozen=True)
class _Spans:
    """The planned samples of a batch."""

    epochs: Ints
    samples: Ints
    a_start: Ints
    a_length: Ints
    b_start: Ints
    b_length: Ints
    label: Ints

    @classmethod
    def of(cls, builder: BatchBuilder, rows: Sequence[Row]) -> _Spans:
        epochs, samples = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        columns = np.empty((5, len(epochs)), dtype=np.int64)
        for epoch in np.unique(epochs):
            plan, here = builder.plan(int(epoch)), epochs == epoch
            mine = samples[here]
            if mine.min() < 0 or mine.max() >= len(plan):
                raise CorpusError(
                    f"has {len(plan)} samples in epoch {epoch}, and number {mine.max()} was requested",
                    remedy="The corpus or the settings changed since the run began; start a new run",
                )
            planned: list[NDArray[Any]] = [
                plan.a_start,
                plan.a_length,
                plan.b_start,
                plan.b_length,
                plan.label,
            ]
            for i, values in enumerate(planned):
                columns[i, here] = values[mine]
        return cls(epochs, samples, *columns)

    @property
    def lengths(self) -> Ints:
        return self.a_length + self.b_length + np.where(self.b_length > 0, 3, 2)

    def take(self, chosen: Ints) -> _Spans:
        return _Spans(*(getattr(self, field.name)[chosen] for field in fields(self)))


def split(
    lengths: Ints, world: int, micro_batches: int | None = None, micro_batch_tokens: int | None = None
) -> list[list[Ints]]:
    """Indices of the samples of every micro-batch of every rank, balanced by length.

    Samples are distributed from long to short, in alternating direction (serpentine), over all micro-batches
    of all ranks, so that all have nearly the same number of tokens and no rank waits.
    """
    order = np.argsort(-lengths, kind="stable")
    count = micro_batches or 1
    if micro_batches is None and micro_batch_tokens is not None:
        limit = max(micro_batch_tokens, int(lengths.max(initial=1)))
        count = max(1, -(-int(lengths.sum()) // (world * limit)))
        while np.bincount(_serpentine(len(order), world * count), lengths[order]).max(initial=0) > limit:
            count += 1 + count // 32  # by more than one, so that tight limits need few attempts
    bins = world * count
    bin_of = _serpentine(len(order), bins)
    shares = np.split(
        order[np.argsort(bin_of, kind="stable")], np.cumsum(np.bincount(bin_of, minlength=bins))[:-1]
    )
    # Neighbouring bins belong to different ranks.
    return [shares[rank::world] for rank in range(world)]


def _tokens(bins: list[list[Ints]], lengths: Ints) -> Ints:
    """Number of tokens of every rank, (world,)."""
    return np.array([sum(int(lengths[part].sum()) for part in parts) for parts in bins], dtype=np.int64)


def _balanced(bins: list[list[Ints]], lengths: Ints, tokens: Ints) -> list[list[Ints]]:
    """Shares of all ranks in another order: the largest for the rank that has the fewest `tokens`."""
    largest_first = np.argsort(-_tokens(bins, lengths), kind="stable")
    share_of = np.empty(len(bins), dtype=np.int64)
    share_of[np.argsort(tokens, kind="stable")] = largest_first
    return [bins[share] for share in share_of.tolist()]


def _serpentine(count: int, bins: int) -> Ints:
    """The bin of each of `count` samples."""
    lap, place = np.divmod(np.arange(count), bins)
    return np.where(lap % 2 == 0, place, bins - 1 - place)
