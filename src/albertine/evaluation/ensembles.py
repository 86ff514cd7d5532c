"""Ensembles: the mean of members' probabilities, and the selection of members.

Probabilities are averaged, not logits (Lan et al. 2019, section 4.9); members are selected by their score on
the dev set, either the best ones or by forward selection (Caruana et al. 2004, here without replacement).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from albertine.inference.probabilities import sigmoid, softmax

Outputs = NDArray[Any]
"""Outputs of a member, float32."""
Rule = Literal["greedy", "best"]


def mean_softmax(outputs: Sequence[Outputs]) -> Outputs:
    """Logits whose softmax over the last dimension is the mean of the members' softmax.

    Args:
        outputs: logits of the same shape, one array per member; minus infinity stays.
    """
    with np.errstate(divide="ignore"):
        found: Outputs = np.log(_mean(map(softmax, outputs))).astype(np.float32)
    return found


def mean_sigmoid(outputs: Sequence[Outputs]) -> Outputs:
    """Logits whose sigmoid is the mean of the members' sigmoids."""
    mean = _mean(map(sigmoid, outputs))
    with np.errstate(divide="ignore"):
        found: Outputs = (np.log(mean) - np.log1p(-mean)).astype(np.float32)
    return found


def mean_score(outputs: Sequence[Outputs]) -> Outputs:
    """The mean of the members' outputs."""
    mean: Outputs = _mean(x.astype(np.float64) for x in outputs).astype(np.float32)
    return mean


def _mean(parts: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The mean, with one array beside the sum in memory at a time. Modifies the first array."""
    total, count = np.zeros(()), 0
    for count, part in enumerate(parts, 1):
        total = part if count == 1 else np.add(total, part, out=total)
    return total / count


def best_members(scores: Sequence[float], count: int) -> tuple[int, ...]:
    """The `count` members with the highest scores, the best first; of equals the earlier one."""
    return tuple(sorted(range(len(scores)), key=lambda i: -scores[i])[:count])


def greedy_members(
    candidates: int, count: int, score: Callable[[Sequence[int]], float]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Forward selection: start with the best candidate, repeatedly add the one with which the ensemble scores
    highest, up to `count`, and keep the prefix that scored highest.

    Args:
        score: of an ensemble of candidates by their indices; higher is better.

    Returns:
        The members in the order of selection, and the score after each. Of equal scores the earlier candidate
        and the smaller ensemble win.
    """
    taken: list[int] = []
    scores: list[float] = []
    while len(taken) < min(count, candidates):
        left = [i for i in range(candidates) if i not in taken]
        tried = [score([*taken, i]) for i in left]
        highest = max(tried)
        taken.append(left[tried.index(highest)])
        scores.append(highest)
    keep = scores.index(max(scores)) + 1
    return tuple(taken[:keep]), tuple(scores[:keep])
