"""Activations of the feed-forward and of the heads."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def activate(x: Tensor, name: str) -> Tensor:
    """The activation of that name; the tanh form of GELU is the one Google's code calls "gelu"."""
    if name == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="tanh" if name == "gelu_new" else "none")
