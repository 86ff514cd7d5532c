"""What a model that does not read scores on the held-out batches of a run, to judge its scores by."""

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


class Orders(NamedTuple):
    """Shares of the held-out pairs, of all ranks, that are right without reading them: by one and the same
    answer, the commoner; and of sentence order by their lengths, else 0."""

    commoner: float
    by_length: float


class Baselines(NamedTuple):
    """Of all ranks.

    Attributes:
        baseline: of guessing by frequency at every chosen token. orders: None where there are no pairs.
        scores: by the names of the scores of a run. Of masked words those of a model that copies what it is
            shown of them and guesses the others by frequency; a loss only of these, as that of a copy depends
            on its certainty.
    """

    baseline: BaselineScore
    orders: Orders | None
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
            batches: this process' share of the held-out ones. counts: of every token in the training text.
        """
        unigram = Unigram(counts)
        baseline = _over_all(unigram.score_batches(batches), world)
        scores = {"mlm_loss": baseline.cross_entropy, "mlm_accuracy": baseline.accuracy}
        if objective.kind == "masked":
            scores = _blind(unigram, batches, world)
        orders = _orders(batches, objective.pairs, world)
        if orders is not None:
            scores["sentence_accuracy"] = max(orders)
        return cls(baseline, orders, scores)

    @property
    def levels(self) -> dict[str, dict[str, float]]:
        """Horizontal lines in the pictures of a run, by the names of their scores."""
        found = {"mlm_loss": {"guessing by frequency": self.baseline.cross_entropy}}
        told = {
            name: self.scores[name] for name in ("mlm_accuracy", "sentence_accuracy") if name in self.scores
        }
        return found | {name: {"without skill": value} for name, value in told.items()}


def _over_all(score: BaselineScore, world: World) -> BaselineScore:
    """The baseline over the held-out positions of all ranks, of which one may have none."""
    if world.size == 1:
        return score
    hits, nats, count = world.add_numbers(
        [score.accuracy * score.count, score.cross_entropy * score.count, score.count]
    )
    return BaselineScore(hits / count, nats / count, int(count)) if count else score


def _blind(unigram: Unigram, batches: Sequence[PretrainingBatch], world: World) -> dict[str, float]:
    masked = _over_all(unigram.score_batches(batches, masked=True), world)
    count = sum(len(batch.mlm_labels) for batch in batches)
    right, total = world.add_numbers([blind_accuracy(batches, unigram.guess) * count, count])
    scores = {"mlm_accuracy": right / total if total else 0.0}
    if masked.count:
        scores |= {"mask_loss": masked.cross_entropy, "mask_accuracy": masked.accuracy}
    return scores


def _orders(batches: Sequence[PretrainingBatch], pairs: str, world: World) -> Orders | None:
    counts = label_counts(batches)
    right = by_length(batches) * float(counts.sum()) if pairs == "sop" else 0.0
    first, second, right = world.add_numbers([*counts.tolist(), right])
    total = first + second
    return Orders(max(first, second) / total, right / total) if total else None


def masked_scores(
    found: Mapping[str, float], unigram: Unigram, batches: Sequence[PretrainingBatch]
) -> dict[str, float]:
    """The scores on [MASK] alone beside what no skill would score, and the `floor` of a model that copies.

    Args:
        found: what judging the model on `batches` told.
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
    """Sentence pairs with label 0 (in order, or truly next) and with 1, float64 (2,)."""
    labels = [b.sentence_labels for b in batches if b.sentence_labels is not None]
    found = torch.cat(labels) if labels else torch.empty(0, dtype=torch.int64)
    return found[found >= 0].bincount(minlength=2).double()


def by_length(batches: Sequence[PretrainingBatch]) -> float:
    """Pairs right by saying that the longer segment is the later one: a chunk ends with the sentence that
    reaches its length, and such a sentence is a long one. A tie counts half."""
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
