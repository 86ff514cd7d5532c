"""Metrics of question answering by name, in [0, 1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from albertine.evaluation import chinese
from albertine.evaluation.answer_matching import MatchRules
from albertine.evaluation.chinese import CMRC, DUREADER, MLQA
from albertine.evaluation.score_groups import OneScore, Script
from albertine.evaluation.squad import SQUAD, score_v1, score_v2

Gold = Sequence[Sequence[str]]
T = TypeVar("T")

RULES: Mapping[str, MatchRules] = {"squad": SQUAD, "cmrc": CMRC, "dureader": DUREADER, "mlqa": MLQA}
"""Rules that compare answers, by name."""
SQUAD2_METRICS = ("best_f1", "best_exact", "f1", "exact")
"""Metrics of questions that may have no answer."""


class AnswerDecision(NamedTuple):
    """The prediction for a question that may have no answer.

    Attributes:
        best: text of the best span. no_answer: probability that there is no answer.
        text: the final answer: `best`, or "" above the threshold.
    """

    best: str
    no_answer: float
    text: str


def squad2(gold: Gold, predicted: Sequence[AnswerDecision], rules: str = "squad") -> dict[str, float]:
    """All scores of SQuAD v2.0, per cent: `exact`, `f1` and their groups for the final answers, and for the
    best spans at the best threshold (`best_f1`, `best_f1_threshold`, the same of `exact`).

    Args:
        rules: that compare answers, one of `RULES`.
    """
    rights = _named(gold, len(predicted))
    none, by = _named([p.no_answer for p in predicted]), RULES[rules]
    scores = score_v2(rights, _named([p.text for p in predicted]), rules=by)
    best = score_v2(rights, _named([p.best for p in predicted]), none, rules=by)
    return scores | {name: value for name, value in best.items() if name.startswith("best_")}


def squad2_prefix(rules: str) -> str:
    """The prefix of the names of SQuAD v2.0 metrics with these rules."""
    return "squad2" if rules == "squad" else f"squad2_by_{rules}"


def _named(values: Sequence[T], wanted: int | None = None) -> dict[str, T]:
    if wanted is not None and len(values) != wanted:
        raise ValueError(f"{len(values)} questions and {wanted} predictions")
    return {str(i): value for i, value in enumerate(values)}


def _squad(gold: Gold, predicted: Sequence[str]) -> dict[str, float]:
    return _shares(score_v1(_named(gold, len(predicted)), _named(predicted)))


def _squad2(rules: str) -> Script:
    return lambda gold, predicted: _shares(squad2(gold, predicted, rules))


def _chinese(rules: MatchRules) -> Script:
    return lambda gold, predicted: _shares(
        chinese.score(_named(gold, len(predicted)), _named(predicted), rules)
    )


def _shares(scores: Mapping[str, float]) -> dict[str, float]:
    return {name: value / 100 for name, value in scores.items()}


_SCRIPTS: Mapping[str, tuple[Script, tuple[str, ...]]] = {
    "squad": (_squad, ("f1", "exact")),
    **{squad2_prefix(rules): (_squad2(rules), SQUAD2_METRICS) for rules in RULES},
    "cmrc": (_chinese(CMRC), ("average", "f1", "exact")),
    "dureader": (_chinese(DUREADER), ("f1", "exact")),
    "mlqa": (_chinese(MLQA), ("f1", "exact")),
}
ANSWER_METRICS = {
    f"{kind}_{name}": OneScore(script, name) for kind, (script, names) in _SCRIPTS.items() for name in names
}
