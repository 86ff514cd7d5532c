"""What rows are told of their places where no table of positions is added to the words: rotations (rotary
positions) or distances (relative ones), for attention to use at every depth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from albertine.model.relative_positions import Distances
from albertine.model.rotation import Rotation
from albertine.model.rows import Rows

if TYPE_CHECKING:
    from albertine.model.encoder import Encoder


def placed(rows: Rows, encoder: Encoder, dtype: torch.dtype, longest: int | None = None) -> Rows:
    """The same rows, as the attention of this encoder wants them.

    Args:
        dtype: format of the pass.
        longest: rows of the longest sequence of keys, whose last ones `rows` are; default that of `rows`.
    """
    config = encoder.config
    if config.positions == "rotary":
        rotation = Rotation.of(rows.positions, config.head_size, config.rotary_base, dtype)
        return replace(rows, rotation=rotation)
    if config.positions == "relative":
        longest = longest or rows.longest
        dropout = encoder.training * config.hidden_dropout_prob
        like = encoder.embeddings.word.weight.new_empty(0, dtype=dtype)
        table_PH = Distances.table(longest, config.hidden_size, config.clamp_positions, like, dropout)
        return replace(rows, distances=Distances(table_PH, longest, leading=rows.known_lengths()))
    return rows
