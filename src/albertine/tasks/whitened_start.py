"""Whitening of a classifier's input, with which it learns faster.

The mean vectors of a pretrained encoder have most of their variance in a few directions that do not depend on
the text (inference/whitening.py). AdamW, whose steps have the same size in all coordinates, is slow to use
the other directions. The classifier is therefore trained on

    z = (x - m) W,    W = U (diag(λ) + r λ̄)^-1/2

with mean m and covariance U diag(λ) Uᵀ of the untuned encoder's vectors of some training texts. A linear
layer of z is a linear layer of x, so the tuned model has the same form as without (`Classifier.head`). In
`model/pair_head.py` and `WhitenedEmbedder`, which compare vectors, m and W are part of the model.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from albertine.core.randomness import permutation
from albertine.errors import ModelError
from albertine.inference.whitening import FILE, Whitening, read_whitening
from albertine.model.early_exit import EarlyExits
from albertine.model.pair_head import Comparer
from albertine.model.pooling import classifier_input, text_vectors
from albertine.model.task_model import Classifier, TaskModel, WhitenedEmbedder
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import over_rows

ROWS, RIDGE = 2000, 0.1
"""The number of rows for m and W, and r, which bounds the scaling of directions that contain only noise."""


@torch.no_grad()
def whiten(model: Classifier | WhitenedEmbedder, data: Encoded) -> None:
    """Set the whitening of a new head from vectors of some training rows."""
    chosen = permutation(len(data.ids), 0, "rows of a whitening")[:ROWS].tolist()
    if isinstance(model, Comparer):
        x = torch.from_numpy(over_rows(model, data, compute=model.vectors, rows=chosen))  # (R, 2, 2, H)
        for state, x_RH in enumerate(x.transpose(0, 1).flatten(1, 2)):
            mean, matrix = measured(x_RH)
            model.means[state], model.matrices[state] = mean, matrix
        return
    if isinstance(model, EarlyExits):
        x = torch.from_numpy(over_rows(model, data, compute=model.inputs, rows=chosen))  # (R, D, H)
        each = [measured(x_RH) for x_RH in x.unbind(1)]
        stacked = [torch.stack(parts).to(model.base.device) for parts in zip(*each, strict=True)]
        model.set_whitening(*stacked)
        return
    if isinstance(model, WhitenedEmbedder):
        compute = partial(text_vectors, model.base, pooling="mean")
        mean, matrix = measured(torch.from_numpy(over_rows(model, data, compute=compute, rows=chosen)))
        model.mean.copy_(mean)
        model.matrix.copy_(matrix)
        return
    compute = partial(classifier_input, model.base, pooling=model.pooling)
    mean, matrix = measured(torch.from_numpy(over_rows(model, data, compute=compute, rows=chosen)))
    model.set_whitening(mean.to(model.base.device), matrix.to(model.base.device))


def whitening_files(model: TaskModel) -> dict[str, bytes]:
    """The whitening file of a model that has one, by its path in the folder."""
    if not isinstance(model, WhitenedEmbedder):
        return {}
    depth = model.base.config.plan.depth
    return {FILE: Whitening(depth, model.mean.cpu(), model.matrix.cpu()).to_bytes()}


@torch.no_grad()
def take_whitening(model: TaskModel, folder: Path) -> None:
    """Load the whitening that `whitening_files` wrote into a model that has one.

    Raises:
        ModelError: the file is missing, damaged, or of another layer.
    """
    if not isinstance(model, WhitenedEmbedder):
        return
    config = model.base.config
    found = read_whitening(folder, config.hidden_size, config.plan.depth)
    if found is None or found.depth != config.plan.depth or found.matrix.shape != model.matrix.shape:
        raise ModelError(
            f"was tuned with a whitening of its last layer, and has no such {FILE}",
            where=folder,
            remedy="Copy that file from the folder where it was tuned",
        )
    model.mean.copy_(found.mean)
    model.matrix.copy_(found.matrix)


def measured(x_RH: Tensor) -> tuple[Tensor, Tensor]:
    """m (H,) and W (H, H) of the vectors (R, H), float32."""
    x_RH = x_RH.double()
    mean = x_RH.mean(0)
    variances, directions = torch.linalg.eigh((x_RH - mean).T @ (x_RH - mean) / len(x_RH))
    stretch = (variances + RIDGE * variances.mean()).clamp_min(1e-12).rsqrt()
    return mean.float(), (directions * stretch).float().contiguous()
