"""What is kept of the segments before: the inputs of every depth, which the next segment looks at
(Transformer-XL, Dai et al. 2019, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Memory:
    """Rows of some sequences that were read before, without a gradient.

    Attributes:
        states: of each depth what it read there, (ΣM, H), sequence by sequence; depth 0 read the embeddings.
        lengths: rows of each sequence.
    """

    states: tuple[Tensor, ...]
    lengths: tuple[int, ...]

    @classmethod
    def empty(cls, sequences: int, depth: int, like: Tensor) -> Memory:
        """Of sequences that nothing was read of; `like` is (…, H)."""
        return cls((like.new_empty(0, like.shape[-1]),) * depth, (0,) * sequences)

    @classmethod
    def joined(cls, parts: Sequence[Memory]) -> Memory:
        """That of the sequences of all parts, one part behind the other."""
        states = zip(*(part.states for part in parts), strict=True)
        return cls(tuple(map(torch.cat, states)), tuple(n for part in parts for n in part.lengths))

    def of(self, sequences: Sequence[int]) -> Memory:
        """That of some sequences by their numbers, in this order."""
        ends = np.cumsum(self.lengths)
        order = [np.arange(ends[i] - self.lengths[i], ends[i]) for i in sequences]
        index = _index(order, self.states)
        return Memory(
            tuple(x.index_select(0, index) for x in self.states), tuple(self.lengths[i] for i in sequences)
        )

    def to(self, device: torch.device | str) -> Memory:
        return Memory(tuple(x.to(device, non_blocking=True) for x in self.states), self.lengths)

    def merge(self, lengths: Sequence[int]) -> Tensor:
        """Of (rows of this memory, new rows) the order in which each sequence's stand together, int64.

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
        """What the segment after this one may look at.

        Args:
            inputs: of each depth what it read of the new rows, (T, H). lengths: new rows of each sequence.
            keep: most rows of a sequence that are kept, the newest.
            reuse: only so many of the first new rows count as read, as XLNet reads the others once more;
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
