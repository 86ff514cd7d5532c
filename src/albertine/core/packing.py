"""The packed batch: one flat run of real tokens and the offsets of its sequences.

Shape letters, used as suffixes everywhere: T packed tokens · S sequences · B batch · L length · H hidden · E
embedding · N heads · D head size · F feed-forward · V vocabulary · P predicted positions.

Padding exists only at the outer edges (`padding.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """A batch without padding.

    Attributes:
        input_ids: token ids, int64 (T,).
        token_type_ids: segment ids, int64 (T,).
        position_ids: position of each token in its own sequence, int64 (T,).
        cu_seqlens: offsets of the sequences, int32 (S+1,), first 0, last T.
        lengths: the same lengths as Python integers, so that no hot path waits for the device to learn them.
        prefix: how many tokens of each sequence are its source, which all see and which sees itself alone;
            the target after it is read causally (UniLM, Dong et al. 2019, 2.3). None: all see all.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    position_ids: Tensor
    cu_seqlens: Tensor
    lengths: tuple[int, ...]
    prefix: tuple[int, ...] | None = None

    @property
    def num_tokens(self) -> int:
        return self.input_ids.shape[0]

    @property
    def num_sequences(self) -> int:
        return len(self.lengths)

    @property
    def max_length(self) -> int:
        return max(self.lengths, default=0)

    @property
    def first_tokens(self) -> Tensor:
        """Row of the first token of every sequence, int64 (S,)."""
        return self.cu_seqlens[:-1].long()

    @property
    def last_tokens(self) -> Tensor:
        """Row of the last token of every sequence, int64 (S,)."""
        return self.cu_seqlens[1:].long() - 1

    def to(self, device: torch.device | str) -> Packed:
        return replace(
            self,
            input_ids=self.input_ids.to(device, non_blocking=True),
            token_type_ids=self.token_type_ids.to(device, non_blocking=True),
            position_ids=self.position_ids.to(device, non_blocking=True),
            cu_seqlens=self.cu_seqlens.to(device, non_blocking=True),
        )


def pack(
    sequences: Sequence[np.ndarray | Sequence[int]],
    token_type_ids: Sequence[np.ndarray | Sequence[int]] | None = None,
    prefix: Sequence[int] | None = None,
) -> Packed:
    """Put sequences of token ids end to end. Segment ids default to 0; positions count from 0 in each."""
    lengths = tuple(len(s) for s in sequences)
    if not lengths or min(lengths) == 0:
        raise ValueError("a packed batch needs at least one sequence and no empty one")
    ids = np.concatenate([np.asarray(s, dtype=np.int64) for s in sequences])
    types = (
        np.zeros_like(ids)
        if token_type_ids is None
        else np.concatenate([np.asarray(t, dtype=np.int64) for t in token_type_ids])
    )
    if token_type_ids is not None and tuple(map(len, token_type_ids)) != lengths:
        raise ValueError("segment ids and token ids differ in length")
    if prefix is not None and not all(1 <= p <= n for p, n in zip(prefix, lengths, strict=True)):
        raise ValueError("a source has at least one token, and no more than its sequence")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    positions = np.arange(ids.size) - np.repeat(offsets[:-1], lengths)
    return Packed(
        torch.from_numpy(ids),
        torch.from_numpy(types),
        torch.from_numpy(positions),
        torch.from_numpy(offsets),
        lengths,
        None if prefix is None else tuple(prefix),
    )
