"""Sequences of many lengths, filled up and computed together in relative attention."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.model.model import Model
from albertine.model.positions.registry import with_positions
from albertine.model.positions.relative import LENGTH_MULTIPLE
from albertine.model.positions.sequence_groups import MAX_UNPADDED, SequenceGroups, group_sequences
from albertine.model.rows import Rows
from albertine.model.segment_memory import Memory
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import Segments, encode_segments
from albertine.model.visibility import Visibility, causal
from tests.model import builders

LENGTHS = [3, 17, 5, 30, 16, 1, 21, 18]


def xlnet() -> Model:
    change = {"positions": "relative", "embedding_norm": False, "initializer_range": 0.3}
    return Model(builders.config(SharingPlan.shared(2), **change), {"lm"}, seed=3).double().eval()


def one_of(batch: Packed, number: int) -> tuple[Packed, slice]:
    first = sum(LENGTHS[:number])
    rows = slice(first, first + LENGTHS[number])
    return pack([batch.input_ids[rows].numpy()], [batch.token_type_ids[rows].numpy()]), rows


def groups_of(lengths: list[int], keep: Callable[[Rows], Rows] = lambda rows: rows) -> SequenceGroups:
    rows, model = Rows.of(builders.packed(lengths)), xlnet()
    keys = with_positions(rows, model.config, torch.zeros(0), training=False)
    queries = keep(keys)
    assert keys.distances is not None
    return group_sequences(
        keys.distances if queries is keys else keys.distances.without_leading(), queries, keys
    )


def gradients(model: Model, states: Tensor) -> list[Tensor]:
    wanted = [p for p in model.encoder.parameters() if p.requires_grad]
    states = states * torch.arange(
        1, 1 + states.shape[-1], dtype=states.dtype
    )  # a LayerNorm's sum is constant
    return [g for g in torch.autograd.grad(states.sum(), wanted, allow_unused=True) if g is not None]


@pytest.mark.parametrize("sees", ["all", "what is before"])
@pytest.mark.parametrize("remembers", [False, True])
def test_each_is_as_alone_with_its_gradients(sees: str, remembers: bool) -> None:
    model, batch = xlnet(), builders.packed(LENGTHS)
    before = [5 * (n % 3) for n in LENGTHS] if remembers else [0] * len(LENGTHS)
    generator = torch.Generator().manual_seed(1)
    states = [torch.randn(sum(before), 24, generator=generator).double() for _ in range(2)]
    memory = Memory(tuple(states), tuple(before)) if remembers else None
    visible = causal(LENGTHS, batch.input_ids) if sees != "all" else None
    together = encode_segments(model.encoder, Segments(batch, visible), memory)[0]
    alone = []
    for number in range(len(LENGTHS)):
        one, rows = one_of(batch, number)
        own = None if visible is None else Visibility(visible.when[rows], visible.until[rows])
        past = None if memory is None else memory.of([number])
        alone.append(encode_segments(model.encoder, Segments(one, own), past)[0])
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-11, rtol=0)
    for mine, theirs in zip(gradients(model, together), gradients(model, torch.cat(alone)), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-9, rtol=1e-9)


def test_rows_that_are_wanted_are_as_alone() -> None:
    """Of the last depth other numbers of each sequence, of the sixth none."""
    model, batch = xlnet(), builders.packed(LENGTHS)
    wanted = torch.tensor([0, 2, 3, 4, 9, 19, 20, 21, 25, 26, 30, 54, 55, 60, 71, 72, 93, 94])
    found = model.encoder(batch, rows=wanted).last_hidden
    every = model.encoder(batch).last_hidden[wanted]
    torch.testing.assert_close(found, every, atol=1e-11, rtol=0)
    for mine, theirs in zip(gradients(model, found), gradients(model, every), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-9, rtol=1e-9)


def test_many_lengths_have_few_shapes() -> None:
    """As many as are compiled: multiples of 16, and 1, 2, 4 or more at once."""
    made = groups_of([*range(1, 49), 70])
    shapes = {(group.count, group.queries, group.keys) for group in made.groups}
    assert made.queries is not None and shapes == {(16, n, n) for n in (16, 32, 48)} | {(1, 80, 80)}
    odd = groups_of([3, 9, 4, 11, 20, 7, 8, 30])
    assert sorted((g.count, g.queries) for g in odd.groups) == [(2, 16), (2, 32), (4, 16)]


def test_what_has_few_shapes_stays_where_it_is() -> None:
    for lengths in ([7] * 5, [7] * 3 + [9] * 4):
        made = groups_of(lengths)
        assert made.queries is None and len(made.groups) <= MAX_UNPADDED
        assert [group.queries % LENGTH_MULTIPLE for group in made.groups] == sorted(set(lengths))
