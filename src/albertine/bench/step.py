"""One training step of ours, forward and backward, as every measurement of training takes it."""

from __future__ import annotations

import torch
from torch import Tensor

from albertine.model.model import Model
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses


def learn(model: Model, batch: PretrainingBatch) -> Tensor:
    """Add the gradients of the mean losses to the parameters; returns the sum of these losses."""
    parts = pretraining_losses(model, batch)
    loss = torch.stack([part.loss_sum / part.count for part in parts.values()]).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()
