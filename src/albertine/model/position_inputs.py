"""What rows are told of their places where no table of positions is added to the words: rotations (rotary
positions) or distances (relative ones), for attention to use at every depth."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from albertine.model.config import EncoderConfig
from albertine.model.equal_sequences import STEP
from albertine.model.relative_positions import Distances
from albertine.model.rotation import Rotation
from albertine.model.rows import Rows


def placed(
    rows: Rows, config: EncoderConfig, like: Tensor, training: bool, longest: int | None = None
) -> Rows:
    """The same rows, as the attention of such an encoder wants them.

    Args:
        like: a tensor of the format and device of the pass.
        training: whether there is dropout.
        longest: rows of the longest sequence of keys, whose last ones `rows` are; default that of `rows`.
    """
    if config.positions == "rotary":
        rotation = Rotation.of(rows.positions, config.head_size, config.rotary_base, like.dtype)
        return replace(rows, rotation=rotation)
    if config.positions == "relative":
        farthest, leading = longest or rows.longest, rows.known_lengths()
        if longest is None and bool((rows.positions.diff() > 1).any()):
            farthest, leading = with_holes(rows, leading)
        farthest = (farthest // STEP + 2) * STEP  # sequences may be filled up (`equal_sequences.py`)
        dropout = training * config.hidden_dropout_prob
        table_PH = Distances.table(farthest, config.hidden_size, config.clamp_positions, like, dropout)
        return replace(rows, distances=Distances(table_PH, farthest, leading=leading))
    return rows


def with_holes(rows: Rows, lengths: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """`farthest` and `leading` of `Distances` where places of a sequence may be left out, as by a mask."""
    each = rows.positions.cpu().split_with_sizes(lengths)
    spans = [int(places.max() - places.min()) for places in each if len(places)]
    leading = (len(places) if bool((places.diff() == 1).all()) else 0 for places in each)
    return max(rows.longest, *spans), tuple(leading)
