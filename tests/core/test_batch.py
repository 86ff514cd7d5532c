"""The padded edge of the packed batch: what a call from outside may look like, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from albertine.core.batch import from_padded, pack, to_padded
from albertine.errors import InputError
from tests.model import builders

POSITIONS = 32  # of the builders' models


def batch(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids and mask of rows whose zeros are padding."""
    ids = torch.tensor(rows)
    return ids, (ids != 0).long()


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=5, max_size=5).filter(any), min_size=1, max_size=4),
    st.sampled_from([torch.long, torch.int32, torch.bool, torch.float32, torch.bfloat16, torch.float64]),
)
def test_real_tokens_come_back_to_their_columns(rows: list[list[int]], kind: torch.dtype) -> None:
    ids, mask = batch(rows)
    packed, index = from_padded(ids, mask.to(kind))
    assert packed.input_ids.tolist() == [i for row in rows for i in row if i]
    assert packed.position_ids.tolist() == [at for row in rows for at, i in enumerate(row) if i]
    assert packed.lengths == tuple(sum(map(bool, row)) for row in rows)
    assert packed.cu_seqlens.tolist() == [0, *np.cumsum(packed.lengths)]
    assert torch.equal(to_padded(packed.input_ids, index, *ids.shape), ids)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bool, torch.int32])
def test_a_model_takes_a_mask_of_any_numbers(kind: torch.dtype) -> None:
    model = builders.model()
    ids, mask = batch([[3, 4, 5, 0], [0, 6, 7, 8]])
    expected, found = model(ids, mask), model(ids, mask.to(kind))
    assert torch.equal(found.last_hidden_state, expected.last_hidden_state)


def test_ids_that_are_no_whole_numbers_are_refused() -> None:
    """Catches: the embedding of 3 for 3.9, in silence."""
    ids, mask = batch([[3, 4, 5], [6, 7, 8]])
    with pytest.raises(InputError, match=r"input_ids are torch\.float32"):
        builders.model()(ids.float() + 0.9, mask)


@pytest.mark.parametrize("odd", [2, -1, 0.5, -10000.0, float("nan"), float("-inf")])
def test_a_mask_of_other_numbers_is_refused(odd: float) -> None:
    ids, mask = batch([[3, 4, 5], [6, 7, 8]])
    mask = mask.float() if isinstance(odd, float) else mask
    mask[1, 1] = odd
    with pytest.raises(InputError, match="values other than 0 and 1"):
        builders.model()(ids, mask)


@pytest.mark.parametrize(
    ("ids", "given", "message"),
    [
        ([[3, 4]], {"attention_mask": [[0, 0]]}, "a sequence without a token"),
        ([[3, 4]], {"attention_mask": [[1, 1, 1]]}, r"attention_mask has the shape \(1, 3\)"),
        ([[3, 4]], {"token_type_ids": [[0], [0]]}, r"token_type_ids has the shape \(2, 1\)"),
        ([3, 4], {}, "as \\(batch, length\\)"),
        ([[3, builders.VOCABULARY]], {}, "input_ids holds 53, and the model's table has the rows 0 to 52"),
        ([[3, -1]], {}, "input_ids holds -1,"),
        ([[3, 4]], {"token_type_ids": [[0, 2]]}, "token_type_ids holds 2, .* 0 to 1"),
        ([[3, 4]], {"token_type_ids": [[-7, 1]]}, "token_type_ids holds -7,"),
    ],
)
def test_ids_outside_a_table_are_refused_before_the_lookup(
    ids: list[Any], given: dict[str, Any], message: str
) -> None:
    model = builders.model()
    looked_up: list[Any] = []
    model.encoder.register_forward_pre_hook(lambda *_: looked_up.append(1))
    with pytest.raises(InputError, match=message):
        model(torch.tensor(ids), **{name: torch.tensor(value) for name, value in given.items()})
    assert not looked_up


@pytest.mark.parametrize("segment", [-1, 30_000])
def test_segments_without_a_table_are_checked_too(segment: int) -> None:
    model = builders.model(positions="relative")
    with pytest.raises(InputError, match=f"token_type_ids holds {segment},"):
        model(torch.tensor([[3, 4]]), token_type_ids=torch.tensor([[0, segment]]))
    several = model(torch.tensor([[3, 4]]), token_type_ids=torch.tensor([[0, 9]])).last_hidden_state
    two = model(torch.tensor([[3, 4]]), token_type_ids=torch.tensor([[0, 1]])).last_hidden_state
    torch.testing.assert_close(several, two)


def test_a_batch_without_a_sequence_is_refused() -> None:
    with pytest.raises(InputError, match="the batch has no sequence"):
        builders.model()(torch.zeros(0, 7, dtype=torch.long))


def test_what_padding_holds_is_not_looked_at() -> None:
    model = builders.model()
    ids, mask = batch([[3, 4, 0], [5, 6, 7]])
    types = torch.zeros_like(ids)
    expected = model(ids, mask, types).last_hidden_state
    ids[0, 2], types[0, 2] = -100, 9
    assert torch.equal(model(ids, mask, types).last_hidden_state, expected)


def test_the_ends_of_the_tables_can_be_read() -> None:
    ids = torch.full((1, POSITIONS), builders.VOCABULARY - 1)
    out = builders.model()(ids, token_type_ids=torch.ones_like(ids)).last_hidden_state
    assert out.shape[:2] == (1, POSITIONS)


def test_rows_wider_than_the_position_table() -> None:
    """Padding on the right may have any length; on the left it counts as positions."""
    model = builders.model()
    ids, mask = batch([[3, 4, 5] + [0] * POSITIONS])
    right = model(ids, mask).last_hidden_state
    torch.testing.assert_close(right[:, :3], model(ids[:, :3]).last_hidden_state)
    with pytest.raises(
        InputError, match=r"column 34, and the model has the positions 0 to 31\. Pad on the right"
    ):
        model(ids.flip(1), mask.flip(1))


def test_segments_of_another_length_are_refused_sequence_by_sequence() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        pack([[5, 6, 7], [8, 9]], [[0, 0], [1, 1, 1]])
