"""Which tokens a masked language model must predict: n-grams of whole words, as ALBERT masks them.

The rules are the ALBERT paper's (Lan et al. 2019, section 4.1) in the form of Google's code
(google-research/albert, `create_pretraining_data.py`): words are visited in random order; at each an n-gram
length is drawn with p(n) proportional to 1/n; the n-gram is shortened until it fits what is left of the
budget, and dropped if it meets one already taken. Every token taken is replaced by [MASK] in 80 of 100 cases,
kept in 10 and replaced by a random token in 10 (or in other shares), independently.

A batch is masked at once. Only the walk over the words is a Python loop, over integers and with a bit per
word for what is taken: about twenty turns for a sample of 128 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from albertine.errors import SettingsError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
CAUSAL_PREDICTIONS = 1 / 3
"""Share of the next tokens of a causal sample that is predicted by default."""


@dataclass(frozen=True)
class MaskSettings:
    """How tokens are masked.

    Attributes:
        probability: share of a sample's tokens to predict; special tokens count, as in the reference.
        ngram: longest run of units masked together.
        favor_shorter: p(n) proportional to 1/n; otherwise the same weights in reverse.
        whole_word: the units are words; otherwise single tokens.
        permutation: also shuffle further n-grams among themselves and predict them (as many tokens again).
        max_predictions: a fixed limit on top. The reference's 20 are 4 % of a sample of 512: no default.
        reference_defects: let an n-gram, or the rest of a word cut by truncation, run across the [SEP].
        masked, random: of the tokens to predict, the shares replaced by [MASK] and by a random token.
    """

    probability: float = 0.15
    ngram: int = 3
    favor_shorter: bool = True
    whole_word: bool = True
    permutation: bool = False
    max_predictions: int | None = None
    reference_defects: bool = False
    masked: float = 0.8
    random: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise SettingsError("must lie between 0 and 1, both excluded", where="probability")
        if self.ngram < 1:
            raise SettingsError("must be at least 1", where="ngram")
        if self.max_predictions is not None and self.max_predictions < 1:
            raise SettingsError("must be at least 1, or left out", where="max_predictions")
        if min(self.masked, self.random) < 0 or self.masked + self.random > 1 + 1e-9:
            raise SettingsError("must be shares that are 1 or less together", where="masked and random")

    def budget(self, lengths: NDArray[np.integer]) -> Ints:
        """Most tokens to predict in samples of these lengths (special tokens included)."""
        wanted: Ints = np.maximum(1, np.rint(lengths * self.probability).astype(np.int64))
        return wanted if self.max_predictions is None else wanted.clip(max=self.max_predictions)

    @property
    def length_bounds(self) -> NDArray[np.float64]:
        """Upper bounds of the cumulative p(n), for n below the longest."""
        weights = 1 / np.arange(1, self.ngram + 1)
        if not self.favor_shorter:
            weights = weights[::-1]
        return np.cumsum(weights / weights.sum())[:-1]

    def draws(self, length: int) -> int:
        """How many uniform numbers a sample uses: order, n-gram length and replacement of each token."""
        return length * (6 if self.permutation else 3)


def mask_batch(
    ids: Ints,
    word_starts: Bools,
    special: Bools,
    offsets: Ints,
    draws: NDArray[np.float64],
    settings: MaskSettings,
    *,
    mask_id: int,
    vocab_size: int,
) -> tuple[Ints, Ints, Ints]:
    """Mask the samples of a packed batch.

    Args:
        ids: (T,) tokens of all samples end to end.
        word_starts: (T,) whether a token begins a word; ignored without `whole_word`.
        special: (T,) the tokens never to predict ([CLS], [SEP]).
        offsets: (S+1,) where the samples begin.
        draws: uniform numbers, `settings.draws(length)` a sample, end to end.
        vocab_size: random tokens come from the whole vocabulary, special tokens included, as in the
            reference: with 30,000 tokens that is one [SEP] in 400,000 tokens, not worth a deviation.

    Returns:
        The masked ids (T,), the increasing positions to predict (P,), and the original ids there (P,).
    """
    lengths = np.diff(offsets)
    numbers = _rows(draws, lengths, 6 if settings.permutation else 3)
    units = _Units.of(word_starts, special, offsets, settings)
    budget = settings.budget(lengths).tolist()
    taken = [0] * len(lengths)
    chosen = units.tokens(_choose(units, numbers[0], numbers[1], budget, taken, settings))
    masked = ids.copy()
    fate = numbers[2][chosen]
    masked[chosen[fate < settings.masked]] = mask_id
    kept = 1 - settings.random  # of one uniform draw, below `masked` [MASK], and below this unchanged
    if kept < 1:
        stray = fate >= kept
        random_ids = ((fate[stray] - kept) * (vocab_size / (1 - kept))).astype(np.int64)
        masked[chosen[stray]] = random_ids.clip(0, vocab_size - 1)
    if settings.permutation:
        moved = units.tokens(_choose(units, numbers[3], numbers[4], budget, taken, settings))
        sample = np.searchsorted(offsets, moved, side="right")
        masked[moved] = ids[moved[np.argsort(sample + numbers[5][moved] / 2)]]
        chosen = np.sort(np.concatenate([chosen, moved]))
    return masked, chosen, ids[chosen]


def mask(
    ids: Ints,
    word_starts: Bools,
    special: Bools,
    settings: MaskSettings,
    rng: np.random.Generator,
    *,
    mask_id: int,
    vocab_size: int,
) -> tuple[Ints, Ints, Ints]:
    """Mask one sample; see `mask_batch`."""
    return mask_batch(
        ids,
        word_starts,
        special,
        np.array([0, len(ids)]),
        rng.random(settings.draws(len(ids))),
        settings,
        mask_id=mask_id,
        vocab_size=vocab_size,
    )


def _rows(draws: NDArray[np.float64], lengths: Ints, kinds: int) -> NDArray[np.float64]:
    """Draws laid out sample by sample, turned into one row of T numbers a kind of decision."""
    total = int(lengths.sum())
    if len(draws) != kinds * total:
        raise ValueError(f"{total} tokens need {kinds * total} draws, got {len(draws)}")
    begin = np.cumsum(lengths) - lengths
    # In `draws` the kinds of one sample stand end to end: token j of kind k is at kinds·begin + k·length + j.
    at = np.arange(total) + np.repeat((kinds - 1) * begin, lengths)
    step = np.repeat(lengths, lengths)
    return draws[at + np.arange(kinds)[:, None] * step]


@dataclass(frozen=True)
class _Units:
    """The words (or tokens) that can be masked, of all samples end to end.

    `place[i]:place[i+1]` are unit i's entries in `where`, the positions (T) of all ordinary tokens.
    """

    where: Ints
    place: Ints
    room: Ints  # units from this one to the end of its segment: as far as an n-gram may reach
    samples: Ints  # (S+1,) first unit of every sample

    @classmethod
    def of(cls, word_starts: Bools, special: Bools, offsets: Ints, settings: MaskSettings) -> _Units:
        where = np.flatnonzero(~special)
        border = np.zeros(len(where), dtype=bool)  # first token of a segment
        if len(where):
            border[0] = True
            jump = np.diff(where) > 1
            if settings.reference_defects:
                jump = np.diff(np.searchsorted(offsets, where, side="right")) > 0
            border[1:] = jump
            head = np.zeros(len(special) + 1, dtype=bool)
            head[offsets] = True  # of a sample that begins without a special token
            border |= head[where]
        starts = border | word_starts[where] if settings.whole_word else np.ones(len(where), dtype=bool)
        first = np.flatnonzero(starts)
        samples = np.searchsorted(where[first], offsets)
        segment_first = np.flatnonzero(border[first])
        segment_end = np.append(segment_first, len(first))[1:]
        room = np.repeat(segment_end, segment_end - segment_first) - np.arange(len(first))
        return cls(where, np.append(first, len(where)), room, samples)

    def tokens(self, runs: tuple[Ints, Ints]) -> Ints:
        """Increasing positions (T) of the tokens in runs of units, given by first unit and size."""
        first, size = runs
        edges = np.zeros(len(self.where) + 1, dtype=np.int64)
        edges[self.place[first]] += 1
        edges[self.place[first + size]] -= 1
        return self.where[np.cumsum(edges[:-1]) > 0]


def _choose(
    units: _Units,
    order_draws: NDArray[np.float64],
    length_draws: NDArray[np.float64],
    budget: list[int],
    taken: list[int],
    settings: MaskSettings,
) -> tuple[Ints, Ints]:
    """N-grams of units up to the budget of every sample: their first units and sizes.

    `taken` holds, for every sample, one bit a unit that is out of bounds; the new n-grams are added to it.
    """
    head = units.where[units.place[:-1]]
    sample = np.repeat(np.arange(len(budget)), np.diff(units.samples))
    # Halved, so that a sum cannot round up to the next sample.
    order = np.argsort(sample + order_draws[head] / 2)
    size = np.minimum(
        np.searchsorted(settings.length_bounds, length_draws[head], side="right") + 1, units.room
    )
    local, sizes = (order - units.samples[sample]).tolist(), size[order].tolist()
    place, bounds = units.place.tolist(), units.samples.tolist()
    ones = [(1 << n) - 1 for n in range(settings.ngram + 1)]
    firsts: list[int] = []
    runs: list[int] = []
    for row, left in enumerate(budget):
        begin, covered = bounds[row], taken[row]
        for unit, n in zip(local[begin : bounds[row + 1]], sizes[begin : bounds[row + 1]], strict=True):
            at = begin + unit
            while n and place[at + n] - place[at] > left:
                n -= 1
            bits = ones[n] << unit
            if not n or covered & bits:
                continue
            covered |= bits
            left -= place[at + n] - place[at]
            firsts.append(at)
            runs.append(n)
            if not left:
                break
        taken[row] = covered
    return np.array(firsts, dtype=np.int64), np.array(runs, dtype=np.int64)


def next_tokens(
    ids: Ints, special: NDArray[np.bool_], offsets: Ints, draws: NDArray[np.float64], share: float
) -> tuple[Ints, Ints]:
    """Positions that predict the next token in causal samples: a share of them, so that a step costs as much
    as a masked one.

    With a causal mask a token learns from its left neighbour at once; an encoder pretrained so attends to
    neighbours before masked LM begins (AntLM, arXiv 2412.03275).

    Args:
        ids: (T,) tokens of all samples end to end.
        special: (T,) the tokens never to predict, the first of a sample among them.
        offsets: (S+1,) where the samples begin.
        draws: uniform numbers (T,).
        share: of the ordinary tokens of a sample that are predicted, at least one.

    Returns:
        The increasing rows (P,), and the tokens after them (P,).
    """
    target = np.flatnonzero(~special)
    sample = np.searchsorted(offsets, target, side="right") - 1
    count = np.bincount(sample, minlength=len(offsets) - 1)
    wanted = np.maximum(1, np.rint(count * share).astype(np.int64))
    # Halved, so that a sum cannot round up to the next sample.
    order = np.argsort(sample + draws[target] / 2)
    place = np.arange(len(target)) - np.repeat(np.cumsum(count) - count, count)
    chosen = np.sort(target[order[place < np.repeat(wanted, count)]])
    return chosen - 1, ids[chosen]
