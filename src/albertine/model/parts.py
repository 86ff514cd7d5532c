"""Which parts an encoder has by its configuration; what they compute stands in the file of each."""

from __future__ import annotations

from torch import nn

from albertine.model.block import AttentionBlock, FeedForwardBlock
from albertine.model.config import EncoderConfig
from albertine.model.depths import Depths, FixedDepths
from albertine.model.fixed_point import FixedPoint
from albertine.model.halting import Halting, HaltingUnit
from albertine.model.inner_dropout import InnerDropoutBlock
from albertine.model.layers import LayerNorm
from albertine.model.relative_attention import RelativeAttentionBlock
from albertine.model.signals import StepSignals

BLOCKS = {AttentionBlock, RelativeAttentionBlock, FeedForwardBlock, InnerDropoutBlock}


def attention_blocks(config: EncoderConfig) -> nn.ModuleList:
    """One for every number in the plan."""
    count = config.plan.num_attention_blocks
    if config.positions != "relative":
        return nn.ModuleList(AttentionBlock(config) for _ in range(count))
    first = RelativeAttentionBlock(config)
    return nn.ModuleList([first, *(RelativeAttentionBlock(config, first) for _ in range(count - 1))])


def feed_forward_blocks(config: EncoderConfig) -> nn.ModuleList:
    """One for every number in the plan."""
    block = InnerDropoutBlock if config.positions == "relative" else FeedForwardBlock
    return nn.ModuleList(block(config) for _ in range(config.plan.num_feed_forward_blocks))


def final_norm(config: EncoderConfig) -> nn.Module | None:
    """What comes behind the last depth."""
    if config.norm == "pre":
        return LayerNorm(config.hidden_size, config.layer_norm_eps, bias=config.biases)
    if config.positions == "relative":
        return nn.Dropout(config.hidden_dropout_prob)  # as in XLNet's code
    return None


def loop(config: EncoderConfig, halting: HaltingUnit | None, signals: StepSignals | None) -> Depths:
    """The loop over depths."""
    if halting is not None:
        return Halting(config, halting, signals)
    return FixedPoint(config.solver, config.tolerance) if config.solves else FixedDepths()
