"""Rows of a packed tensor: the sequences they belong to, where they stand, and what they may see."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from albertine.core.batch import Packed
from albertine.model.visibility import Visibility, prefix

if TYPE_CHECKING:
    from albertine.model.relative_positions import Distances
    from albertine.model.rotation import Rotation


@dataclass(frozen=True, eq=False)
class Rows:
    """The sequences of R packed rows, and what is known of each row.

    Attributes:
        cu_seqlens: offsets of the sequences, int32 (S+1,).
        lengths: the same as Python integers, or None where learning them would make the host wait.
        longest: an upper bound of the lengths.
        positions: place of each row in its sequence, int64 (R,). token_types: its segment id, int64 (R,).
        visible: which keys a row sees, and from when on it is seen as a key; None: all see all.
        rotation: how queries and keys are turned; None: they are not.
        distances: of the pass, where positions are relative; else None.
        injection: (R, 3H), what is added to queries, keys and values; None: nothing.
        places: where the rows stand among those of the pass, int64 (R,); None: they are all of them.
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
    places: Tensor | None = None

    @classmethod
    def of(cls, packed: Packed) -> Rows:
        """All rows of a batch; with a `prefix` they see what UniLM lets them see."""
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
        """The lengths, asking the device if need be."""
        return self.lengths if self.lengths is not None else tuple(self.cu_seqlens.diff().tolist())

    def select(self, index: Tensor) -> Selected:
        """Some of the rows, sequence by sequence.

        Args:
            index: int64 (P,) into R, in any order; a row may be named at most twice.
        """
        if index.device.type == "cpu":  # in Python: of one text, torch's calls would be felt
            asked = index.tolist()
            places = sorted(asked)
            ordered, order = (index, None) if asked == places else torch.sort(index, stable=True)
            back = None if order is None else order.argsort()
            ends = accumulate(self.known_lengths(), initial=0)
            offsets = list(map(partial(bisect_left, places), ends))
            lengths = tuple(map(sub, offsets[1:], offsets))
            cu_seqlens, longest = index.new_tensor(offsets, dtype=torch.int32), max(lengths, default=0)
        else:
            ordered, order = torch.sort(index, stable=True)
            back = order.argsort()
            cu_seqlens = torch.searchsorted(ordered, self.cu_seqlens.long()).to(torch.int32)
            lengths, longest = None, min(len(index), 2 * self.longest)
            # A kernel leaves queries beyond the bound unwritten: fail loudly, yet without waiting.
            torch._assert_async((cu_seqlens.diff() <= longest).all())
        rows = Rows(
            cu_seqlens,
            lengths,
            longest,
            self.positions.index_select(0, ordered),
            self.token_types.index_select(0, ordered),
            None if self.visible is None else self.visible.select(ordered),
            None if self.rotation is None else self.rotation.select(ordered),
            None if self.distances is None else self.distances.anywhere(),
            None if self.injection is None else self.injection[ordered],
            ordered if self.places is None else self.places[ordered],
        )
        return Selected(rows, ordered, back)

    @cached_property
    def cells(self) -> Tensor:
        """The cell of each row in a table of S × `longest`, int64 (R,); computed where the rows are, without
        a wait of the host."""
        every = torch.arange(len(self.positions), device=self.cu_seqlens.device)
        sequence = torch.searchsorted(self.cu_seqlens[1:].long(), every, right=True)
        return sequence * self.longest + every - self.cu_seqlens.long()[sequence]


class Selected(NamedTuple):
    """Some rows of a packed tensor.

    Attributes:
        rows: what is known of them. places: where they stand in the tensor, int64 (P,), ascending.
        order: int64 (P,), puts results for `rows` into the order they were asked for in; None: they are.
    """

    rows: Rows
    places: Tensor
    order: Tensor | None

    def of(self, x_TH: Tensor) -> Tensor:
        """The rows of a tensor, (P, H), in the order they were asked for in."""
        return self.as_asked(x_TH.index_select(0, self.places))

    def as_asked(self, x_PH: Tensor) -> Tensor:
        """Results for `rows`, (P, H), in the order they were asked for in."""
        return x_PH if self.order is None else x_PH.index_select(0, self.order)
