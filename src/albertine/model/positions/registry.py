"""Position encodings by the value of `EncoderConfig.positions`.

A new one is a file in this folder, a value of `config.Positions`, and an entry of `ENCODINGS`. Encodings that
are added to embeddings ("learned") or to the input of every layer (`coordinates.py`) need nothing from
attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from albertine.model.attention import AttentionBlock, TransformedAttentionBlock
from albertine.model.config import EncoderConfig
from albertine.model.positions.relative_attention import (
    RelativeAttentionBlock,
    trace_relative_positions,
    with_relative_positions,
)
from albertine.model.positions.rotary import Rotation, frequencies
from albertine.model.rows import Rows


class AddPositions(Protocol):
    """Adds what attention reads about positions to the metadata of rows."""

    def __call__(
        self, rows: Rows, config: EncoderConfig, like: Tensor, *, training: bool, longest: int | None
    ) -> Rows:
        """
        Args:
            like: a tensor of the format and device of the pass.
            training: whether dropout is active.
            longest: length of the longest sequence of keys, which ends with `rows`; None: that of `rows`.
        """
        ...


TracePositions = Callable[[Rows, EncoderConfig, Tensor, int, int], Rows]
"""`AddPositions` in a graph that is exported: (rows, configuration, constants, B, L) → rows, float32. The
sizes B and L of the batch are symbols."""


class PositionEncoding(NamedTuple):
    """Position encoding of attention.

    Attributes:
        blocks: a number of attention blocks for a configuration.
        add, trace: None where attention does not depend on positions.
        constants: the numbers that `trace` reads, float32, which an exported graph stores: a runtime that
            computed them itself would round them otherwise, and a position multiplies the difference.
        adds_scores: whether attention adds scores to the products of queries and keys. Such attention is not
            compared in distillation, and cannot be exported for packed batches.
    """

    blocks: Callable[[EncoderConfig, int], list[nn.Module]]
    add: AddPositions | None = None
    trace: TracePositions | None = None
    constants: Callable[[EncoderConfig], Tensor] | None = None
    adds_scores: bool = False


def _plain_blocks(config: EncoderConfig, count: int) -> list[nn.Module]:
    block = TransformedAttentionBlock if config.qk_norm or config.input_injection else AttentionBlock
    return [block(config) for _ in range(count)]


def _rotary_blocks(config: EncoderConfig, count: int) -> list[nn.Module]:
    return [TransformedAttentionBlock(config) for _ in range(count)]


def _with_rotation(
    rows: Rows, config: EncoderConfig, like: Tensor, *, training: bool, longest: int | None
) -> Rows:
    rotation = Rotation.of(rows.positions, config.head_size, config.rotary_base, like.dtype)
    return replace(rows, rotation=rotation)


def _trace_rotation(rows: Rows, config: EncoderConfig, constants: Tensor, batch: int, length: int) -> Rows:
    return replace(rows, rotation=Rotation.by(rows.positions, constants, torch.float32))


def _relative_blocks(config: EncoderConfig, count: int) -> list[nn.Module]:
    first = RelativeAttentionBlock(config)
    return [first, *(RelativeAttentionBlock(config, first) for _ in range(count - 1))]


ENCODINGS: Mapping[str, PositionEncoding] = {
    "learned": PositionEncoding(_plain_blocks),
    "rotary": PositionEncoding(
        _rotary_blocks,
        _with_rotation,
        _trace_rotation,
        lambda config: frequencies(config.head_size, config.rotary_base),
    ),
    "relative": PositionEncoding(
        _relative_blocks,
        with_relative_positions,
        trace_relative_positions,
        lambda config: frequencies(config.hidden_size, 10000),
        adds_scores=True,
    ),
    "none": PositionEncoding(_plain_blocks),
}

ATTENTION_BLOCKS = frozenset({AttentionBlock, TransformedAttentionBlock, RelativeAttentionBlock})


def attention_blocks(config: EncoderConfig) -> nn.ModuleList:
    """The attention blocks of the sharing plan."""
    return nn.ModuleList(ENCODINGS[config.positions].blocks(config, config.plan.num_attention_blocks))


def with_positions(
    rows: Rows, config: EncoderConfig, like: Tensor, training: bool, longest: int | None = None
) -> Rows:
    """The rows with what the encoder's attention reads about positions; arguments as of `AddPositions`."""
    add = ENCODINGS[config.positions].add
    return rows if add is None else add(rows, config, like, training=training, longest=longest)
