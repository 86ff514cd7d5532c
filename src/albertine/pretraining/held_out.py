"""Judging a model on held-out documents: always the same pairs under the same masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from albertine.model.model import Model, evaluating
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses


@torch.no_grad()
def judge(
    model: Model,
    batches: Sequence[PretrainingBatch],
    *,
    device: torch.device | str = "cpu",
    add_up: Callable[[torch.Tensor], torch.Tensor] = lambda sums: sums,
    poll: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Mean loss and accuracy of each part over `batches`, in evaluation mode.

    Args:
        model: answers `pretraining_forward`.
        batches: this process' share of the held-out batches.
        add_up: sums a float64 vector over all processes.
        poll: called between batches, so that a signal is heard.

    Returns:
        `mlm_loss` (nats per masked token), `mlm_accuracy`, and `sentence_loss`, `sentence_accuracy` where
        the model has such a head; all as plain numbers.
    """
    names = ("mlm", "sentence")
    sums = torch.zeros(len(names), 3, dtype=torch.float64)
    with evaluating(model):
        for batch in batches:
            poll()
            for name, part in pretraining_losses(model, batch.to(device)).items():
                sums[names.index(name)] += torch.tensor(
                    [float(part.loss_sum), float(part.correct), float(part.count)], dtype=torch.float64
                )
    sums = add_up(sums)
    scores: dict[str, float] = {}
    for name, (loss, correct, count) in zip(names, sums.tolist(), strict=True):
        if count:
            scores[f"{name}_loss"] = loss / count
            scores[f"{name}_accuracy"] = correct / count
    return scores
