"""A moving average of the weights over the steps of a run, which is judged and saved instead of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The exponential moving average of all trained weights, begun at zero and corrected for that, as in
    Adam and in bert4keras: after step t the weights of step s count as decay^(t - s) / (1 + decay + … +
    decay^(t - 1)), so the random start has no part in it.

    Attributes:
        tensors: the corrected average by the names of the parameters; of no meaning before the first step.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.tensors: dict[str, Tensor] = {name: p.detach().clone() for name, p in self._weights.items()}

    @torch.no_grad()
    def begin(self) -> None:
        """Be the weights as they are now, until the first step is taken."""
        torch._foreach_copy_(list(self.tensors.values()), list(self._weights.values()))

    @torch.no_grad()
    def take(self, step: int) -> None:
        """The weights after step number `step`, counted from 1 where the average began."""
        share = (1 - self.decay) / (1 - self.decay**step)
        torch._foreach_lerp_(list(self.tensors.values()), list(self._weights.values()), share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model with the average as its weights; afterwards it has its own again, to the bit."""
        own = {name: p.detach().clone() for name, p in self._weights.items()}
        self._give(self.tensors)
        try:
            yield
        finally:
            self._give(own)

    @torch.no_grad()
    def _give(self, tensors: dict[str, Tensor]) -> None:
        torch._foreach_copy_(list(self._weights.values()), list(tensors.values()))
