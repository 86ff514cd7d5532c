"""The most probable answer spans of a passage, from the outputs for its windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from albertine.inference.probabilities import sigmoid, softmax
from albertine.inference.windows import PassageTokens, Window, WindowSettings, owners

Span = tuple[int, int]
"""Characters of the passage: begin, and end (exclusive)."""
Candidates = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""First and last positions in the row, and scores that are comparable between windows."""


class AnswerSpan(NamedTuple):
    """Characters of the passage from `begin` to `end` (exclusive), and its probability among the best."""

    begin: int
    end: int
    probability: float


@dataclass(frozen=True)
class LikelySpans:
    """The predicted answers to a question.

    Attributes:
        spans: probability of the best spans, the most probable first, sum 1. Empty if no span is valid.
        no_answer: probability that the passage does not answer the question; None without a no-answer head.
    """

    spans: Mapping[Span, float]
    no_answer: float | None = None

    def best(self, threshold: float = 1.0) -> AnswerSpan | None:
        """The most probable span; None if there is none, or `no_answer` is above the threshold."""
        if not self.spans or (self.no_answer is not None and self.no_answer > threshold):
            return None
        (begin, end), probability = next(iter(self.spans.items()))
        return AnswerSpan(begin, end, probability)


class SpanTable(NamedTuple):
    """The joint head's outputs for every window (`model.answerability_head`): the best ends for each of the
    best starts.

    Attributes:
        starts, ends: (S, spans) positions in the row, int64.
        scores: (S, spans) log-probability of the start plus that of the end given it.
        impossible: (S,) logit that the window has no answer.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    scores: NDArray[np.float32]
    impossible: NDArray[np.float32]

    @classmethod
    def of(cls, table: NDArray[np.float32]) -> SpanTable:
        """From the head's rows (S, 3·spans + 1), which are these four side by side."""
        starts, ends, scores = np.split(table[:, :-1], 3, axis=1)
        return cls(starts.astype(np.int64), ends.astype(np.int64), scores, table[:, -1])


def spans_from_logits(
    windows: Sequence[Window],
    logits: Sequence[NDArray[np.float32]],
    passage: PassageTokens,
    reading: WindowSettings,
) -> LikelySpans:
    """The spans with the largest sums of start and end logits, (tokens of the row, 2) of every window (SQuAD
    v1.1 of BERT and ALBERT)."""
    owner = owners(windows, len(passage.ids))

    def candidates() -> Iterator[Candidates]:
        for number, (window, table) in enumerate(zip(windows, logits, strict=True)):
            inside = table[window.offset : window.offset + window.size].astype(np.float64)
            mine = np.flatnonzero(owner[window.first : window.first + window.size] == number)
            first, last = _top(inside[:, 0], reading.best, mine), _top(inside[:, 1], reading.best)
            score = inside[first, 0][:, None] + inside[last, 1]
            pairs = np.broadcast_arrays(first[:, None], last)
            yield pairs[0].ravel() + window.offset, pairs[1].ravel() + window.offset, score.ravel()

    return LikelySpans(_best(windows, owner, list(candidates()), passage, reading))


def spans_from_table(
    windows: Sequence[Window], beam: SpanTable, passage: PassageTokens, reading: WindowSettings
) -> LikelySpans:
    """The joint head's spans by log-probability; the no-answer probability is the minimum over the windows,
    as in the reference code."""
    owner = owners(windows, len(passage.ids))
    table = zip(beam.starts, beam.ends, beam.scores.astype(np.float64), strict=True)
    no_answer = float(sigmoid(beam.impossible.min()))
    return LikelySpans(_best(windows, owner, list(table), passage, reading), no_answer)


def mean_spans(found: Sequence[LikelySpans], best: int) -> LikelySpans:
    """The mean of several models' probabilities, 0 for a span that a model does not have (Lan et al. 2019,
    section 4.9)."""
    total: dict[Span, float] = {}
    for one in found:
        for span, probability in one.spans.items():
            total[span] = total.get(span, 0.0) + probability / len(found)
    order = sorted(total.items(), key=lambda item: -item[1])
    sure = [one.no_answer for one in found if one.no_answer is not None]
    return LikelySpans(dict(order[:best]), sum(sure) / len(sure) if sure else None)


def _top(
    values: NDArray[np.float64], count: int, among: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Positions of the largest values, the largest first."""
    chosen = np.arange(len(values)) if among is None else among
    order: NDArray[np.int64] = chosen[np.argsort(-values[chosen], kind="stable")[:count]]
    return order


def _best(
    windows: Sequence[Window],
    owner: NDArray[np.int32],
    candidates: Sequence[Candidates],
    passage: PassageTokens,
    reading: WindowSettings,
) -> dict[Span, float]:
    begins, ends, scores = [], [], []
    for number, (window, (first, last, score)) in enumerate(zip(windows, candidates, strict=True)):
        inside = (first >= window.offset) & (last < window.offset + window.size)
        inside &= (first <= last) & (last < first + reading.longest) & np.isfinite(score)
        # Now both are positions in the passage, and the window must be the owner of the start.
        first, last = (place[inside] - window.offset + window.first for place in (first, last))
        mine = owner[first] == number
        begins.append(passage.starts[first[mine]])
        ends.append(passage.ends[last[mine]])
        scores.append(score[inside][mine])
    begin, end, score = (np.concatenate(part) for part in (begins, ends, scores))
    found: dict[Span, float] = {}
    for i in np.argsort(-score, kind="stable").tolist():
        if len(found) == reading.best:
            break
        if begin[i] < end[i]:  # a token may cover no characters
            found.setdefault((int(begin[i]), int(end[i])), float(score[i]))
    if not found:
        return {}
    return dict(zip(found, softmax(np.array(list(found.values()))).tolist(), strict=True))
