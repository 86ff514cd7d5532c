"""Several models as one: the mean of what they say, and which of many candidates to take.

Probabilities are averaged, not logits (Lan et al. 2019, section 4.9); the candidates are picked by their
score on the dev set, either the best ones or by forward selection (Caruana et al. 2004, here without
replacement).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from albertine.inference.probabilities import sigmoid, softmax

Outputs = NDArray[Any]
"""What a member says: numbers, float32."""
Rule = Literal["greedy", "best"]


def mean_softmax(said: Sequence[Outputs]) -> Outputs:
    """Logits whose softmax over the last dimension is the mean of the members' softmax.

    Args:
        said: logits of the same shape, one a member; minus infinity stays.
    """
    with np.errstate(divide="ignore"):
        found: Outputs = np.log(_mean(map(softmax, said))).astype(np.float32)
    return found


def mean_sigmoid(said: Sequence[Outputs]) -> Outputs:
    """Logits whose sigmoid is the mean of the members' sigmoids."""
    mean = _mean(map(sigmoid, said))
    with np.errstate(divide="ignore"):
        found: Outputs = (np.log(mean) - np.log1p(-mean)).astype(np.float32)
    return found


def mean_score(said: Sequence[Outputs]) -> Outputs:
    """The mean of the members' numbers."""
    mean: Outputs = _mean(x.astype(np.float64) for x in said).astype(np.float32)
    return mean


def _mean(parts: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Their mean; one of them is in memory at a time beside the sum. They are used up."""
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
    """Forward selection: begin with the best one, add again and again the one with which the ensemble scores
    highest, up to `count`, and keep the beginning of that row which scored highest.

    Args:
        score: of an ensemble of candidates by their numbers; the higher the better.

    Returns:
        The members in the order in which they were taken, and the score after each of them. Of equal scores
        the earlier candidate and the smaller ensemble win.
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
