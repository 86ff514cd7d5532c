"""Activations of the feed-forward and of the heads, and the forms in which a processor computes them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def formula(name: str, dtype: torch.dtype) -> str:
    """The formula of an activation on a processor, by its name.

    In less than float32 GELU is always that of erf. The two are within 5e-4, which the rounding of such
    formats hides (decision 015); torch's tanh takes four times as long.
    """
    return "gelu" if name == "gelu_new" and dtype != torch.float32 else name


def activate(x: Tensor, name: str) -> Tensor:
    """The activation of that name; the tanh form of GELU is the one Google's code calls "gelu"."""
    if name == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="tanh" if name == "gelu_new" else "none")
