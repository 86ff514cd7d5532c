"""How long an encoder that halts computed each position."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Ponder(NamedTuple):
    """How long a loop that halts computed each position.

    Attributes:
        steps: how many steps it took, int64 (T,).
        remainder: the weight of its last step where it halted there, float32 (T,), with gradient.
    """

    steps: Tensor
    remainder: Tensor

    @property
    def cost(self) -> Tensor:
        """Steps plus remainder, (T,), which Graves (2016, section 2) lets a loss keep small."""
        return self.steps + self.remainder
