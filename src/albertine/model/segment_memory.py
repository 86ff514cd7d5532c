"""Memory of Transformer-XL: the inputs of every layer for earlier segments, to which the next segment attends
(Dai et al. 2019, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Memory:
    """Earlier rows of some sequences, without gradient.

    Attributes:
        states: input of each layer, (ΣM, H), sequence by sequence; of layer 0 the embeddings.
        lengths: number of rows of each sequence.
    """

    states: tuple[Tensor, ...]
    lengths: tuple[int, ...]

    @classmethod
    def empty(cls, sequences: int, depth: int, like: Tensor) -> Memory:
        """Memory without rows; `like` is (…, H)."""
        return cls((like.new_empty(0, like.shape[-1]),) * depth, (0,) * sequences)

    @classmethod
    def joined(cls, parts: Sequence[Memory]) -> Memory:
        """The memories of several parts, concatenated."""
        states = zip(*(part.states for part in parts), strict=True)
        return cls(tuple(map(torch.cat, states)), tuple(n for part in parts for n in part.lengths))

    def of(self, sequences: Sequence[int]) -> Memory:
        """The memory of some sequences by index, in this order."""
        ends = np.cumsum(self.lengths)
        order = [np.arange(ends[i] - self.lengths[i], ends[i]) for i in sequences]
        index = _index(order, self.states)
        return Memory(
            tuple(x.index_select(0, index) for x in self.states), tuple(self.lengths[i] for i in sequences)
        )

    def to(self, device: torch.device | str) -> Memory:
        return Memory(tuple(x.to(device, non_blocking=True) for x in self.states), self.lengths)

    def merge(self, lengths: Sequence[int]) -> Tensor:
        """Order of (rows of this memory, new rows) in which the rows of each sequence are contiguous, int64.

        Args:
            lengths: new rows of each sequence.
        """
        held = sum(self.lengths)
        old, new = np.cumsum((0, *self.lengths)), held + np.cumsum((0, *lengths))
        order = [
            np.arange(first, end)
            for s in range(len(lengths))
            for first, end in ((old[s], old[s + 1]), (new[s], new[s + 1]))
        ]
        return _index(order, self.states)

    def next(self, inputs: Sequence[Tensor], lengths: Sequence[int], keep: int, reuse: int | None) -> Memory:
        """Memory for the next segment.

        Args:
            inputs: input of each layer for the new rows, (T, H). lengths: new rows of each sequence.
            keep: maximum rows of a sequence, the newest.
            reuse: number of first new rows to add, because XLNet repeats the others in its next segment;
                None: all.
        """
        held = sum(self.lengths)
        old, new = np.cumsum((0, *self.lengths)), held + np.cumsum((0, *lengths))
        order, kept = [], []
        for s, length in enumerate(lengths):
            read = length if reuse is None else min(reuse, length)
            rows = np.concatenate([np.arange(old[s], old[s + 1]), np.arange(new[s], new[s] + read)])
            order.append(rows[len(rows) - min(keep, len(rows)) :])
            kept.append(len(order[-1]))
        index = _index(order, inputs)
        pairs = zip(self.states, inputs, strict=True)
        states = tuple(torch.cat([was, x.detach()]).index_select(0, index) for was, x in pairs)
        return Memory(states, tuple(kept))


def _index(parts: Sequence[np.ndarray], like: Sequence[Tensor]) -> Tensor:
    joined = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    return torch.from_numpy(joined).to(like[0].device, non_blocking=True)
