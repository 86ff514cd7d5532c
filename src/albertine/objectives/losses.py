"""Pretraining losses: masked tokens, sentence order (or next sentence), and the ponder cost."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from albertine.core.batch import Packed
from albertine.model.backend import cross_entropy
from albertine.model.loop import Ponder
from albertine.objectives.batch import PretrainingBatch

WEIGHT = 0.01
"""Weight of the ponder cost, the mean of steps and remainder, in the reference code."""


class Part(NamedTuple):
    """One part of a loss, as sums, so that micro-batches and ranks are added before the division.

    Attributes:
        loss_sum: sum of cross-entropies in nats, float32 scalar, with gradient.
        count: number of summed predictions.
        correct: number of correct predictions, int64 scalar.
    """

    loss_sum: Tensor
    count: int  # type: ignore[assignment]  # hides tuple.count
    correct: Tensor

    @property
    def mean(self) -> Tensor:
        """Loss a prediction, with the reference's guard against a batch without any: sum / (count + 1e-5)."""
        return self.loss_sum / (self.count + 1e-5)


class PretrainingModel(Protocol):
    """Interface of a model for the losses."""

    def pretraining_forward(
        self,
        packed: Packed,
        mlm_rows: Tensor,
        *,
        depth: int | None = None,
        loops: int | None = None,
        sentence: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Vocabulary logits (P, V) at the rows (P,) of T, and sentence logits (S, 2) or None, after `depth`
        layers or with `loops` loops of the core."""
        ...


def pretraining_losses(model: PretrainingModel, batch: PretrainingBatch) -> dict[str, Part]:
    """The parts of the loss of one micro-batch; its keys are those of `batch.counts`.

    The reference's total is the sum of the two means, unweighted (ALBERT, section 3.1).
    """
    mlm_logits, sentence_logits = model.pretraining_forward(
        batch.packed,
        batch.mlm_positions,
        depth=batch.depth,
        loops=batch.loops,
        sentence=batch.sentence_labels is not None,
    )
    return parts_of(mlm_logits, sentence_logits, batch)


def parts_of(mlm_logits: Tensor, sentence_logits: Tensor | None, batch: PretrainingBatch) -> dict[str, Part]:
    """The parts of the loss for the logits (P, V) of predicted tokens and (S, 2) of pairs."""
    parts: dict[str, Part] = {batch.part: part_of(mlm_logits, batch.mlm_labels, batch.counts[batch.part])}
    if batch.sentence_labels is not None:
        if sentence_logits is None:
            raise ValueError("the batch has sentence labels and the model no sentence head")
        parts["sentence"] = part_of(sentence_logits, batch.sentence_labels, batch.sentence_count)
    return parts


def part_of(logits: Tensor, labels: Tensor, count: int) -> Part:
    """Cross-entropy of `logits` (P, V) and `labels` (P,), of which `count` are not ignored."""
    loss, correct = cross_entropy(logits, labels)
    return Part(loss, count, correct)


class PonderingModel(Protocol):
    """Interface of a model that halts."""

    def pondering_forward(
        self, packed: Packed, mlm_rows: Tensor, *, depth: int | None = None, sentence: bool = True
    ) -> tuple[Tensor, Tensor | None, Ponder | None]:
        """As `PretrainingModel.pretraining_forward`, and the ponder time of each token."""
        ...


def pondering_losses(
    model: PonderingModel, batch: PretrainingBatch, weight: float = WEIGHT
) -> dict[str, Part]:
    """As `pretraining_losses`, and the part "ponder": `weight` times the ponder cost of every token (Graves
    2016, section 2.1). Its `correct` is the sum of steps, so `correct / count` is their mean.

    The number of steps has no gradient; that of the remainder, 1 - h, raises the probabilities of all steps
    before the last.

    Args:
        batch: with `ponders`.
    """
    mlm_logits, sentence_logits, ponder = model.pondering_forward(
        batch.packed,
        batch.mlm_positions,
        depth=batch.depth,
        sentence=batch.sentence_labels is not None,
    )
    if ponder is None:
        raise ValueError("the model does not halt, so it has no ponder cost")
    parts = parts_of(mlm_logits, sentence_logits, batch)
    cost = weight * ponder.cost.sum()
    return parts | {"ponder": Part(cost, batch.num_tokens, ponder.steps.sum())}
