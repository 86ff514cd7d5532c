"""The feed-forward of Transformer-XL and XLNet: BERT's, with one more dropout inside."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from albertine.model.block import FeedForwardBlock


class InnerDropoutBlock(FeedForwardBlock):
    """In training also drops out of what is between the two layers (`positionwise_ffn` in XLNet's code,
    `PositionwiseFF` in Transformer-XL's)."""

    def inner(self, x_RH: Tensor) -> Tensor:
        return F.dropout(super().inner(x_RH), self.dropout, self.training)
