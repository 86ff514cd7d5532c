"""KV cache: keys and values of every layer, so that sequences can be extended without recomputing earlier
tokens.

That equals one pass over all tokens where no token attends to later ones: a source does not see its target,
and a target token only earlier tokens (UniLM, Dong et al. 2019, section 2.3).
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
        keys, values: of each layer, (rows, N, D).
        token_types: segment ids of these rows, int64 (rows,).
        starts, lengths: first row and number of rows of each sequence. Sequences may share rows, and rows may
            belong to no sequence.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    token_types: Tensor
    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    def select(self, sequences: Sequence[int]) -> KeyValueCache:
        """The cache of some sequences by index, in this order, with repetitions; nothing is copied."""
        starts, lengths = (tuple(x[i] for i in sequences) for x in (self.starts, self.lengths))
        return replace(self, starts=starts, lengths=lengths)


class LayerCache:
    """Keys and values of one layer, (rows, N, D), to which new rows are added.

    Args:
        order: int64, the rows of (old, new) so that those of each sequence are contiguous.
    """

    def __init__(self, keys: Tensor, values: Tensor, order: Tensor) -> None:
        self.keys, self.values, self._order = keys, values, order

    def extend(self, k_TND: Tensor, v_TND: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new rows; returns those of all rows."""
        self.keys, self.values = (
            torch.cat(pair).index_select(0, self._order)
            for pair in ((self.keys, k_TND), (self.values, v_TND))
        )
        return self.keys, self.values


@dataclass(frozen=True)
class Extension:
    """New rows after those of a cache.

    Attributes:
        queries, keys: metadata of the new rows, and of all rows. layers: the cache of every layer.
        starts, lengths: of the sequences among all rows.
    """

    queries: Rows
    keys: Rows
    layers: tuple[LayerCache, ...]
    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, packed: Packed, cache: KeyValueCache | None, depth: int, empty: Tensor) -> Extension:
        """
        Args:
            packed: the new tokens of each sequence. cache: of the same sequences; None: they are new.
            empty: keys without rows, (0, N, D).
        """
        zeros = (0,) * packed.num_sequences
        starts, before = (zeros, zeros) if cache is None else (cache.starts, cache.lengths)
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
        positions = torch.from_numpy(np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)).to(device)
        cu_seqlens = torch.from_numpy(offsets.astype(np.int32)).to(device)
        types = packed.token_type_ids
        if cache is not None:
            types = torch.cat([cache.token_types, types])
        keys = Rows(cu_seqlens, lengths, max(lengths), positions, types.index_select(0, order))
        cached = [(empty, empty)] * depth if cache is None else zip(cache.keys, cache.values, strict=True)
        layers = tuple(LayerCache(k, v, order) for k, v in cached)
        return cls(Rows.of(packed), keys, layers, tuple(offsets[:-1].tolist()), lengths)

    def cache(self) -> KeyValueCache:
        """Of old and new rows, after every layer has been computed."""
        keys, values = (tuple(getattr(layer, name) for layer in self.layers) for name in ("keys", "values"))
        return KeyValueCache(keys, values, self.keys.token_types, self.starts, self.lengths)
