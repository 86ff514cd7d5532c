"""The kernels against one another."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.layout import pack
from albertine.model.attention import RowSubset, Segments, attend, attend_padded


def heads(rows, seed):
    return torch.randn(rows, 2, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.data())
def test_the_loop_and_the_padded_call_agree(lengths, data):
    batch = pack([[1] * n for n in lengths])
    keys = Segments.of(batch)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, sum(lengths) - 1), unique=True, min_size=1)))
    subset = RowSubset.of(rows, batch)
    q, k, v = (heads(sum(lengths), seed) for seed in range(3))
    full = attend(q, k, v, keys, keys, 0.0)
    torch.testing.assert_close(full, attend_padded(q, k, v, keys, keys, 0.0))
    some = q[subset.sorted_rows]
    part = attend(some, k, v, subset.segments, keys, 0.0)
    torch.testing.assert_close(part, full[subset.sorted_rows])
    torch.testing.assert_close(part, attend_padded(some, k, v, subset.segments, keys, 0.0))


def test_attention_dropout_keeps_the_mean():
    batch = pack([[1] * 8] * 400)
    keys = Segments.of(batch)
    q, k = (heads(3200, seed).float() for seed in range(2))
    torch.manual_seed(0)
    for kernel in (attend, attend_padded):
        dropped = kernel(q, k, torch.ones_like(k), keys, keys, 0.25)
        assert dropped.std() > 0.05
        assert dropped.mean() == pytest.approx(1.0, abs=0.01)


@given(st.lists(st.integers(0, 11), unique=True, min_size=1))
def test_restoring_gives_back_the_order_asked_for(rows):
    wanted = torch.tensor(rows)
    subset = RowSubset.of(wanted, pack([[1] * 4, [1] * 8]))
    restored = subset.sorted_rows if subset.restore is None else subset.sorted_rows[subset.restore]
    assert torch.equal(restored, wanted)
    assert sum(subset.segments.known_lengths()) == len(rows)
