"""The few parameters that a depth has to itself although its blocks are shared: entries of the plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.model.backend import current
from albertine.model.config import EncoderConfig
from albertine.model.coordinate_embeddings import Adding
from albertine.model.layers import LayerNorm, Module
from albertine.model.rows import Rows


def hidden_norm(config: EncoderConfig) -> LayerNorm:
    """A LayerNorm of rows H wide."""
    return LayerNorm(config.hidden_size, config.layer_norm_eps, bias=config.biases)


class Own(Module):
    """What one block has at one depth: scale · (f(x) + B·A·x) in place of f(x), and a LayerNorm.

    Attributes:
        layer_norm: takes the place of the block's; None: the block's. scale: (1,) or None.
        down, up: A (r, H) and B (H, r), or None; up begins at zero, so that nothing is added at first.
    """

    def __init__(self, config: EncoderConfig, layer_norm: nn.Module | None = None) -> None:
        super().__init__()
        plan, hidden = config.plan, config.hidden_size
        if layer_norm is None and "norms" in plan.own:
            layer_norm = hidden_norm(config)
        self.layer_norm = layer_norm
        self.scale = nn.Parameter(torch.ones(1)) if "residuals" in plan.own else None
        rank = plan.low_rank
        self.down = nn.Parameter(torch.zeros(rank, hidden)) if rank else None
        self.up = nn.Parameter(torch.zeros(hidden, rank)) if rank else None

    @property
    def changes_nothing(self) -> bool:
        """Whether the block adds what it would add anywhere."""
        return self.scale is None and self.up is None

    def forward(self, y_RH: Tensor, read_RH: Tensor) -> Tensor:
        """(R, H) of what the block computed and of what it read, to what it adds."""
        ops = current()
        if self.down is not None and self.up is not None:
            down, up = ops.cast(self.down, read_RH.dtype), ops.cast(self.up, read_RH.dtype)
            y_RH = y_RH + F.linear(*ops.apart(F.linear(*ops.apart(read_RH, down)), up))
        return y_RH if self.scale is None else y_RH * ops.cast(self.scale, y_RH.dtype)


class DepthParameters(Module):
    """What a depth has of its own.

    Attributes:
        attention, feed_forward: beside its two blocks.
        injection: (1,), the factor of the embeddings that are added to its input, or None; it begins at zero.
    """

    def __init__(self, config: EncoderConfig, depth: int) -> None:
        super().__init__()
        # Where the embeddings of a pre-norm encoder are normalised already, as in ModernBERT.
        normed = config.norm == "pre" and config.embedding_norm
        first = nn.Identity() if normed and depth == 0 else None
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


def embeddings_again(depths: Iterable[nn.Module], start_TH: Tensor) -> Adding:
    """What adds each depth's factor of the embeddings to its rows.

    Args:
        depths: `DepthParameters` of each. start_TH: the embeddings of all rows of the pass.
    """
    factors = [cast(DepthParameters, own).injection for own in depths]

    def added(d: int, x_RH: Tensor, rows: Rows) -> Tensor:
        if (factor := factors[d]) is None:
            return x_RH
        start_RH = start_TH if rows.places is None else start_TH.index_select(0, rows.places)
        return x_RH + current().cast(factor, start_TH.dtype) * start_RH

    return added
