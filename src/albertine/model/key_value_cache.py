"""Keys and values of every depth, kept so that sequences can be read on from where they ended.

What was read is never computed again. That is the same as to compute all at once where nothing looks at what
comes after it: a source does not see its target, and a target's token only what is before it
(UniLM, Dong et al. 2019, section 2.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from albertine.core.batch import Packed
from albertine.model.rows import Rows


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of some sequences.

    Attributes:
        keys, values: of each depth, (rows, N, D).
        token_types: segment of each of these rows, int64 (rows,).
        starts, lengths: the first of these rows of each sequence, and how many they are; sequences may share
            rows, and there may be rows of none.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    token_types: Tensor
    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    def of(self, sequences: Sequence[int]) -> KeyValueCache:
        """That of some sequences by their numbers, in this order; one may be named several times. Nothing is
        copied."""
        starts, lengths = (tuple(x[i] for i in sequences) for x in (self.starts, self.lengths))
        return replace(self, starts=starts, lengths=lengths)


class Past:
    """Keys and values of one depth, (rows, N, D), and where new rows go among them.

    Args:
        order: int64, the rows of (old, new) so that each sequence's stand together.
    """

    def __init__(self, keys: Tensor, values: Tensor, order: Tensor) -> None:
        self.keys, self.values, self._order = keys, values, order

    def extend(self, k_TND: Tensor, v_TND: Tensor) -> tuple[Tensor, Tensor]:
        """Take the keys and values of new rows; returns those of all."""
        self.keys, self.values = (
            torch.cat(pair).index_select(0, self._order)
            for pair in ((self.keys, k_TND), (self.values, v_TND))
        )
        return self.keys, self.values


@dataclass(frozen=True)
class Extension:
    """New rows after those of a cache, and what comes of both.

    Attributes:
        queries, keys: the new rows, and all. pasts: one for every depth.
        starts, lengths: of the sequences among all rows.
    """

    queries: Rows
    keys: Rows
    pasts: tuple[Past, ...]
    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, packed: Packed, cache: KeyValueCache | None, depth: int, empty: Tensor) -> Extension:
        """
        Args:
            packed: the new tokens of each sequence. cache: of the same sequences; None begins them.
            empty: no rows of keys, (0, N, D).
        """
        nothing = (0,) * packed.num_sequences
        starts, before = (nothing, nothing) if cache is None else (cache.starts, cache.lengths)
        held = 0 if cache is None else len(cache.keys[0])
        parts = []
        for start, old, new, end in zip(
            starts, before, packed.lengths, np.cumsum(packed.lengths), strict=True
        ):
            parts += [np.arange(start, start + old), np.arange(held + end - new, held + end)]
        device = packed.input_ids.device
        order = torch.from_numpy(np.concatenate(parts)).to(device)
        lengths = tuple(old + new for old, new in zip(before, packed.lengths, strict=True))
        offsets = np.cumsum([0, *lengths])
        places = torch.from_numpy(np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)).to(device)
        cu_seqlens = torch.from_numpy(offsets.astype(np.int32)).to(device)
        types = packed.token_type_ids
        if cache is not None:
            types = torch.cat([cache.token_types, types])
        keys = Rows(cu_seqlens, lengths, max(lengths), places, types.index_select(0, order))
        held_of = [(empty, empty)] * depth if cache is None else zip(cache.keys, cache.values, strict=True)
        pasts = tuple(Past(k, v, order) for k, v in held_of)
        return cls(Rows.of(packed), keys, pasts, tuple(offsets[:-1].tolist()), lengths)

    def cache(self) -> KeyValueCache:
        """Of old and new rows, once every depth has been computed."""
        keys, values = (tuple(getattr(past, name) for past in self.pasts) for name in ("keys", "values"))
        return KeyValueCache(keys, values, self.keys.token_types, self.starts, self.lengths)
