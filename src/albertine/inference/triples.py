"""Subject, predicate and object out of a text, in two stages: all subjects first, then for each of them the
objects of every predicate. The encoder reads a text once, however many subjects it has."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from albertine.grouping import by_tokens
from albertine.inference.mode import without_gradients
from albertine.text.tokenizer import Spans

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.layout import Packed
    from albertine.model.relation_head import Relations

TOGETHER = 16384
"""Most rows of which the objects are looked for at once."""

THRESHOLDS = (0.6, 0.5)
Place = tuple[int, int, int]
"""Kind, first and last token."""


class Relation(NamedTuple):
    """One finding; subject and object are characters of the text, first and end (exclusive)."""

    subject: tuple[int, int]
    predicate: str
    object: tuple[int, int]

    def words(self, text: str) -> tuple[str, str, str]:
        """Subject, predicate and object as they stand in the text."""
        return text[slice(*self.subject)], self.predicate, text[slice(*self.object)]


def pointed(
    chances_RK2: Tensor, lengths: Sequence[int], thresholds: tuple[float, float], lead: int = 1
) -> list[list[Place]]:
    """Where pointers point: every first token above its threshold with the nearest last token at or after it
    that is of the same kind and above its own.

    Args:
        chances_RK2: probability of every row to be the first and the last token of something of kind k.
        lengths: of the runs of rows; nothing reaches over two.
        lead: how many of a run's two special pieces are before its text, as in `EncoderConfig`; they are
            never pointed to.

    Returns:
        For every run (kind, first, last), counted from the run's beginning.
    """
    offsets = [0, *accumulate(lengths)]
    found: list[list[Place]] = [[] for _ in lengths]
    firsts, lasts = (
        (chances_RK2[..., side] > threshold).nonzero().cpu().numpy()
        for side, threshold in enumerate(thresholds)
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


@dataclass(frozen=True)
class Relater:
    """A model that finds relations.

    Attributes:
        predicates: in the order of their numbers.
        thresholds: a token is first or last where its probability is more than this.
    """

    model: Relations
    predicates: tuple[str, ...]
    thresholds: tuple[float, float] = THRESHOLDS

    @property
    def _lead(self) -> int:
        return self.model.base.config.lead

    @without_gradients
    def find(self, packed: Packed, spans: Sequence[Spans]) -> list[list[Relation]]:
        """The relations of every sequence, [CLS] text [SEP] or XLNet's text [SEP] [CLS].

        Args:
            spans: where the tokens of each text stand in it.
        """
        from albertine.model.relation_head import SUBJECT_POWER, probability

        x_TH, lengths = self.model.base.encoder(packed).last_hidden, packed.lengths
        offsets = [0, *accumulate(lengths)]
        chances = probability(self.model.subjects(x_TH), SUBJECT_POWER)[:, None]
        subjects = [
            (text, first, last)
            for text, places in enumerate(pointed(chances, lengths, self.thresholds, self._lead))
            for _, first, last in places
        ]
        found: list[list[Relation]] = [[] for _ in lengths]
        sizes = [lengths[text] for text, _, _ in subjects]
        for chosen in by_tokens(range(len(subjects)), sizes, TOGETHER):
            asked = [subjects[i] for i in chosen]
            objects = self._objects(x_TH, [(offsets[t], lengths[t], a, b) for t, a, b in asked])
            for (text, *subject), places in zip(asked, objects, strict=True):
                for kind, *thing in places:
                    ends = [_characters(spans[text], tokens, self._lead) for tokens in (subject, thing)]
                    if ends[0] is not None and ends[1] is not None:
                        found[text].append(Relation(ends[0], self.predicates[kind], ends[1]))
        # A space marker stands on no character: with and without it a name is the same.
        return [list(dict.fromkeys(relations)) for relations in found]

    def _objects(self, x_TH: Tensor, asked: Sequence[tuple[int, int, int, int]]) -> list[list[Place]]:
        """The objects of subjects, each (first row of its text, length of that, first, last)."""
        import torch

        from albertine.model.relation_head import OBJECT_POWER, probability

        lengths = [length for _, length, _, _ in asked]
        rows = np.concatenate([np.arange(at, at + length) for at, length, _, _ in asked])
        ends = [[at + first, at + last] for at, _, first, last in asked]
        owner = np.repeat(np.arange(len(asked)), lengths)
        rows_R, ends_S2, owner_R = (torch.as_tensor(x, device=x_TH.device) for x in (rows, ends, owner))
        logits = self.model.objects(x_TH.index_select(0, rows_R), x_TH[ends_S2], owner_R)
        return pointed(probability(logits, OBJECT_POWER), lengths, self.thresholds, self._lead)


def _characters(spans: Spans, tokens: Sequence[int], lead: int) -> tuple[int, int] | None:
    """The characters of a run of tokens, given by the places of its ends in the row; None where nothing
    visible is pointed to."""
    first, last = tokens[0] - lead, tokens[1] - lead + 1
    begin, end = spans.starts[first], max(spans.ends[first:last])
    return (begin, end) if end > begin else None
