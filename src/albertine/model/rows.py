"""Metadata of the rows of a packed tensor: their sequences, positions, segments and attention mask."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from albertine.core.batch import Packed
from albertine.model.visibility import Visibility, prefix

if TYPE_CHECKING:
    from albertine.model.positions.relative import Distances
    from albertine.model.positions.rotary import Rotation


@dataclass(frozen=True, eq=False)
class Rows:
    """Metadata of R packed rows.

    Attributes:
        cu_seqlens: offsets of the sequences, int32 (S+1,).
        lengths: the lengths as Python integers, or None where reading them would synchronise with the device.
        longest: an upper bound of the lengths.
        positions: position in the sequence, int64 (R,). token_types: segment id, int64 (R,).
        visible: attention mask as intervals; None: all tokens of a sequence see each other.
        rotation: rotary positions; else None.
        distances: of the pass, with relative positions; else None.
        injection: (R, 3H), added to queries, keys and values; None: no input injection.
        indices: of a selection, its rows among all rows of the pass, int64 (R,); None: all rows.
    """

    cu_seqlens: Tensor
    lengths: tuple[int, ...] | None
    longest: int
    positions: Tensor
    token_types: Tensor
    visible: Visibility | None = None
    rotation: Rotation | None = None
    distances: Distances | None = None
    injection: Tensor | None = None
    indices: Tensor | None = None

    @classmethod
    def of(cls, packed: Packed) -> Rows:
        """All rows of a batch; with a `prefix`, under UniLM's sequence-to-sequence mask."""
        visible = None if packed.prefix is None else prefix(packed.lengths, packed.prefix, packed.input_ids)
        return cls(
            packed.cu_seqlens,
            packed.lengths,
            packed.max_length,
            packed.position_ids,
            packed.token_type_ids,
            visible,
        )

    def known_lengths(self) -> tuple[int, ...]:
        """The lengths, read from the device where necessary."""
        return self.lengths if self.lengths is not None else tuple(self.cu_seqlens.diff().tolist())

    def select(self, index: Tensor) -> SelectedRows:
        """Some of the rows, sequence by sequence.

        Args:
            index: int64 (P,) into R, in any order, each row at most twice.
        """
        if index.device.type == "cpu":  # in Python: for a single text torch's calls would be noticeable
            requested = index.tolist()
            indices = sorted(requested)
            ordered, order = (index, None) if requested == indices else torch.sort(index, stable=True)
            inverse = None if order is None else order.argsort()
            ends = accumulate(self.known_lengths(), initial=0)
            offsets = list(map(partial(bisect_left, indices), ends))
            lengths = tuple(map(sub, offsets[1:], offsets))
            cu_seqlens, longest = index.new_tensor(offsets, dtype=torch.int32), max(lengths, default=0)
        else:
            ordered, order = torch.sort(index, stable=True)
            inverse = order.argsort()
            cu_seqlens = torch.searchsorted(ordered, self.cu_seqlens.long()).to(torch.int32)
            lengths, longest = None, min(len(index), 2 * self.longest)
            # A kernel leaves queries beyond the bound unwritten: fail loudly, yet without synchronising.
            torch._assert_async((cu_seqlens.diff() <= longest).all())
        rows = Rows(
            cu_seqlens,
            lengths,
            longest,
            self.positions.index_select(0, ordered),
            self.token_types.index_select(0, ordered),
            None if self.visible is None else self.visible.select(ordered),
            None if self.rotation is None else self.rotation.select(ordered),
            None if self.distances is None else self.distances.without_leading(),
            None if self.injection is None else self.injection[ordered],
            ordered if self.indices is None else self.indices[ordered],
        )
        return SelectedRows(rows, ordered, inverse)

    def some_sequences(self, index: Tensor) -> Rows:
        """The rows of some sequences, or of beginnings of them, int64 (P,) ascending. Other sequences are
        removed, not left empty, so that no kernel reserves room for them."""
        rows = self.select(index).rows
        return replace(
            rows,
            cu_seqlens=torch.unique_consecutive(rows.cu_seqlens),
            lengths=None if rows.lengths is None else tuple(n for n in rows.lengths if n),
            longest=min(rows.longest, self.longest),
        )

    @cached_property
    def padded_indices(self) -> Tensor:
        """Index of each row in a padded table (S · `longest`), int64 (R,), computed without synchronising."""
        every = torch.arange(len(self.positions), device=self.cu_seqlens.device)
        sequence = torch.searchsorted(self.cu_seqlens[1:].long(), every, right=True)
        return sequence * self.longest + every - self.cu_seqlens.long()[sequence]


class SelectedRows(NamedTuple):
    """A selection of the rows of a packed tensor.

    Attributes:
        rows: their metadata. indices: into the tensor, int64 (P,), ascending.
        order: int64 (P,), from the order of `rows` to the requested order; None: they are equal.
    """

    rows: Rows
    indices: Tensor
    order: Tensor | None

    def of(self, x_TH: Tensor) -> Tensor:
        """The selected rows of a tensor, (P, H), in the requested order."""
        return self.restore_order(x_TH.index_select(0, self.indices))

    def restore_order(self, x_PH: Tensor) -> Tensor:
        """Results for `rows`, (P, H), in the requested order."""
        return x_PH if self.order is None else x_PH.index_select(0, self.order)
