"""Sentences of the training samples: the packing rules of ALBERT and BERT, for a whole epoch at once.

The rules are Google's (google-research/albert, `create_pretraining_data.py`). A document is cut into chunks
of whole sentences that reach a target length; a chunk is split in two at a random sentence, and the pair is
swapped (SOP) or its second half replaced by sentences of another document (NSP). Planning is vectorised:
where a chunk that begins at sentence s ends depends on s alone once the draws are keyed by sentence, so "the
next chunk" is a table, and walking it is the only loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from albertine.core.randomness import generator
from albertine.errors import CorpusError, SettingsError

Array = NDArray[np.int64]

NO_LABEL = -100
# Documents that begin in the same million sentences are planned together, with one set of draws.
BLOCK_SENTENCES = 1 << 20


@dataclass(frozen=True)
class PairSettings:
    """How samples are cut from documents.

    Attributes:
        kind: "sop" sentence order, "nsp" next sentence, "none" one segment of complete sentences, as many as
            fit (RoBERTa's way).
        max_length: tokens of a sample, special tokens included.
        short_probability: share of documents whose target length is drawn uniformly from [2, most] instead
            of the most.
        reference_defects: in SOP mode, give a chunk of one sentence a second segment from another document
            and label 1, as the reference does. The topic then reveals the label. By default such a chunk
            stays in the data as one segment for masked prediction, without a sentence label.
        repeats: share of samples that are a passage and an excerpt of it, in either order, without a
            sentence label: tokens masked in one can be copied from the other.
    """

    kind: Literal["sop", "nsp", "none"] = "sop"
    max_length: int = 128
    short_probability: float = 0.1
    reference_defects: bool = False
    repeats: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("sop", "nsp", "none"):
            raise SettingsError(
                f"unknown kind of sentence pairs `{self.kind}`", remedy="Use sop, nsp or none"
            )
        if self.max_length < 8:
            raise SettingsError("must be at least 8 to hold two segments", where="max_length")
        if not 0 <= self.short_probability <= 1:
            raise SettingsError("must lie between 0 and 1", where="short_probability")
        if not 0 <= self.repeats <= 1:
            raise SettingsError("must lie between 0 and 1", where="repeats")
        if self.repeats and self.kind == "none":
            raise SettingsError(
                "an excerpt is a second segment, and pairs: none has one",
                where="repeats",
                remedy="Set pairs: sop or nsp, or repeats: 0",
            )

    @property
    def room(self) -> int:
        """Most ordinary tokens of a sample: the length without [CLS] and the one or two [SEP]."""
        return self.max_length - (2 if self.kind == "none" else 3)

    @property
    def crosses(self) -> bool:
        """Whether second segments come from other documents."""
        return self.kind == "nsp" or (self.kind == "sop" and self.reference_defects)


class Sentences(Protocol):
    """Interface of a corpus for planning: lengths only."""

    @property
    def document_offsets(self) -> NDArray[np.integer]: ...

    @property
    def sentence_lengths(self) -> NDArray[np.integer]: ...


@dataclass(frozen=True)
class EpochPlan:
    """The samples of one epoch, in the order of the text; every array has one entry a sample.

    Segment A is laid out first. `a_start` and `b_start` are global token offsets, after truncation;
    `b_length` 0 means that there is no second segment. `label` is 1 for a swapped (SOP) or foreign (NSP)
    second segment, 0 for the original order, -100 where the sample has no sentence task.
    """

    a_start: Array
    a_length: NDArray[np.int32]
    b_start: Array
    b_length: NDArray[np.int32]
    label: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.label)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each sample with its special tokens, int32."""
        return self.a_length + self.b_length + np.where(self.b_length > 0, np.int32(3), np.int32(2))


def token_offsets(corpus: Sentences) -> Array:
    """Global offset of every sentence in tokens, int64 (sentences + 1,)."""
    lengths = corpus.sentence_lengths
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def plan_epoch(corpus: Sentences, settings: PairSettings, seed: int, epoch: int) -> EpochPlan:
    """The samples of an epoch; the same for the same arguments. Splits, order and trimming are new in every
    epoch; where chunks end is so in documents with a drawn length alone (`short_probability`).

    Raises:
        CorpusError: no text, or a single document where pairs across documents are requested.
    """
    documents = np.asarray(corpus.document_offsets, dtype=np.int64)
    offsets = token_offsets(corpus)
    if len(documents) < 2 or offsets[-1] == 0:
        raise CorpusError("holds no text to train on", remedy="Prepare it again from files with text")
    if settings.crosses and len(documents) < 3:
        raise CorpusError(
            "has one document, and pairs across documents need two",
            remedy="Use pairs: sop, or separate the documents",
        )
    block_of = documents[:-1] // BLOCK_SENTENCES
    first = np.flatnonzero(np.diff(block_of, prepend=-1))
    last = np.append(first[1:], len(block_of))
    parts = []
    for d0, d1 in zip(first.tolist(), last.tolist(), strict=True):
        rng = generator(seed, "pairs", epoch, int(block_of[d0]))
        parts.append(_plan_block(documents, offsets, d0, d1, settings, rng))
    return EpochPlan(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class _Chunks:
    """Runs of consecutive sentences of one document; sentences are counted from the block's first."""

    start: Array
    cut: Array  # first sentence of the second segment; `end` where there is none
    end: Array
    target: Array  # tokens wanted
    coin: NDArray[np.float64]  # uniform; used by NSP to choose a foreign segment
    foreign: NDArray[np.bool_]  # the second segment comes from another document

    @property
    def alone(self) -> NDArray[np.bool_]:
        """No second segment."""
        alone: NDArray[np.bool_] = (self.cut == self.end) & ~self.foreign
        return alone


def _plan_block(
    documents: Array, offsets: Array, d0: int, d1: int, settings: PairSettings, rng: np.random.Generator
) -> tuple[NDArray[Any], ...]:
    """The columns of EpochPlan for documents d0 to d1."""
    bounds = documents[d0 : d1 + 1]
    cum = offsets[bounds[0] : bounds[-1] + 1]
    chunks = _cut_chunks(bounds - bounds[0], cum, settings, rng)
    foreign, alone = chunks.foreign, chunks.alone
    a_start, a_end = cum[chunks.start], cum[chunks.cut]
    b_start, b_end = a_end.copy(), cum[chunks.end]
    label = np.where(alone, NO_LABEL, 0).astype(np.int8)
    if foreign.any():
        home = d0 + np.searchsorted(bounds, bounds[0] + chunks.start[foreign], side="right") - 1
        wanted = (chunks.target - (a_end - a_start))[foreign]
        b_start[foreign], b_end[foreign] = _elsewhere(documents, offsets, home, wanted, rng)
        label[foreign] = 1
    if settings.kind == "sop":
        swap = ~alone & ~foreign & (chunks.coin < 0.5)
        a_start, b_start = np.where(swap, b_start, a_start), np.where(swap, a_start, b_start)
        a_end, b_end = np.where(swap, b_end, a_end), np.where(swap, a_end, b_end)
        label[swap] = 1
    a_length, b_length = a_end - a_start, b_end - b_start
    if settings.repeats:
        repeated = rng.random(len(label)) < settings.repeats
        whole = cum[chunks.start[repeated]], cum[chunks.end[repeated]]
        pairs = _with_excerpts(*whole, settings.room, rng)
        a_start[repeated], a_length[repeated], b_start[repeated], b_length[repeated] = pairs
        label[repeated], alone = NO_LABEL, alone & ~repeated
    a_start, a_length, b_start, b_length = _truncate(a_start, a_length, b_start, b_length, settings, rng)
    # Sentences without a token can only come from a hand-made corpus, and would make an empty segment.
    real = (a_length > 0) & ((b_length > 0) | alone)
    columns = (a_start, a_length.astype(np.int32), b_start, b_length.astype(np.int32), label)
    return columns if real.all() else tuple(column[real] for column in columns)


def _cut_chunks(bounds: Array, cum: Array, settings: PairSettings, rng: np.random.Generator) -> _Chunks:
    """Cut the documents between `bounds` (in sentences) into chunks and each chunk in two.

    `cum` are the token offsets of the sentences. Everything is first worked out for a chunk that would begin
    at any sentence; the walk then keeps the sentences where one does.
    """
    sizes = np.diff(bounds)
    count = int(bounds[-1])
    target = np.repeat(_targets(len(sizes), settings, rng), sizes)
    here = np.arange(count)
    if settings.kind == "none":
        end = (
            np.searchsorted(cum, cum[:-1] + target, side="right") - 1
        )  # after the last sentence that still fits
    else:
        end = np.searchsorted(
            cum, cum[:-1] + target, side="left"
        )  # after the sentence that reaches the target
    end = np.minimum(np.maximum(end, here + 1), np.repeat(bounds[1:], sizes))
    split, coin = rng.random(count), rng.random(count)
    single = end - here == 1
    cut = np.where(single, end, here + 1 + (split * (end - here - 1)).astype(np.int64))
    foreign = np.zeros(count, dtype=bool)
    if settings.kind == "none":
        cut = end
    elif settings.kind == "nsp":
        foreign = single | (coin < 0.5)
    elif settings.reference_defects:
        foreign = single
    # Sentences a foreign segment replaced are "pushed back": the next chunk begins right after segment A.
    start = _walk(np.where(foreign, cut, end))
    return _Chunks(start, cut[start], end[start], target[start], coin[start], foreign[start])


def _targets(documents: int, settings: PairSettings, rng: np.random.Generator) -> Array:
    """Target length of every document, drawn once a document."""
    short, size = rng.random(documents), rng.random(documents)
    drawn = 2 + (size * (settings.room - 1)).astype(np.int64)
    return np.where(short < settings.short_probability, drawn, settings.room)


def _walk(following: Array) -> Array:
    """The chain 0, following[0], following[following[0]], … up to the end of the table."""
    table, stop = following.data, len(following)  # a memoryview: its items are integers, not NumPy scalars
    chain: list[int] = []
    at = 0
    while at < stop:
        chain.append(at)
        at = table[at]
    return np.array(chain, dtype=np.int64)


def _elsewhere(
    documents: Array, offsets: Array, home: Array, wanted: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Token spans that begin at a random sentence of another document and reach the wanted length or its end.

    The reference draws a document ten times and then takes what it has; drawing from the others is the same
    but for the 10th power of a small chance that the label would be wrong.
    """
    count = len(home)
    other = (rng.random(count) * (len(documents) - 2)).astype(np.int64)
    other += other >= home
    size = documents[other + 1] - documents[other]
    first = documents[other] + (rng.random(count) * size).astype(np.int64)
    first = np.minimum(first, documents[other + 1] - 1)
    end = np.searchsorted(offsets, offsets[first] + np.maximum(wanted, 1), side="left")
    end = np.minimum(np.maximum(end, first + 1), documents[other + 1])
    return offsets[first], offsets[end]


def _with_excerpts(
    start: Array, end: Array, room: int, rng: np.random.Generator
) -> tuple[Array, Array, Array, Array]:
    """Of runs of tokens a passage and an excerpt, as start and length of either; they fill the room where
    the run is long enough, and which comes first is a coin.

    The excerpt's length and place are drawn, so its distance to the passage carries no information: the words
    must be compared.
    """
    share, place, coin = rng.random((3, len(start)))
    excerpt = 1 + (share * (room // 2)).astype(np.int64)
    passage = np.minimum(end - start, room - excerpt)
    excerpt = np.minimum(excerpt, passage)
    # Anywhere in the run, like a single segment; otherwise only beginnings would be read.
    start = start + (rng.random(len(start)) * (end - start - passage + 1)).astype(np.int64)
    begin = start + (place * (passage - excerpt + 1)).astype(np.int64)
    first = coin < 0.5
    return (
        np.where(first, begin, start),
        np.where(first, excerpt, passage),
        np.where(first, start, begin),
        np.where(first, passage, excerpt),
    )


def _truncate(
    a_start: Array, a: Array, b_start: Array, b: Array, settings: PairSettings, rng: np.random.Generator
) -> tuple[Array, Array, Array, Array]:
    """Drop the tokens beyond the room, one at a time from the longer segment, at either end by a coin.

    Taking from the longer (on a tie, from B) until A + B = room ends in a closed form, and the number taken
    from the front is binomial; so no loop over tokens is needed.
    """
    room = np.where(b > 0, settings.room, settings.max_length - 2)
    over = a + b > room
    keep_a = np.where(over, np.minimum(a, np.maximum(room - b, (room + 1) // 2)), a)
    keep_a = np.where(over & (b == 0), room, keep_a)
    keep_b = np.where(over & (b > 0), room - keep_a, b)
    cut = np.flatnonzero(over)
    surplus = (a - keep_a)[cut]
    anywhere = rng.integers(0, surplus, endpoint=True)
    front_a = np.where(b[cut] > 0, rng.binomial(surplus, 0.5), anywhere)
    front_b = rng.binomial((b - keep_b)[cut], 0.5)
    a_start, b_start = a_start.copy(), b_start.copy()
    a_start[cut] += front_a
    b_start[cut] += front_b
    return a_start, keep_a, b_start, keep_b
