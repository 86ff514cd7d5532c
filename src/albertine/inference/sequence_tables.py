"""The layout of a batch in an exported graph: conversion between rows of tokens and a padded table of
sequences, with symbolic shapes.

A model computes rows (R, H); only attention and pooling need to know where sequences begin. A padded batch
gives B·L rows, padding included, and a packed one its T tokens. Every size is a symbol in the traced graph,
so nothing here may become a Python number; what all layers need is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from albertine.core.batch import Packed


@dataclass(frozen=True, eq=False)
class PaddedTable:
    """A padded batch, its rows those of the table one after the other.

    Attributes:
        input_ids, token_type_ids: int64 (B, L). real: bool (B, L), what is no padding, anywhere in its row.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    real: Tensor

    @cached_property
    def rows(self) -> Packed:
        """All rows as the embeddings read them; a place is the column (`core.batch.from_padded`)."""
        batch, length = self.input_ids.shape
        positions = torch.arange(length, device=self.input_ids.device).expand(batch, length)
        ids, types = self.input_ids.flatten(), self.token_type_ids.flatten()
        no_offsets = torch.zeros(1, device=ids.device)  # the embeddings do not read them
        return Packed(ids, types, positions.flatten(), no_offsets, ())

    def table(self, x_R: Tensor) -> Tensor:
        """(R, …) as (B, L, …)."""
        return x_R.view(*self.input_ids.shape, *x_R.shape[1:])

    def flat(self, x_BL: Tensor) -> Tensor:
        """(B, L, …) as (R, …)."""
        return x_BL.flatten(0, 1)

    def shown(self, x_R: Tensor) -> Tensor:
        """(R, …) as an output has it, (B, L, …)."""
        return self.table(x_R)

    @cached_property
    def lengths(self) -> Tensor:
        """Tokens of each sequence, int64 (B,)."""
        return self.real.sum(1)

    @cached_property
    def types(self) -> Tensor:
        """Segments as a table, (B, L)."""
        return self.token_type_ids

    @cached_property
    def first_column(self) -> Tensor:
        """The column of the first token of each sequence, int64 (B,)."""
        return self.real.int().argmax(1)

    @cached_property
    def last_column(self) -> Tensor:
        """The column of the last token of each sequence, int64 (B,)."""
        return self.input_ids.shape[1] - 1 - self.real.flip(1).int().argmax(1)

    @cached_property
    def first(self) -> Tensor:
        """The row of the first token of each sequence, int64 (B,)."""
        return self._starts + self.first_column

    @cached_property
    def last(self) -> Tensor:
        """The row of the last token of each sequence, int64 (B,)."""
        return self._starts + self.last_column

    @cached_property
    def _starts(self) -> Tensor:
        batch, length = self.input_ids.shape
        return torch.arange(batch, device=self.input_ids.device) * length


@dataclass(frozen=True, eq=False)
class PackedTable:
    """A packed batch, whose rows are its tokens; attention lays them out as a table and takes them back.

    Attributes:
        input_ids, token_type_ids: int64 (T,). offsets: int64 (S + 1,), first 0, last T.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    offsets: Tensor

    @cached_property
    def rows(self) -> Packed:
        """All rows as the embeddings read them."""
        no_offsets = torch.zeros(1, device=self.input_ids.device)  # the embeddings do not read them
        return Packed(self.input_ids, self.token_type_ids, self._places, no_offsets, ())

    @cached_property
    def _owners(self) -> Tensor:
        """The number of each token's sequence, int64 (T,): how many have ended before it."""
        return (self._every[:, None] >= self.offsets[1:]).sum(1)

    @cached_property
    def _every(self) -> Tensor:
        return torch.arange(self.input_ids.shape[0], device=self.input_ids.device)

    @cached_property
    def _places(self) -> Tensor:
        return self._every - self.offsets[self._owners]

    @cached_property
    def _columns(self) -> Tensor:
        """0 to the longest length, int64 (L,). That length is a number out of the data: a size that the
        graph learns when it runs."""
        longest = self.lengths.max().item()
        torch._check(longest >= 1)  # type: ignore[no-untyped-call]
        torch._check(longest <= self.input_ids.shape[0])  # type: ignore[no-untyped-call]
        return torch.arange(longest, device=self.offsets.device)

    @cached_property
    def real(self) -> Tensor:
        """bool (S, L)."""
        return self._columns < self.lengths[:, None]

    def table(self, x_R: Tensor) -> Tensor:
        """(T, …) as (S, L, …); where a sequence has no token more stands its last one. One of another
        sequence has no weight there either, but is no number if that sequence overflows, nor is its
        product with 0."""
        places = self.offsets[:-1, None] + self._columns
        return x_R[torch.minimum(places, self.offsets[1:, None] - 1)]

    def flat(self, x_SL: Tensor) -> Tensor:
        """(S, L, …) as (T, …)."""
        return x_SL.flatten(0, 1)[self._owners * x_SL.shape[1] + self._places]

    def shown(self, x_R: Tensor) -> Tensor:
        """(T, …) as an output has it: as it is."""
        return x_R

    @cached_property
    def lengths(self) -> Tensor:
        """Tokens of each sequence, int64 (S,)."""
        return self.offsets[1:] - self.offsets[:-1]

    @cached_property
    def types(self) -> Tensor:
        """Segments as a table, (S, L)."""
        return self.table(self.token_type_ids)

    @cached_property
    def first_column(self) -> Tensor:
        """The column of the first token of each sequence in the table: int64 (S,) of 0."""
        return torch.zeros_like(self.lengths)

    @cached_property
    def last_column(self) -> Tensor:
        """The column of the last token of each sequence in the table, int64 (S,)."""
        return self.lengths - 1

    @cached_property
    def first(self) -> Tensor:
        """The row of the first token of each sequence, int64 (S,)."""
        return self.offsets[:-1]

    @cached_property
    def last(self) -> Tensor:
        """The row of the last token of each sequence, int64 (S,)."""
        return self.offsets[1:] - 1


Table = PaddedTable | PackedTable


def goes_on(table: Table) -> Tensor:
    """Which tokens are followed by one of their segment, bool (S, L).

    The next column is looked up: a slice of L - 1 columns torch.export would have to know for another number
    than 1.
    """
    types = table.types
    columns = torch.arange(types.shape[1], device=types.device)
    following = types[:, (columns + 1).clamp_max(types.shape[1] - 1)]
    return table.real & (columns < table.last_column[:, None]) & (types == following)
