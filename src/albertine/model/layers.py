"""Linear layer and LayerNorm, computed by the backend of the current forward pass."""

from __future__ import annotations

from torch import Tensor, nn

from albertine.model.backend import current


class Linear(nn.Linear):
    """x·Wᵀ + b in the format of x, (…, in) to (…, out); parameters are float32."""

    computed_by_backend = True

    def forward(self, x: Tensor) -> Tensor:
        return current().linear(self, x)


class LayerNorm(nn.LayerNorm):
    """(x - mean) / standard deviation of each row, times a scale plus a shift; in the format of x."""

    def forward(self, x: Tensor) -> Tensor:
        return current().layer_norm(self, x)
