"""Targets of a permutation LM: spans of words, each with a context that is not predicted.

XLNet predicts about one token in α/β: it walks over a segment, draws n words with p(n) proportional to 1/n,
places them in a context of n·α/β tokens, a uniform number of them on the left, and continues after that
context (1906.08237, section 2.3; zihangdai/xlnet, `data_utils.py`, `_sample_mask`). Missing predictions are
filled with random tokens, so that every segment has the same number.

Two things differ. The official loop that should end a span after n words tests the wrong token for the
beginning of a word, so its n counts tokens; here a span ends at a word boundary, unless `reference_defects`
is set. And a span longer than the remaining predictions is shortened by whole words; a word that does not fit
is skipped.
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
        reference_defects: n counts tokens from the start of a word on, as in the official code.
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
    """Exactly `wanted` tokens (L,) to predict in a segment, or in a half of one.

    The caller drops [SEP] and [CLS] from them; the official code draws them too.

    Args:
        word_starts: (L,) in the order of the segment; functional tokens are words.
        wanted: at most L.
        backward: the segment runs against the text. Spans are drawn in reading order all the same, because a
            word starts with its first token there.
    """
    starts = word_starts[::-1] if backward else word_starts
    chosen = _walk(starts, wanted, settings, rng)
    left = np.flatnonzero(~chosen)
    # Single tokens anywhere, as in the official code, regardless of words.
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
            # A word longer than the remaining predictions is skipped with its context.
            end = words[word + size] if size else words[word + 1]
        if end >= length:
            break
        if size:
            chosen[begin:end] = True
            left -= end - begin
        place = end + context - before
    return chosen
