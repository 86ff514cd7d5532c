"""Base of the transformer blocks, and the feed-forward block. LayerNorm comes after the residual add (post)
or before the sublayer (pre).

Blocks hold the mathematics; the backend (`model/backend/`) decides how a product, an attention or a norm is
computed. It may fuse a product with the bias, activation or residual that follows. A layer that was replaced
or has_hooks, as by adapters and probes, is called as it is.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.model.backend import Linear, current
from albertine.model.config import EncoderConfig
from albertine.model.layer_parameters import BlockParameters, hidden_norm


class Block(nn.Module):
    """x + factor·f(x), normalised after the sum (post-norm) or before f (pre-norm)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.dropout, self.residual_factor = config.hidden_dropout_prob, config.residual_factor
        self.layer_norm = None if "norms" in config.plan.own else hidden_norm(config)

    def normed(self, x: Tensor, own: BlockParameters | None) -> Tensor:
        """LayerNorm of x, by the layer's own norm where it has one, else by the block's."""
        norm = self.layer_norm if own is None or own.layer_norm is None else own.layer_norm
        return norm(x)  # type: ignore[no-any-return, misc]

    def sublayer_input(self, x: Tensor, own: BlockParameters | None) -> Tensor:
        """The input of f: x, or its LayerNorm in a pre-norm block."""
        return self.normed(x, own) if self.pre_norm else x

    def residual_add(
        self, layer: Linear, y: Tensor, x: Tensor, sublayer_input: Tensor, own: BlockParameters | None
    ) -> Tensor:
        """x + factor·own(dropout(layer(y))), followed by LayerNorm in a post-norm block."""
        dropout = self.training * self.dropout
        if self.residual_factor == 1 and (own is None or own.is_identity):
            x = current().added(layer, y, x, dropout)
        else:
            f = F.dropout(layer(y), dropout, dropout > 0)
            f = f if own is None else own(f, sublayer_input)
            x = torch.add(x, f, alpha=self.residual_factor)
        return x if self.pre_norm else self.normed(x, own)


class FeedForwardBlock(Block):
    """Feed-forward sublayer (Vaswani et al. 2017, section 3.3): 2·H·F+F+H parameters, F·(H+1) more if gated,
    and 2H of its LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.activation, self.gated = config.hidden_act, config.feed_forward == "gated"
        if not config.feed_forward_dropout:
            self.dropout = 0.0
        width = config.intermediate_size * (2 if self.gated else 1)
        self.intermediate = Linear(config.hidden_size, width, config.biases)
        self.output = Linear(config.intermediate_size, config.hidden_size, config.biases)

    def forward(self, x_RH: Tensor, own: BlockParameters | None = None) -> Tensor:
        """x + output(activation(intermediate(x))) with LayerNorm, (R, H) to (R, H).

        Args:
            own: parameters of this layer beside those of the shared block.
        """
        input_RH = self.sublayer_input(x_RH, own)
        return self.residual_add(self.output, self.inner(input_RH), x_RH, input_RH, own)

    def inner(self, x_RH: Tensor) -> Tensor:
        """activation(intermediate(x)), (R, F)."""
        if not self.gated:
            return current().activated(self.intermediate, x_RH, self.activation)
        y_RF, gate_RF = self.intermediate(x_RH).chunk(2, -1)
        return current().activate(y_RF, self.activation) * gate_RF  # type: ignore[no-any-return]


class InnerDropoutBlock(FeedForwardBlock):
    """Feed-forward of Transformer-XL and XLNet: BERT's, with another dropout between its two linear layers
    (`PositionwiseFF` in Transformer-XL's code, `positionwise_ffn` in XLNet's)."""

    def inner(self, x_RH: Tensor) -> Tensor:
        return F.dropout(super().inner(x_RH), self.dropout, self.training)
