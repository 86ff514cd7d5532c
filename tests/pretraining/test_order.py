"""The order of samples: every row once an epoch, resumable anywhere from two numbers."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.errors import CorpusError, SettingsError
from albertine.pretraining.stages import Cursor, Row, epoch_order, global_batches


def rows_of(sizes: list[int]) -> object:
    return lambda epoch: sizes[epoch % len(sizes)]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    batch=st.integers(1, 70),
    seed=st.integers(0, 9),
)
def test_every_row_exactly_once_an_epoch(sizes: list[int], batch: int, seed: int) -> None:
    rows: list[Row] = []
    for _, taken in islice(global_batches(rows_of(sizes), batch, seed), 1 + 5 * max(sizes) // batch):
        assert len(taken) == batch
        rows += taken
    assert rows == sorted(rows, key=lambda row: row[0]), "epochs follow one another"
    whole = rows[-1][0]
    seen = Counter(rows)
    for epoch in range(whole):
        assert {row for e, row in seen if e == epoch} == set(range(sizes[epoch % len(sizes)]))
    assert set(seen.values()) == {1}


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    batch=st.integers(1, 40),
    stop=st.integers(1, 12),
)
def test_resuming_at_any_cursor_is_exact(sizes: list[int], batch: int, stop: int) -> None:
    whole = list(islice(global_batches(rows_of(sizes), batch, 3), 20))
    cursor = whole[stop - 1][0]
    again = list(
        islice(global_batches(rows_of(sizes), batch, 3, Cursor(cursor.epoch, cursor.offset)), 20 - stop)
    )
    assert again == whole[stop:]


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(epoch_order(50, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_cursor_is_two_numbers_and_resumes_at_an_epoch_border() -> None:
    (cursor, first), (_, second) = islice(global_batches(lambda _: 6, 6, 0), 2)
    assert cursor == Cursor(0, 6)
    assert {epoch for epoch, _ in first} == {0} and {epoch for epoch, _ in second} == {1}
    assert next(global_batches(lambda _: 6, 6, 0, cursor))[1] == second


def test_impossible_orders_are_refused() -> None:
    with pytest.raises(CorpusError, match="too small"):
        next(global_batches(lambda _: 0, 4, 0))
    with pytest.raises(CorpusError, match="stands at sample 9 of epoch 2, which has 5"):
        next(global_batches(lambda _: 5, 4, 0, Cursor(2, 9)))
    with pytest.raises(SettingsError):
        next(global_batches(lambda _: 5, 0, 0))
