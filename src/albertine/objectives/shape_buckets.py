"""Padding of micro-batches to few shapes, with additional sequences and ignored predictions, so that captured
or compiled passes are reused."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed
from albertine.core.token_batches import bucket_size
from albertine.model.backend import IGNORED
from albertine.objectives.batch import PretrainingBatch

SHORTEST = 64


@dataclass(frozen=True)
class MicroBatchSize:
    """Shape of a padded micro-batch.

    Attributes:
        tokens, sequences, predictions: of the padded batch. longest: an upper bound of the lengths.
        pairs: whether sequences have a sentence label. depth, loops: as in `PretrainingBatch`.
    """

    tokens: int
    sequences: int
    predictions: int
    longest: int
    pairs: bool
    depth: int | None
    loops: int | None

    @classmethod
    def of(cls, batch: PretrainingBatch, longest: int | None = None) -> MicroBatchSize:
        """The smallest shape for a batch: at most a sixteenth more tokens, or a few for padded sequences and
        predictions.

        Args:
            longest: maximum sequence length of the model; None: any.
        """
        tokens, count = batch.num_tokens, batch.packed.num_sequences
        bound = max(SHORTEST, 1 << (batch.packed.max_length - 1).bit_length())
        bound = bound if longest is None else min(bound, longest)
        predictions = bucket_size(len(batch.mlm_positions), 4, 32)
        # Every padded prediction reads its own row of a padded sequence.
        extra = predictions - len(batch.mlm_positions)
        while True:
            size = bucket_size(tokens + max(extra, 1), 16, 64)
            sequences = bucket_size(count - (-(size - tokens) // bound), 4, 8)
            if sequences - count <= size - tokens:
                pairs = batch.sentence_labels is not None
                return cls(size, sequences, predictions, bound, pairs, batch.depth, batch.loops)
            extra = sequences - count

    def filled(self, batch: PretrainingBatch) -> PretrainingBatch:
        """The batch at this size, the real rows, sequences and predictions first. The sums of its losses and
        their gradients are those of the batch; of its lengths only an upper bound is known."""
        packed, count = batch.packed, batch.packed.num_sequences
        tokens = self.tokens - packed.num_tokens
        extra = self.predictions - len(batch.mlm_positions)
        parts = self.sequences - count
        each = torch.full((parts,), tokens // parts, dtype=torch.int32)
        each[: tokens % parts] += 1
        more = packed.num_tokens + each.cumsum(0, dtype=torch.int32)
        ids, types, positions = (
            F.pad(x, (0, tokens)) for x in (packed.input_ids, packed.token_type_ids, packed.position_ids)
        )
        labels = batch.sentence_labels
        return replace(
            batch,
            packed=Packed(ids, types, positions, torch.cat([packed.cu_seqlens, more]), (self.longest,)),
            mlm_positions=torch.cat([batch.mlm_positions, packed.num_tokens + torch.arange(extra)]),
            mlm_labels=_ignored(batch.mlm_labels, extra),
            sentence_labels=None if labels is None else _ignored(labels, parts),
        )


def _ignored(labels: Tensor, extra: int) -> Tensor:
    """Labels padded with `IGNORED`."""
    return F.pad(labels, (0, extra), value=IGNORED)


def copy_into(place: PretrainingBatch, batch: PretrainingBatch) -> None:
    """Copy a padded batch into another one of its shape."""
    here, there = place.packed, batch.packed
    pairs = [
        (here.input_ids, there.input_ids),
        (here.token_type_ids, there.token_type_ids),
        (here.position_ids, there.position_ids),
        (here.cu_seqlens, there.cu_seqlens),
        (place.mlm_positions, batch.mlm_positions),
        (place.mlm_labels, batch.mlm_labels),
    ]
    if place.sentence_labels is not None and batch.sentence_labels is not None:
        pairs.append((place.sentence_labels, batch.sentence_labels))
    for old, new in pairs:
        old.copy_(new, non_blocking=True)
