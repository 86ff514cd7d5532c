"""RoFormer's table of sines and cosines, which its files hold as if it had been learned."""

from __future__ import annotations

import torch
from torch import Tensor

from albertine.interop.huggingface.config import ROFORMER_BASE


def sinusoids(rows: int, head_size: int) -> Tensor:
    """(rows, D): for every place the sines of its D/2 angles, then their cosines (transformers'
    RoFormerSinusoidalPositionalEmbedding)."""
    # On the processor, as what is read of a file, whatever device a program has made the default.
    places = torch.arange(rows, dtype=torch.float64, device="cpu")[:, None]
    speeds = ROFORMER_BASE ** -(torch.arange(0, head_size, 2, dtype=torch.float64, device="cpu") / head_size)
    return torch.cat([(places * speeds).sin(), (places * speeds).cos()], 1).float()
