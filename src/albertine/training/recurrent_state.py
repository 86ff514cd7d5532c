"""What a loss takes from step to step beside the weights, such as memory of the text that was read before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor


class Carried(Protocol):
    """Tensors that the next step reads, and that a checkpoint therefore holds."""

    @property
    def nbytes(self) -> int:
        """Most bytes of `tensors`."""
        ...

    def settle(self) -> None:
        """The step was made. What it left counts from here on; what an unfinished step left never does."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Those of all processes by name, after the last step that was settled. Every process calls this."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what a checkpoint holds."""
        ...
