"""The few parameters that each layer has of its own beside shared blocks, by the sharing plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.model.backend import LayerNorm, current
from albertine.model.config import EncoderConfig
from albertine.model.positions.coordinates import InputAddition
from albertine.model.rows import Rows


def hidden_norm(config: EncoderConfig) -> LayerNorm:
    """LayerNorm(H)."""
    return LayerNorm(config.hidden_size, config.layer_norm_eps, bias=config.biases)


class BlockParameters(nn.Module):
    """Parameters of one block in one layer: scale · (f(x) + B·A·x) in place of f(x), and a LayerNorm.

    Attributes:
        layer_norm: replaces the block's; None: the block's is used. scale: (1,) or None.
        down, up: A (r, H) and B (H, r), or None; B is initialised to zero, so f is unchanged at first.
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
    def is_identity(self) -> bool:
        """Whether f(x) is added unchanged."""
        return self.scale is None and self.up is None

    def forward(self, y_RH: Tensor, input_RH: Tensor) -> Tensor:
        """Sublayer output f(x) (R, H) and sublayer input x (R, H) to what is added to the residual, (R,
        H)."""
        ops = current()
        if self.down is not None and self.up is not None:
            down, up = ops.cast(self.down, input_RH.dtype), ops.cast(self.up, input_RH.dtype)
            y_RH = y_RH + F.linear(*ops.pad_columns(F.linear(*ops.pad_columns(input_RH, down)), up))
        return y_RH if self.scale is None else y_RH * ops.cast(self.scale, y_RH.dtype)


class LayerParameters(nn.Module):
    """Parameters of one layer beside its blocks.

    Attributes:
        attention, feed_forward: those that apply to its two blocks.
        injection: (1,), factor of the embeddings added to its input, or None; initialised to zero.
    """

    def __init__(self, config: EncoderConfig, layer: int) -> None:
        super().__init__()
        # The embeddings of a pre-norm encoder may be normalised already, as in ModernBERT.
        normed = config.norm == "pre" and config.embedding_norm
        first = nn.Identity() if normed and layer == 0 else None
        self.attention = BlockParameters(config, first)
        self.feed_forward = BlockParameters(config)
        inject = "injection" in config.plan.own and layer > 0
        self.injection = nn.Parameter(torch.zeros(1)) if inject else None


def layer_parameters(config: EncoderConfig) -> nn.ModuleList | None:
    """Those of every layer; None where no layer has any."""
    plan = config.plan
    if not (plan.own or plan.low_rank or config.norm == "pre"):
        return None
    return nn.ModuleList(LayerParameters(config, d) for d in range(plan.depth))


def add_embeddings(layers: Iterable[nn.Module], embeddings_TH: Tensor) -> InputAddition:
    """A function that adds the embeddings, times the layer's factor, to the input of each layer.

    Args:
        layers: `LayerParameters` of each. embeddings_TH: of all rows of the pass.
    """
    factors = [cast(LayerParameters, own).injection for own in layers]

    def add(d: int, x_RH: Tensor, rows: Rows) -> Tensor:
        if (factor := factors[d]) is None:
            return x_RH
        start_RH = embeddings_TH if rows.indices is None else embeddings_TH.index_select(0, rows.indices)
        return x_RH + current().cast(factor, embeddings_TH.dtype) * start_RH

    return add
