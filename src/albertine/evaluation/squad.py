"""Exact match and F1 of SQuAD v1.1 and v2.0 answers, by the rules of the official scripts.

Both texts are lowercased, ASCII punctuation is deleted, the words a, an, the become a space, and white space
is collapsed. All scores are per cent.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from functools import lru_cache

from albertine.evaluation.answer_matching import MatchRules, common

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@lru_cache(maxsize=1 << 16)  # one answer is compared with several, by several scores
def normalize(text: str) -> str:
    """A text normalized as in the official scripts."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


SQUAD = MatchRules(normalize, str.split, common)


def score_v1(gold: Mapping[str, Sequence[str]], answers: Mapping[str, str]) -> dict[str, float]:
    """`exact` and `f1` of v1.1: the maximum over the gold answers; a missing prediction scores 0.

    Args:
        gold: the gold answers of every question by its id, at least one each.
    """
    if not gold:
        raise ValueError("nothing to score")
    total = {"exact": 0.0, "f1": 0.0}
    for name, rights in gold.items():
        if name in answers:
            total["exact"] += max(SQUAD.exact(right, answers[name]) for right in rights)
            total["f1"] += max(SQUAD.f1(right, answers[name]) for right in rights)
    return {metric: 100 * value / len(gold) for metric, value in total.items()}


def score_v2(
    gold: Mapping[str, Sequence[str]],
    answers: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
    rules: MatchRules = SQUAD,
) -> dict[str, float]:
    """Scores of v2.0: `exact`, `f1`, the same of questions with (`has_answer_…`) and without an answer
    (`no_answer_…`), and with `no_answer` the best thresholds and their scores.

    Args:
        gold: the gold answers by id; none for a question that has no answer. Questions without a prediction
            are left out of the scores.
        no_answer: probability of no answer, by id; above `threshold` the answer counts as empty.
        rules: that compare answers; SQuAD's are for English.
    """
    rights = {name: [a for a in texts if rules.plain(a)] or [""] for name, texts in gold.items()}
    there = {name: bool(texts) for name, texts in gold.items()}  # by the file, before normalization
    raw = {
        "exact": {n: max(rules.exact(r, answers[n]) for r in rights[n]) for n in rights if n in answers},
        "f1": {
            n: max(rules.f1(r, answers[n], empty_counts=True) for r in rights[n])
            for n in rights
            if n in answers
        },
    }
    if not raw["exact"]:
        raise ValueError("nothing to score")
    sure = no_answer or {}
    scores: dict[str, float] = {}
    for metric, values in raw.items():
        kept = {
            name: float(not there[name]) if sure.get(name, 0.0) > threshold else value
            for name, value in values.items()
        }
        groups = (
            ("", list(kept)),
            ("has_answer_", [n for n in kept if there[n]]),
            ("no_answer_", [n for n in kept if not there[n]]),
        )
        for prefix, names in groups:
            if names:
                scores[f"{prefix}{metric}"] = 100 * sum(kept[n] for n in names) / len(names)
    if no_answer is not None:
        for metric, values in raw.items():
            best, at = best_threshold(values, answers, there, no_answer)
            scores |= {f"best_{metric}": best, f"best_{metric}_threshold": at}
    return scores


def best_threshold(
    scores: Mapping[str, float],
    answers: Mapping[str, str],
    there: Mapping[str, bool],
    no_answer: Mapping[str, float],
) -> tuple[float, float]:
    """The best score in per cent, and the threshold of `no_answer` that gives it.

    Questions become answered in the order of increasing `no_answer`: one with an answer adds its score, one
    without loses its point, unless the prediction is empty.
    """
    current = best = float(sum(not has for has in there.values()))
    at = 0.0
    for name in sorted(no_answer, key=no_answer.__getitem__):
        if name not in scores:
            continue
        if there[name]:
            current += scores[name]
        elif answers[name]:
            current -= 1
        if current > best:
            best, at = current, no_answer[name]
    return 100 * best / len(scores), at
