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
import torch.nn.functional as F
from torch import Tensor

from albertine.grouping import by_tokens as by_tokens
from albertine.grouping import longest_first as longest_first


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
            the target after it is read causally (UniLM; albert_family.md 1.13). None: all see all.
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

    @property
    def predicting_rows(self) -> Tensor:
        """Rows whose next token belongs to a target, int64 (P,): from the last of a source to the last but
        one of its target. What they are to predict are the `input_ids` one row on."""
        if self.prefix is None:
            raise ValueError("only a batch of sources and targets has rows that predict the next token")
        ends = np.cumsum(self.lengths)
        spans = zip(ends - self.lengths + self.prefix, ends, strict=True)
        rows = np.concatenate([np.arange(first, end) for first, end in spans]) - 1
        return torch.from_numpy(rows).to(self.input_ids.device)

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
    if types.shape != ids.shape:
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


def padded_to(packed: Packed, num_tokens: int) -> Packed:
    """The same batch and, where it has fewer than `num_tokens` tokens, one more sequence that fills it up:
    token, segment and position 0 throughout. The rows of the real tokens stay where they were."""
    extra = num_tokens - packed.num_tokens
    if extra <= 0:
        return packed
    ids, types, positions = (
        F.pad(x, (0, extra)) for x in (packed.input_ids, packed.token_type_ids, packed.position_ids)
    )
    end = packed.cu_seqlens.new_tensor([num_tokens])
    cu_seqlens, lengths = torch.cat([packed.cu_seqlens, end]), (*packed.lengths, extra)
    prefix = None if packed.prefix is None else (*packed.prefix, extra)
    return Packed(ids, types, positions, cu_seqlens, lengths, prefix)
