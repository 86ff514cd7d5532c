"""The few parameters that a depth has to itself although its blocks are shared: entries of the plan."""

from __future__ import annotations

import torch
from torch import nn

from albertine.model.block import Own
from albertine.model.config import EncoderConfig


class DepthParameters(nn.Module):
    """What a depth has of its own.

    Attributes:
        attention, feed_forward: beside its two blocks.
        injection: (1,), the factor of the embeddings that are added to its input, or None; it begins at zero.
    """

    def __init__(self, config: EncoderConfig, depth: int) -> None:
        super().__init__()
        # The embeddings of a pre-norm encoder are normalised already, as in ModernBERT.
        first = nn.Identity() if config.norm == "pre" and depth == 0 else None
        self.attention = Own(config, first)
        self.feed_forward = Own(config)
        inject = "injection" in config.plan.own and depth > 0
        self.injection = nn.Parameter(torch.zeros(1)) if inject else None


def depth_parameters(config: EncoderConfig) -> nn.ModuleList | None:
    """Those of every depth; None where no depth has any."""
    plan = config.plan
    if not (plan.own or plan.low_rank or config.norm == "pre"):
        return None
    return nn.ModuleList(DepthParameters(config, d) for d in range(plan.depth))
