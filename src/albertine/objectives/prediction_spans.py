"""Which tokens a permutation LM predicts: spans of words, each in a context that is left alone.

XLNet predicts about one token in α/β: it walks over a segment, draws n words with p(n) proportional to 1/n,
sets them into a context of n·α/β tokens, of which a uniform number stand on the left, and goes on behind
that context (1906.08237, section 2.3; zihangdai/xlnet, `data_utils.py`, `_sample_mask`).
What is missing at the end is filled up with random tokens, so that every segment has the same number of
predictions.

Two things are ours. The official loop that is to end a span after n words asks the wrong token whether it
begins a word, so its n counts pieces; here a span ends where a word does, unless `reference_defects` asks
for pieces. And as words may be longer than what is left to predict, a span is then shortened by whole
words, and a word that does not fit is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from albertine.errors import SettingsError

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class SpanSettings:
    """How the tokens to predict are drawn.

    Attributes:
        longest: most words of a span; p(n) is proportional to 1/n.
        alpha, beta: a span of n has a context of n·alpha // beta tokens besides.
        reference_defects: n counts pieces from the start of a word on, as in the official code.
    """

    longest: int = 5
    alpha: int = 6
    beta: int = 1
    reference_defects: bool = False

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise SettingsError("must be at least 1", where="longest")
        if not 1 <= self.beta <= self.alpha:
            raise SettingsError(
                f"alpha is {self.alpha} and beta {self.beta}, which leaves a span of one word no context",
                where="alpha and beta",
                remedy="Use an alpha of at least beta, and a beta of at least 1",
            )

    @property
    def length_bounds(self) -> NDArray[np.float64]:
        """Upper bounds of the cumulative p(n), for n below the longest."""
        weights = 1 / np.arange(1, self.longest + 1)
        return np.cumsum(weights / weights.sum())[:-1]


def halves(predictions: int) -> tuple[int, int]:
    """Predictions of the first and of the second half of a segment; an odd one is the first's."""
    return predictions - predictions // 2, predictions // 2


def prediction_spans(
    word_starts: Bools, wanted: int, settings: SpanSettings, rng: np.random.Generator, *, backward: bool
) -> Bools:
    """Exactly `wanted` tokens (L,) to predict of a segment, or of a half of one.

    Those that turn out to be [SEP] or [CLS] are for the caller to drop: the official code draws them too.

    Args:
        word_starts: (L,) in the order of the segment; functional tokens are words.
        wanted: at most L.
        backward: the segment runs against the text. Spans are drawn in reading order all the same, because a
            word's start is its first piece there.
    """
    starts = word_starts[::-1] if backward else word_starts
    chosen = _walk(starts, wanted, settings, rng)
    left = np.flatnonzero(~chosen)
    # Single tokens wherever they stand, as in the official code; words have no part in it.
    chosen[rng.permutation(left)[: wanted - int(chosen.sum())]] = True
    return chosen[::-1] if backward else chosen


def _walk(starts: Bools, wanted: int, settings: SpanSettings, rng: np.random.Generator) -> Bools:
    """Spans in reading order, at most `wanted` tokens of them."""
    length, bounds = len(starts), settings.length_bounds
    chosen = np.zeros(length, dtype=bool)
    # The first token of word w; a word that the segment's end may have cut is never predicted in a span.
    words = np.flatnonzero(starts).tolist()
    word_from = np.searchsorted(words, np.arange(length)).tolist()
    place, left = 0, wanted
    while place < length and left:
        size = min(int(np.searchsorted(bounds, rng.random(), side="right")) + 1, left)
        context = size * settings.alpha // settings.beta
        before = int(rng.random() * context)
        if place + before >= length or (word := word_from[place + before]) == len(words):
            break
        begin = words[word]
        if settings.reference_defects:
            end = begin + size
        else:
            if word + size >= len(words):
                break
            while size and words[word + size] - begin > left:
                size -= 1
            # A word longer than what is left is passed over with its context.
            end = words[word + size] if size else words[word + 1]
        if end >= length:
            break
        if size:
            chosen[begin:end] = True
            left -= end - begin
        place = end + context - before
    return chosen
