"""Scores on held-out batches that need no context: by token frequencies, by copying, by one constant
label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.unigram_baseline import BaselineScore, Unigram, blind_accuracy
from albertine.pretraining.settings import ObjectiveChoice
from albertine.training.distributed import World


class PairBaselines(NamedTuple):
    """Accuracies on the held-out pairs of all ranks: of the more frequent label, and by the lengths of the
    two segments, which is 0 for other pairs than SOP."""

    majority: float
    by_length: float


class Baselines(NamedTuple):
    """Over the held-out batches of all ranks.

    Attributes:
        unigram: at every predicted token. pairs: None without sentence pairs.
        scores: under the names of a run's scores. Of a masked objective, tokens that are shown are copied and
            the others predicted by frequency; its loss is of [MASK] alone, as that of a copy depends on its
            confidence.
    """

    unigram: BaselineScore
    pairs: PairBaselines | None
    scores: Mapping[str, float]

    @classmethod
    def of(
        cls,
        batches: Sequence[PretrainingBatch],
        counts: NDArray[np.int64],
        objective: ObjectiveChoice,
        world: World,
    ) -> Baselines:
        """
        Args:
            batches: this process' share of the held-out batches.
            counts: of every token in the training text, (V,).
        """
        unigram = Unigram(counts)
        causal = [batch for batch in batches if batch.part == "causal"]
        batches = [batch for batch in batches if batch.part != "causal"]
        baseline = _over_ranks(unigram.score_batches(batches), world)
        scores = {"mlm_loss": baseline.cross_entropy, "mlm_accuracy": baseline.accuracy}
        if objective.kind == "masked":
            scores = _masked_baselines(unigram, batches, world)
        following = _over_ranks(unigram.score_batches(causal), world)
        if following.count:
            scores |= {"causal_loss": following.cross_entropy, "causal_accuracy": following.accuracy}
        pairs = _pair_baselines(batches, objective.pairs, world)
        if pairs is not None:
            scores["sentence_accuracy"] = max(pairs)
        return cls(baseline, pairs, scores)

    @property
    def levels(self) -> dict[str, dict[str, float]]:
        """Horizontal lines for the plots of a run, by the names of the plots."""
        accuracies = ("mlm_accuracy", "sentence_accuracy", "causal_accuracy")
        lines = {name: {"baseline": self.scores[name]} for name in accuracies if name in self.scores}
        losses = {"mlm_loss": self.unigram.cross_entropy}
        losses |= {name: x for name, x in self.scores.items() if name == "causal_loss"}
        return {name: {"unigram baseline": loss} for name, loss in losses.items()} | lines


def _over_ranks(score: BaselineScore, world: World) -> BaselineScore:
    """The baseline over the held-out positions of all ranks; a rank may have none."""
    if world.size == 1:
        return score
    hits, nats, count = world.add_numbers(
        [score.accuracy * score.count, score.cross_entropy * score.count, score.count]
    )
    return BaselineScore(hits / count, nats / count, int(count)) if count else score


def _masked_baselines(
    unigram: Unigram, batches: Sequence[PretrainingBatch], world: World
) -> dict[str, float]:
    masked = _over_ranks(unigram.score_batches(batches, masked=True), world)
    count = sum(len(batch.mlm_labels) for batch in batches)
    right, total = world.add_numbers([blind_accuracy(batches, unigram.guess) * count, count])
    scores = {"mlm_accuracy": right / total if total else 0.0}
    if masked.count:
        scores |= {"mask_loss": masked.cross_entropy, "mask_accuracy": masked.accuracy}
    return scores


def _pair_baselines(batches: Sequence[PretrainingBatch], pairs: str, world: World) -> PairBaselines | None:
    counts = label_counts(batches)
    right = by_length(batches) * float(counts.sum()) if pairs == "sop" else 0.0
    first, second, right = world.add_numbers([*counts.tolist(), right])
    total = first + second
    return PairBaselines(max(first, second) / total, right / total) if total else None


def masked_scores(
    found: Mapping[str, float], unigram: Unigram, batches: Sequence[PretrainingBatch]
) -> dict[str, float]:
    """The scores on [MASK] alone beside their unigram baseline, and the accuracy `floor` of copying.

    Args:
        found: the model's scores on `batches`.
    """
    details = {"floor": blind_accuracy(batches, unigram.guess)}
    details |= {name: found[name] for name in ("cosine", "mean_steps") if name in found}
    level = unigram.score_batches(batches, masked=True)
    if level.count:
        details |= {
            "mask_accuracy": found["mask_accuracy"],
            "mask_loss": found["mask_loss"],
            "mask_baseline": level.accuracy,
            "mask_baseline_loss": level.cross_entropy,
            "mask_count": level.count,
            "context_gain": level.cross_entropy - found["mask_loss"],
        }
    return details


def label_counts(batches: Sequence[PretrainingBatch]) -> Tensor:
    """Number of sentence pairs with label 0 (in order, or truly next) and with label 1, float64 (2,)."""
    labels = [b.sentence_labels for b in batches if b.sentence_labels is not None]
    found = torch.cat(labels) if labels else torch.empty(0, dtype=torch.int64)
    return found[found >= 0].bincount(minlength=2).double()


def by_length(batches: Sequence[PretrainingBatch]) -> float:
    """Accuracy on SOP pairs of taking the longer segment for the second one: a chunk ends with the sentence
    that reaches its length, which is often a long one. A tie counts half."""
    right, total = 0.0, 0
    for batch in batches:
        if batch.sentence_labels is None:
            continue
        parts = batch.packed.token_type_ids.split_with_sizes(list(batch.packed.lengths))
        for label, types in zip(batch.sentence_labels.tolist(), parts, strict=True):
            if label < 0:
                continue
            b = int((types == 1).sum()) - 1  # without its [SEP]
            a = len(types) - b - 3
            right += 0.5 if a == b else float((a > b) == (label == 1))
            total += 1
    return right / total if total else 0.0
