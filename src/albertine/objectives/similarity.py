"""Losses of text vectors: contrastive, cosine regression and ranking.

All use cosines, multiplied before a softmax by a scale, the inverse of the temperature.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.objectives.losses import Part

NEAR = 0.1
"""Maximum distance of a cosine from its score that counts as correct: half a point of the five of STS-B."""


def contrastive(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    texts: Tensor,
    *,
    scale: float,
    symmetric: bool = False,
) -> Part:
    """Find the positive of every anchor among the positives and hard negatives of the whole batch.

    InfoNCE (van den Oord et al. 2018) with in-batch negatives, as in SimCSE (Gao et al. 2021, equations 1 and
    5). False negatives are masked: candidates of an example that shares a text with this one, and hard
    negatives equal to one of the two texts.

    Args:
        anchors, positives: (n, H). negatives: (m, H), of the examples that have one, in their order.
        texts: numbers of each example's anchor, positive and negative, int64 (n, 3), -1 for no negative;
            equal texts have equal numbers.
        symmetric: also find the anchor of every positive among the anchors; the loss is the mean of both.
    """
    n = len(anchors)
    candidates = F.normalize(torch.cat([positives, negatives]), dim=-1)
    scores = scale * F.normalize(anchors, dim=-1) @ candidates.T
    shared, refuted = _no_negatives(texts)
    own = torch.arange(n, device=anchors.device)
    logits = scores.masked_fill(torch.cat([shared, refuted], 1), float("-inf"))
    total = F.cross_entropy(logits, own, reduction="sum")
    if symmetric:
        back = scores[:, :n].T.masked_fill(shared, float("-inf"))
        total = (total + F.cross_entropy(back, own, reduction="sum")) / 2
    return Part(total, n, (logits.argmax(-1) == own).sum())


def _no_negatives(texts: Tensor) -> tuple[Tensor, Tensor]:
    """Masks of false negatives: other examples that share a text, (n, n), and hard negatives equal to one of
    the own two texts, (n, m)."""
    anchor, positive, negative = texts.unbind(1)
    mine = texts[:, :2]
    shared = (mine[:, None, :, None] == mine[None, :, None, :]).any(-1).any(-1)
    given = negative[negative >= 0]
    refuted = (anchor[:, None] == given) | (positive[:, None] == given)
    return shared & ~torch.eye(len(texts), dtype=torch.bool, device=texts.device), refuted


def cosine_error(cosines: Tensor, scores: Tensor) -> Part:
    """Squared difference of the cosine of each pair and its score in [0, 1], both (n,) (Reimers and Gurevych
    2019, section 3)."""
    gap = cosines - scores
    return Part(gap.square().sum(), len(scores), (gap.abs() < NEAR).sum())


def cosent(cosines: Tensor, scores: Tensor, *, scale: float) -> Part:
    """Ranking loss: log(1 + sum of exp(scale (cos_j - cos_i))) over all i, j where pair i has the higher
    score (CoSENT, Su 2022).

    One number for the whole batch, counted for each of the n pairs, so that processes with more pairs weigh
    more. `correct` is n times the share of i, j in the right order.

    Args:
        cosines, scores: (n,); only the order of the scores matters.
    """
    gaps = scale * (cosines[None, :] - cosines[:, None])
    ordered = scores[:, None] > scores[None, :]
    terms = gaps.masked_fill(~ordered, float("-inf")).flatten()
    total = torch.logsumexp(F.pad(terms, (1, 0)), 0)  # the zero in front is the 1 in the logarithm
    share = ((gaps < 0) & ordered).sum() / ordered.sum().clamp(min=1)
    return Part(total * len(scores), len(scores), (share * len(scores)).round().long())
