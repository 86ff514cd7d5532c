"""Rotary positions (RoFormer, Su et al. 2021, section 3.2): queries and keys are rotated by angles
proportional to their positions, so that their product depends on the distance alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def frequencies(head_size: int, base: float, device: torch.device | None = None) -> Tensor:
    """Rotation of each pair of coordinates per position, float32 (D/2,)."""
    steps = torch.arange(0, head_size, 2, device=device, dtype=torch.float32)
    return base ** -(steps / head_size)  # type: ignore[no-any-return]


class Rotation(NamedTuple):
    """The rotations of R rows.

    Coordinates i and i + D/2 of a head are a pair, rotated by angle i. RoFormer's own code pairs neighbours;
    the two differ by the order of the rows of the query and key weights.

    Attributes:
        cos_R1D, sin_R1D: factors of x and of x with its halves exchanged, (R, 1, D).
    """

    cos_R1D: Tensor
    sin_R1D: Tensor

    @classmethod
    def of(cls, positions_R: Tensor, head_size: int, base: float, dtype: torch.dtype) -> Rotation:
        """For rows at these positions, int64 (R,); angles are computed in float32."""
        return cls.by(positions_R, frequencies(head_size, base, positions_R.device), dtype)

    @classmethod
    def by(cls, positions_R: Tensor, frequencies_C: Tensor, dtype: torch.dtype) -> Rotation:
        """The same by given `frequencies`."""
        angles = positions_R[:, None] * frequencies_C
        cos, sin = angles.cos(), angles.sin()
        return cls(torch.cat([cos, cos], 1)[:, None].to(dtype), torch.cat([-sin, sin], 1)[:, None].to(dtype))

    def select(self, index: Tensor) -> Rotation:
        """Those of some rows, int64 (P,) into R."""
        return Rotation(self.cos_R1D[index], self.sin_R1D[index])

    def rotate(self, x_RND: Tensor) -> Tensor:
        """(R, N, D): x·cos + x with its halves exchanged·sin."""
        half = x_RND.shape[-1] // 2
        return torch.addcmul(x_RND * self.cos_R1D, x_RND.roll(half, -1), self.sin_R1D)
