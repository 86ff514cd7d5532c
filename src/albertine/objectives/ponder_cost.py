"""The price of thinking: what an encoder that halts pays for its steps (Graves 2016, section 2.1)."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from albertine.core.batch import Packed
from albertine.model.ponder_time import Ponder
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import Part, parts_of

WEIGHT = 0.01
"""Of the mean of steps and remainder beside the other losses: the reference code's."""


class PonderingModel(Protocol):
    """What the losses need of a model that halts."""

    def pondering_forward(
        self, packed: Packed, mlm_rows: Tensor, *, depth: int | None = None, sentence: bool = True
    ) -> tuple[Tensor, Tensor | None, Ponder | None]:
        """As `PretrainingModel.pretraining_forward`, and how long each token was computed."""
        ...


def pondering_losses(
    model: PonderingModel, batch: PretrainingBatch, weight: float = WEIGHT
) -> dict[str, Part]:
    """As `pretraining_losses`, and the part "ponder": `weight` times steps plus remainder of every token. Its
    `correct` is the sum of steps, so that over `count` it is their mean.

    The number of steps has no gradient; that of the remainder, 1 - h, raises the probabilities of all steps
    before the last.

    Args:
        batch: one that `ponders`.
    """
    mlm_logits, sentence_logits, ponder = model.pondering_forward(
        batch.packed,
        batch.mlm_positions,
        depth=batch.depth,
        sentence=batch.sentence_labels is not None,
    )
    if ponder is None:
        raise ValueError("the model does not halt, so it has nothing to pay for")
    parts = parts_of(mlm_logits, sentence_logits, batch)
    cost = weight * ponder.cost.sum()
    return parts | {"ponder": Part(cost, batch.num_tokens, ponder.steps.sum())}
