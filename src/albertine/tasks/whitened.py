"""A classifier learns faster from vectors whose directions are equally long.

A pretrained encoder's mean vectors have most of their variance in a few directions, the same ones whatever
a text is about (inference/whitening.py), so AdamW, whose steps are alike in all coordinates, is slow to find
the others. The classifier is therefore trained on

    z = (x - m) W,    W = U (diag(λ) + r λ̄)^-1/2

with mean m and covariance U diag(λ) Uᵀ of the untuned encoder's vectors of some training texts. A linear
layer of z is a linear layer of x, so the tuned model has the same form as without (`Classifier.head`). Where
two texts are compared (`model/comparison.py`), m and W are part of the model.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from albertine.model.comparison import Comparer
from albertine.model.pooling import classified_rows
from albertine.model.task_model import Classifier
from albertine.randomness import permutation
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import over_rows

ROWS, RIDGE = 2000, 0.1
"""How many rows are measured, and r, which keeps directions of nothing but noise from being stretched without
end."""


@torch.no_grad()
def whiten(model: Classifier, data: Encoded) -> None:
    """Let the layer of a new classifier look at whitened vectors, by some of the rows it will learn from."""
    chosen = permutation(len(data.ids), 0, "rows of a whitening")[:ROWS].tolist()
    if isinstance(model, Comparer):
        x = torch.from_numpy(over_rows(model, data, ask=model.vectors, rows=chosen))  # (R, 2, 2, H)
        for state, x_RH in enumerate(x.transpose(0, 1).flatten(1, 2)):
            mean, matrix = measured(x_RH)
            model.means[state], model.matrices[state] = mean, matrix
        return
    ask = partial(classified_rows, model.base, pooling=model.pooling)
    mean, matrix = measured(torch.from_numpy(over_rows(model, data, ask=ask, rows=chosen)))
    model.look_through(mean.to(model.base.device), matrix.to(model.base.device))


def measured(x_RH: Tensor) -> tuple[Tensor, Tensor]:
    """m (H,) and W (H, H) of some vectors, float32."""
    x_RH = x_RH.double()
    mean = x_RH.mean(0)
    variances, directions = torch.linalg.eigh((x_RH - mean).T @ (x_RH - mean) / len(x_RH))
    stretch = (variances + RIDGE * variances.mean()).clamp_min(1e-12).rsqrt()
    return mean.float(), (directions * stretch).float().contiguous()
