"""Subject, predicate and object out of a text, in two stages: all subjects first, then for each of them the
objects of every predicate. The encoder reads a text once, however many subjects it has."""

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
"""Most rows of which the objects are looked for at once."""

THRESHOLDS = (0.6, 0.5)
PointerSpan = tuple[int, int, int]
"""Kind, first and last token."""


class Relation(NamedTuple):
    """One finding; subject and object are characters of the text, first and end (exclusive)."""

    subject: tuple[int, int]
    predicate: str
    object: tuple[int, int]

    def words(self, text: str) -> tuple[str, str, str]:
        """Subject, predicate and object as they stand in the text."""
        return text[slice(*self.subject)], self.predicate, text[slice(*self.object)]


def pointer_spans(
    chances_RK2: NDArray[Any], lengths: Sequence[int], thresholds: tuple[float, float], lead: int = 1
) -> list[list[PointerSpan]]:
    """Where pointers point: every first token above its threshold with the nearest last token at or after it
    that is of the same kind and above its own.

    Args:
        chances_RK2: probability of every row to be the first and the last token of something of kind k.
        lengths: of the runs of rows; nothing reaches over two.
        lead: how many of a run's two special pieces are before its text, as in `EncoderConfig`; they are
            never pointed to.

    Returns:
        For every run (kind, first, last), counted from the run's beginning.

    Raises:
        NotFinite: a probability is not.
    """
    if not np.isfinite(chances_RK2).all():  # NaN is above no threshold
        raise NotFinite
    offsets = [0, *accumulate(lengths)]
    found: list[list[PointerSpan]] = [[] for _ in lengths]
    firsts, lasts = (
        np.argwhere(chances_RK2[..., side] > threshold) for side, threshold in enumerate(thresholds)
    )
    ends: dict[tuple[int, int], list[int]] = defaultdict(list)
    for run, place, kind in _in_runs(lasts, offsets, lead):
        ends[run, kind].append(place)
    for run, place, kind in _in_runs(firsts, offsets, lead):
        after = ends.get((run, kind), [])
        if (at := bisect_left(after, place)) < len(after):
            found[run].append((kind, place, after[at]))
    return found


def _in_runs(hits: np.ndarray, offsets: Sequence[int], lead: int) -> list[tuple[int, int, int]]:
    """(run, place in it, kind) of (row, kind) pairs, without the special pieces."""
    edges = np.asarray(offsets)
    runs = np.searchsorted(edges, hits[:, 0], side="right") - 1
    places = hits[:, 0] - edges[runs]
    inside = (places >= lead) & (hits[:, 0] < edges[runs + 1] - 2 + lead)
    return list(zip(*(x[inside].tolist() for x in (runs, places, hits[:, 1])), strict=True))


Subject = tuple[int, int, int]
"""Number of a text, and in its row the first and the last token of the subject."""


class PointerModel(Protocol):
    """A model that points, once it has read some texts."""

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of every row."""
        ...

    def subjects(self) -> NDArray[Any]:
        """Probabilities (T, 2) of every token to be the first and the last of a subject."""
        ...

    def objects(self, asked: Sequence[Subject]) -> NDArray[Any]:
        """Probabilities (R, predicates, 2) likewise of objects: for each subject the rows of its text."""
        ...


def relations(
    asked: PointerModel,
    spans: Sequence[Spans],
    predicates: Sequence[str],
    thresholds: tuple[float, float] = THRESHOLDS,
    lead: int = 1,
) -> list[list[Relation]]:
    """The relations of every text, [CLS] text [SEP] or XLNet's text [SEP] [CLS].

    Args:
        asked: what has read them. spans: where the tokens of each text stand in it.
        predicates: in the order of their numbers.
        thresholds: a token is first or last where its probability is more than this.
        lead: as in `pointer_spans`.
    """
    lengths = asked.lengths
    subjects = [
        (text, first, last)
        for text, places in enumerate(pointer_spans(asked.subjects()[:, None], lengths, thresholds, lead))
        for _, first, last in places
    ]
    found: list[list[Relation]] = [[] for _ in lengths]
    sizes = [lengths[text] for text, _, _ in subjects]
    for chosen in batch_by_tokens(range(len(subjects)), sizes, MAX_ROWS):
        about = [subjects[i] for i in chosen]
        own = [lengths[text] for text, _, _ in about]
        objects = pointer_spans(asked.objects(about), own, thresholds, lead)
        for (text, *subject), places in zip(about, objects, strict=True):
            for kind, *thing in places:
                ends = [_characters(spans[text], tokens, lead) for tokens in (subject, thing)]
                if ends[0] is not None and ends[1] is not None:
                    found[text].append(Relation(ends[0], predicates[kind], ends[1]))
    # A space marker stands on no character: with and without it a name is the same.
    return [list(dict.fromkeys(own)) for own in found]


def _characters(spans: Spans, tokens: Sequence[int], lead: int) -> tuple[int, int] | None:
    """The characters of a run of tokens, given by the places of its ends in the row; None where nothing
    visible is pointed to."""
    first, last = tokens[0] - lead, tokens[1] - lead + 1
    begin, end = spans.starts[first], max(spans.ends[first:last])
    return (begin, end) if end > begin else None
