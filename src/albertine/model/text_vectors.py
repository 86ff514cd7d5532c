"""One vector a text, out of the encoder's last depth."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.layout import Packed
from albertine.model.model import Model
from albertine.model.task_model import TaskModel

Pooling = Literal["mean", "cls"]
"""The mean over all tokens of a sequence, special ones included, or its first token."""


def text_vectors(model: Model, packed: Packed, pooling: Pooling, normalize: bool) -> Tensor:
    """A vector for every sequence, (S, H) float32; of length 1 with `normalize`.

    For first tokens the last depth computes these alone.
    """
    if pooling == "cls":
        x_SH = model.encoder(packed, rows=packed.first_tokens).last_hidden.float()
    else:
        x_SH = mean_rows(model.encoder(packed).last_hidden.float(), packed)
    return F.normalize(x_SH, dim=-1) if normalize else x_SH


def mean_rows(x_TH: Tensor, packed: Packed) -> Tensor:
    """The mean of the rows of each sequence, (S, H)."""
    # A bag of rows a sequence: no padding, no loop, and a backward pass without atomic sums.
    every = torch.arange(len(x_TH), device=x_TH.device)
    return F.embedding_bag(every, x_TH, packed.first_tokens, mode="mean")


class Embedder(TaskModel):
    """An encoder whose answer is one vector a text. It has no parameters of its own.

    Attributes:
        pooling, normalize: as in `text_vectors`.
    """

    def __init__(self, base: Model, pooling: Pooling = "mean", normalize: bool = False) -> None:
        super().__init__(base, dropout=0.0)
        self.pooling: Pooling = pooling
        self.normalize = normalize

    def forward(self, packed: Packed) -> Tensor:
        """Vectors (S, H) float32."""
        return text_vectors(self.base, packed, self.pooling, self.normalize)
