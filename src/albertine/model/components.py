"""Which parts an encoder has by its configuration; what they compute stands in the file of each."""

from __future__ import annotations

from torch import nn

import albertine.model.forked_threads  # noqa: F401  (for what it says of processes)
from albertine.model.block import AttentionBlock, FeedForwardBlock
from albertine.model.config import EncoderConfig
from albertine.model.coordinate_embeddings import StepSignals
from albertine.model.fixed_point import FixedPoint
from albertine.model.halting import Halting, HaltingUnit
from albertine.model.layer_loop import Depths
from albertine.model.layer_parameters import hidden_norm
from albertine.model.layers import Linear
from albertine.model.prepared_inputs import PreparedAttentionBlock
from albertine.model.relative_attention import RelativeAttentionBlock
from albertine.model.xlnet_feed_forward import InnerDropoutBlock

BLOCKS = {AttentionBlock, PreparedAttentionBlock, RelativeAttentionBlock, FeedForwardBlock, InnerDropoutBlock}
"""Classes of what is computed as it stands here, from weights that stay where they are. What wraps a block
and moves its weights, as FSDP does, gives it another class; what compiles it in place gives it a function."""


def attention_blocks(config: EncoderConfig) -> nn.ModuleList:
    """One for every number in the plan."""
    count = config.plan.num_attention_blocks
    if config.positions != "relative":
        prepared = config.positions == "rotary" or config.qk_norm or config.input_injection
        block = PreparedAttentionBlock if prepared else AttentionBlock
        return nn.ModuleList(block(config) for _ in range(count))
    first = RelativeAttentionBlock(config)
    return nn.ModuleList([first, *(RelativeAttentionBlock(config, first) for _ in range(count - 1))])


def feed_forward_blocks(config: EncoderConfig) -> nn.ModuleList:
    """One for every number in the plan."""
    block = InnerDropoutBlock if config.positions == "relative" else FeedForwardBlock
    return nn.ModuleList(block(config) for _ in range(config.plan.num_feed_forward_blocks))


def final_norm(config: EncoderConfig) -> nn.Module | None:
    """What comes behind the last depth."""
    if config.norm == "pre":
        return hidden_norm(config)
    if config.positions == "relative":
        return nn.Dropout(config.hidden_dropout_prob)  # as in XLNet's code
    return None


def halting_unit(config: EncoderConfig) -> HaltingUnit | None:
    """Where positions decide how many steps they take."""
    return HaltingUnit(config) if config.halts else None


def injection(config: EncoderConfig) -> Linear | None:
    """The map of the embeddings that every depth is given, where there is one."""
    hidden = config.hidden_size
    return Linear(hidden, 3 * hidden, bias=False) if config.input_injection else None


def loop(config: EncoderConfig, halting: HaltingUnit | None, signals: StepSignals | None) -> Depths:
    """The loop over depths."""
    if halting is not None:
        return Halting(config, halting, signals)
    return FixedPoint(config.solver, config.tolerance) if config.solves else Depths()
