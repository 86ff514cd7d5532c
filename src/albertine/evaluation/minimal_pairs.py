"""Accuracy on minimal pairs, with standard errors, by paradigm and phenomenon."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from albertine.evaluation.suites import PairSuite, Paradigm

TIE = 1e-4
"""Difference in nats up to which two sentences tie: the rounding error of float32, so that a model without
word order ties on sentences that differ only in it."""

Scoring = Literal["pll", "causal"]
"""Pseudo-log-likelihood, or log-likelihood from left to right."""
Scorer = Callable[[Sequence[str]], tuple[NDArray[np.float64], NDArray[np.int64]]]
"""The log-likelihood of every text, in nats, and how many tokens it has."""


@dataclass(frozen=True)
class PairAccuracy:
    """Accuracy on minimal pairs.

    Attributes:
        value: mean of 1 for a correct pair, 1/2 for a tie and 0 otherwise. error: its standard error; None
        for
            a paradigm of one pair.
        by_perplexity: the same by the mean over the tokens of a sentence in place of their sum.
        pairs: number of pairs. published: accuracies of other models by name, by `PairSuite.published_by`.
    """

    value: float
    error: float | None
    by_perplexity: float
    pairs: int
    published: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "right": self.value,
            "standard_error": self.error,
            "right_by_perplexity": self.by_perplexity,
            "pairs": self.pairs,
            "published": dict(self.published),
        }


@dataclass(frozen=True)
class SuiteScores:
    """Scores of a suite.

    Attributes:
        overall: mean over the paradigms, except those of the phenomenon `aside`.
        phenomena: means over their paradigms. paradigms: by name.
        scoring: of the sentences.
    """

    suite: PairSuite
    overall: PairAccuracy
    phenomena: Mapping[str, PairAccuracy]
    paradigms: Mapping[str, PairAccuracy]
    scoring: Scoring = "pll"

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "suite": self.suite.name,
            "scoring": self.scoring,
            "published_by": self.suite.published_by,
            **self.overall.as_dict(),
            "not_in_the_mean": [self.suite.aside] if self.suite.aside else [],
            "phenomena": {name: share.as_dict() for name, share in self.phenomena.items()},
            "paradigms": {
                p.name: {"phenomenon": p.phenomenon, **self.paradigms[p.name].as_dict()}
                for p in self.suite.paradigms
            },
        }


def score_suite(suite: PairSuite, score: Scorer, scoring: Scoring = "pll") -> SuiteScores:
    """Score a model: a pair is correct where the acceptable sentence has the higher sum (T = 1, no division
    by length), and counts half for a tie (2025.babylm-main.16: with ties as correct, chance level is 54)."""
    texts = [text for paradigm in suite.paradigms for pair in paradigm.pairs for text in pair]
    nats, tokens = score(texts)
    at, shares = 0, {}
    for paradigm in suite.paradigms:
        own = slice(at, at + 2 * len(paradigm.pairs))
        at = own.stop
        sums, means = (x[own].reshape(-1, 2).T for x in (nats, nats / np.maximum(tokens, 1)))
        shares[paradigm.name] = _share(points(*sums), points(*means), paradigm)
    by_phenomenon: dict[str, list[PairAccuracy]] = {}
    for paradigm in suite.paradigms:
        by_phenomenon.setdefault(paradigm.phenomenon, []).append(shares[paradigm.name])
    counted = [share for name, own in by_phenomenon.items() if name != suite.aside for share in own]
    overall = _mean(counted)
    return SuiteScores(
        suite,
        replace(overall, published=suite.published),
        {name: _mean(own) for name, own in by_phenomenon.items()},
        shares,
        scoring,
    )


def points(good: NDArray[np.float64], bad: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 for a pair whose acceptable sentence is more likely, 1/2 for a tie, 0 otherwise; (pairs,)."""
    return np.where(np.abs(good - bad) <= TIE, 0.5, np.where(good > bad, 1.0, 0.0))


def _share(own: NDArray[np.float64], by_mean: NDArray[np.float64], paradigm: Paradigm) -> PairAccuracy:
    error = math.sqrt(float(own.var(ddof=1)) / len(own)) if len(own) > 1 else None
    return PairAccuracy(float(own.mean()), error, float(by_mean.mean()), len(own), paradigm.published)


def _mean(shares: Sequence[PairAccuracy]) -> PairAccuracy:
    """The unweighted mean of independent accuracies; published ones only where all have them."""
    names = [name for name in shares[0].published if all(name in s.published for s in shares)]
    errors = [s.error for s in shares if s.error is not None]
    return PairAccuracy(
        sum(s.value for s in shares) / len(shares),
        math.hypot(*errors) / len(shares) if len(errors) == len(shares) else None,
        sum(s.by_perplexity for s in shares) / len(shares),
        sum(s.pairs for s in shares),
        {name: sum(s.published[name] for s in shares) / len(shares) for name in names},
    )
