"""An exponential moving average of the weights, which is evaluated and saved instead of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The bias-corrected moving average of all trained weights, as in Adam and bert4keras: after step t the
    weights of step s have the share decay^(t - s) / (1 + decay + … + decay^(t - 1)), and those before step 1
    have none.

    Attributes:
        tensors: the average by parameter name; undefined before the first step.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.tensors: dict[str, Tensor] = {name: p.detach().clone() for name, p in self._weights.items()}

    @torch.no_grad()
    def begin(self) -> None:
        """Copy the current weights, for use before the first update."""
        torch._foreach_copy_(list(self.tensors.values()), list(self._weights.values()))

    @torch.no_grad()
    def take(self, step: int) -> None:
        """Update with the weights after step number `step`, counted from 1 at the start of the average."""
        share = (1 - self.decay) / (1 - self.decay**step)
        torch._foreach_lerp_(list(self.tensors.values()), list(self._weights.values()), share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the model has the averaged weights; afterwards its own, bit for bit."""
        own = {name: p.detach().clone() for name, p in self._weights.items()}
        self._load(self.tensors)
        try:
            yield
        finally:
            self._load(own)

    @torch.no_grad()
    def _load(self, tensors: dict[str, Tensor]) -> None:
        torch._foreach_copy_(list(self._weights.values()), list(tensors.values()))
