"""The scores of classification and similarity tasks, as GLUE and CLUE count them.

All take gold labels and predictions in the same order and return numbers, in [0, 1] or [-1, 1], not per cent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.evaluation import text_overlap
from albertine.evaluation.answer_scores import ANSWER_METRICS
from albertine.evaluation.entities import Scores, Triple, mean_over_types, micro, plain_triple
from albertine.evaluation.score_groups import OneScore
from albertine.evaluation.text_overlap import mean_best

Floats = NDArray[np.float64]


def accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Share of predictions that are right."""
    _check(gold, predicted)
    return sum(g == p for g, p in zip(gold, predicted, strict=True)) / len(gold)


def f1(gold: Sequence[Hashable], predicted: Sequence[Hashable], positive: Hashable = "1") -> float:
    """F1 of one class (MRPC, QQP: the paraphrases); 0 where that class is neither gold nor predicted."""
    _check(gold, predicted)
    pairs = list(zip(gold, predicted, strict=True))
    hit = sum(g == positive and p == positive for g, p in pairs)
    named = sum((g == positive) + (p == positive) for g, p in pairs)
    return 2 * hit / named if named else 0.0


def macro_f1(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Mean of the F1 of every gold or predicted class."""
    _check(gold, predicted)
    hit = Counter(g for g, p in zip(gold, predicted, strict=True) if g == p)
    named = Counter(gold)
    named.update(predicted)
    return sum(2 * hit[c] / count for c, count in named.items()) / len(named)


def matthews(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Matthews' correlation for any number of classes (CoLA); 0 where either side has one class only.

    R_K of Gorodkin (2004): covariance of the two labelings over the root of the product of their variances.
    """
    _check(gold, predicted)
    classes = {c: i for i, c in enumerate(dict.fromkeys([*gold, *predicted]))}
    table = np.zeros((len(classes), len(classes)))
    for g, p in zip(gold, predicted, strict=True):
        table[classes[g], classes[p]] += 1
    total, right = table.sum(), np.trace(table)
    rows, columns = table.sum(1), table.sum(0)
    spread = (total**2 - (rows**2).sum()) * (total**2 - (columns**2).sum())
    return float((right * total - rows @ columns) / np.sqrt(spread)) if spread else 0.0


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Linear correlation; 0 where one side is constant."""
    _check(gold, predicted)
    x, y = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    x, y = x - x.mean(), y - y.mean()
    spread = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / spread) if spread else 0.0


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Correlation of ranks, equal values sharing their mean rank; 0 where one side is constant, NaN where a
    value is."""
    _check(gold, predicted)
    return pearson(_ranks(gold).tolist(), _ranks(predicted).tolist())


def mean_squared_error(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Mean squared difference (SICK's relatedness)."""
    _check(gold, predicted)
    return float(np.mean((np.asarray(gold) - np.asarray(predicted)) ** 2))


def micro_f1(gold: Sequence[frozenset[str]], predicted: Sequence[frozenset[str]]) -> float:
    """F1 over all (sample, label) pairs, for samples with any number of labels; 1 where there is none on
    either side."""
    _check(gold, predicted)
    hit = sum(len(g & p) for g, p in zip(gold, predicted, strict=True))
    named = sum(len(g) + len(p) for g, p in zip(gold, predicted, strict=True))
    return 2 * hit / named if named else 1.0


def _triples(gold: Sequence[Sequence[Triple]], predicted: Sequence[Sequence[Triple]]) -> dict[str, float]:
    """DuIE's scores, without a dictionary of aliases."""
    own, theirs = ([[plain_triple(t) for t in text] for text in texts] for texts in (gold, predicted))
    return micro(own, theirs)._asdict()


LOWER_IS_BETTER = frozenset({"mean_squared_error"})

METRICS: Mapping[str, Callable[..., float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "mean_squared_error": mean_squared_error,
    "micro_f1": micro_f1,
    "entity_f1": lambda gold, predicted: micro(gold, predicted).f1,
    "entity_macro_f1": mean_over_types,
    **{f"triple_{name}": OneScore(_triples, name) for name in Scores._fields},
    "text_exact": lambda gold, predicted: mean_best(gold, predicted, text_overlap.exact),
    "text_f1": lambda gold, predicted: mean_best(gold, predicted, text_overlap.f1),
    "rouge_l": lambda gold, predicted: mean_best(gold, predicted, text_overlap.rouge_l),
    **ANSWER_METRICS,
}


def score(gold: Sequence[Any], predicted: Sequence[Any], names: Sequence[str]) -> dict[str, float]:
    """The named metrics; a script that computes several of them runs once."""
    metrics = {name: METRICS[name] for name in names}
    scripts = dict.fromkeys(m.script for m in metrics.values() if isinstance(m, OneScore))
    results = {script: script(gold, predicted) for script in scripts}
    return {
        name: results[m.script][m.name] if isinstance(m, OneScore) else m(gold, predicted)
        for name, m in metrics.items()
    }


def _ranks(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    _, place, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    ranks: Floats = (last - (counts - 1) / 2)[place]
    return np.where(np.isnan(array), array, ranks)


def _check(gold: Sequence[object], predicted: Sequence[object]) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold labels and {len(predicted)} predictions")
    if not len(gold):
        raise ValueError("nothing to score")


def metric_sign(metric: str) -> int:
    """1 where a higher value is better, -1 where a lower one is."""
    return -1 if metric in LOWER_IS_BETTER else 1
