"""Relation extraction in two stages: all subjects first, then for each subject the objects of every
predicate. The encoder runs once for a text, whatever the number of subjects."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from albertine.core.token_batches import batch_by_tokens
from albertine.errors import NotFinite
from albertine.tokenizers.base import Spans

MAX_ROWS = 16384
"""Maximum tokens of an object pass, a text counted once for each subject."""

THRESHOLDS = (0.6, 0.5)
PointerSpan = tuple[int, int, int]
"""Kind (predicate), first and last token."""


class Relation(NamedTuple):
    """A relation; subject and object are characters of the text, begin and end (exclusive)."""

    subject: tuple[int, int]
    predicate: str
    object: tuple[int, int]

    def words(self, text: str) -> tuple[str, str, str]:
        """Subject, predicate and object as strings."""
        return text[slice(*self.subject)], self.predicate, text[slice(*self.object)]


def pointer_spans(
    probabilities_RK2: NDArray[Any], lengths: Sequence[int], thresholds: tuple[float, float], lead: int = 1
) -> list[list[PointerSpan]]:
    """Spans from pointer probabilities: every first token above its threshold with the nearest last token of
    the same kind at or after it that is above its own.

    Args:
        probabilities_RK2: probability of every row to be the first and the last token of a span of kind k.
        lengths: rows of every text; no span crosses texts.
        lead: how many of the two special tokens precede a text, as in `EncoderConfig`; they are excluded.

    Returns:
        For every text (kind, first, last), counted from its first row.

    Raises:
        NotFinite: a probability is not finite.
    """
    if not np.isfinite(probabilities_RK2).all():  # NaN compares as below every threshold
        raise NotFinite
    offsets = [0, *accumulate(lengths)]
    found: list[list[PointerSpan]] = [[] for _ in lengths]
    firsts, lasts = (
        np.argwhere(probabilities_RK2[..., side] > threshold) for side, threshold in enumerate(thresholds)
    )
    ends: dict[tuple[int, int], list[int]] = defaultdict(list)
    for run, place, kind in _by_text(lasts, offsets, lead):
        ends[run, kind].append(place)
    for run, place, kind in _by_text(firsts, offsets, lead):
        after = ends.get((run, kind), [])
        if (at := bisect_left(after, place)) < len(after):
            found[run].append((kind, place, after[at]))
    return found


def _by_text(hits: np.ndarray, offsets: Sequence[int], lead: int) -> list[tuple[int, int, int]]:
    """(text, position in it, kind) of (row, kind) pairs, without the special tokens."""
    edges = np.asarray(offsets)
    runs = np.searchsorted(edges, hits[:, 0], side="right") - 1
    places = hits[:, 0] - edges[runs]
    inside = (places >= lead) & (hits[:, 0] < edges[runs + 1] - 2 + lead)
    return list(zip(*(x[inside].tolist() for x in (runs, places, hits[:, 1])), strict=True))


Subject = tuple[int, int, int]
"""Index of a text, first and last token of the subject in its row."""


class PointerModel(Protocol):
    """A relation model after it has encoded some texts."""

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of every row."""
        ...

    def subjects(self) -> NDArray[Any]:
        """Probabilities (T, 2) of every token to be the first and the last token of a subject."""
        ...

    def objects(self, subjects: Sequence[Subject]) -> NDArray[Any]:
        """Probabilities (R, predicates, 2) of first and last tokens of objects: for each subject the rows of
        its text."""
        ...


def relations(
    model: PointerModel,
    spans: Sequence[Spans],
    predicates: Sequence[str],
    thresholds: tuple[float, float] = THRESHOLDS,
    lead: int = 1,
) -> list[list[Relation]]:
    """The relations of every text, [CLS] text [SEP] or XLNet's text [SEP] [CLS].

    Args:
        model: has encoded the texts. spans: the characters of the tokens of each text.
        predicates: in the order of their numbers.
        thresholds: a token is first or last where its probability is above this.
        lead: as in `pointer_spans`.
    """
    lengths = model.lengths
    subjects = [
        (text, first, last)
        for text, places in enumerate(pointer_spans(model.subjects()[:, None], lengths, thresholds, lead))
        for _, first, last in places
    ]
    found: list[list[Relation]] = [[] for _ in lengths]
    sizes = [lengths[text] for text, _, _ in subjects]
    for chosen in batch_by_tokens(range(len(subjects)), sizes, MAX_ROWS):
        about = [subjects[i] for i in chosen]
        own = [lengths[text] for text, _, _ in about]
        objects = pointer_spans(model.objects(about), own, thresholds, lead)
        for (text, *subject), places in zip(about, objects, strict=True):
            for kind, *thing in places:
                ends = [_characters(spans[text], tokens, lead) for tokens in (subject, thing)]
                if ends[0] is not None and ends[1] is not None:
                    found[text].append(Relation(ends[0], predicates[kind], ends[1]))
    # A word-boundary token covers no characters, so spans with and without it are duplicates.
    return [list(dict.fromkeys(own)) for own in found]


def _characters(spans: Spans, tokens: Sequence[int], lead: int) -> tuple[int, int] | None:
    """The characters from a first to a last token of the row; None where they cover no characters."""
    first, last = tokens[0] - lead, tokens[1] - lead + 1
    begin, end = spans.starts[first], max(spans.ends[first:last])
    return (begin, end) if end > begin else None
