"""Two integers a token define the attention masks of other implementations, and every kernel obeys them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from albertine.core.batch import pack
from albertine.core.precision import ComputeFormat
from albertine.model.backend.base import Backend
from albertine.model.backend.cpu_attention import QueryMask, attend
from albertine.model.backend.cuda import attend_padded
from albertine.model.positions.relative import KeyMask
from albertine.model.rows import Rows
from albertine.model.visibility import Visibility, causal, prefix
from tests.model.builders import permuted

plain = Backend(ComputeFormat(torch.float64)).attend
KERNELS = (plain, attend, attend_padded)


def masked(q, k, v, seen):
    """One sequence by the formula, with a mask in memory; zeros where nothing is seen."""
    scores = torch.einsum("lnd,mnd->nlm", q, k) / q.shape[2] ** 0.5
    weights = torch.where(seen, scores, float("-inf")).softmax(-1).nan_to_num(0.0)
    return torch.einsum("nlm,mnd->lnd", weights, v)


def heads(rows, seed):
    return torch.randn(rows, 2, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.data())
def test_every_kernel_keeps_to_any_two_integers(lengths, data):
    """Also where a query may see nothing: it gets zeros, and so does its gradient."""
    total = sum(lengths)
    numbers = st.lists(st.integers(-1, 9), min_size=total, max_size=total)
    visible = Visibility(torch.tensor(data.draw(numbers)), torch.tensor(data.draw(numbers)))
    rows = replace(Rows.of(pack([[1] * n for n in lengths])), visible=visible)
    q, k, v = (heads(total, seed) for seed in range(3))
    sizes = [x.split(lengths) for x in (q, k, v, visible.when, visible.until)]
    right = torch.cat(
        [masked(a, b, c, when < until[:, None]) for a, b, c, when, until in zip(*sizes, strict=True)]
    )
    direction = heads(total, 5)
    for kernel in KERNELS:
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        found = kernel(*leaves, rows, rows, 0.0)
        torch.testing.assert_close(found, right)
        found.backward(direction)
        assert all(torch.isfinite(x.grad).all() for x in leaves)
        nothing = torch.cat(
            [
                ~(w < u[:, None]).any(1)
                for w, u in zip(visible.when.split(lengths), visible.until.split(lengths), strict=True)
            ]
        )
        assert not leaves[0].grad[nothing].any() and not found[nothing].any()


@pytest.mark.parametrize("kernel", [attend, attend_padded])
def test_no_torch_kernel_gets_a_query_without_keys(kernel, monkeypatch):
    """On a processor torch gives zeros for one; the output of a GPU kernel is undefined."""
    real, masks = torch.nn.functional.scaled_dot_product_attention, []

    def watched(*args, attn_mask, **options):
        masks.append(attn_mask)
        return real(*args, attn_mask=attn_mask, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    visible = Visibility(torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0, 1, 2, 9, 0]))
    rows = replace(Rows.of(pack([[1] * 3, [1] * 2])), visible=visible)
    found = kernel(*(heads(5, seed) for seed in range(3)), rows, rows, 0.0)
    assert masks and all(mask.any(-1).all() for mask in masks)
    assert (found == 0).all(-1).all(-1).tolist() == [True, False, False, False, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_kernels_of_long_sequences_keep_to_them_too(dtype):
    """From eighty keys on bfloat16 is trained in plain products."""
    ranks = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    rows = replace(Rows.of(pack([[1] * 100])), visible=permuted(ranks, torch.ones(100, dtype=torch.bool))[1])
    q, k, v = (heads(100, seed).to(dtype).requires_grad_() for seed in range(3))
    found = attend(q, k, v, rows, rows, 0.0)
    right = masked(q.double(), k.double(), v.double(), ranks < ranks[:, None])
    torch.testing.assert_close(found.double(), right, rtol=0.03, atol=0.03)
    found.sum().backward()
    assert not found[ranks == 0].any() and torch.isfinite(q.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gradients", [True, False])
def test_long_sequences_read_causally(dtype, gradients):
    """Where all is causal there is no mask, and each kernel has an option of its own for it."""
    rows = Rows.of(pack([[1] * 100] * 2))
    rows = replace(rows, visible=causal(rows.lengths, rows.positions))
    q, k, v = (heads(200, seed).to(dtype).requires_grad_(gradients) for seed in range(3))
    found = attend(q, k, v, rows, rows, 0.0)
    for part in (slice(0, 100), slice(100, 200)):
        right = masked(*(x[part].double() for x in (q, k, v)), torch.ones(100, 100).tril().bool())
        torch.testing.assert_close(found[part].double(), right, rtol=0.03, atol=0.03)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.data())
def test_causal_and_prefix_by_their_definitions(lengths, data):
    sources = [data.draw(st.integers(1, n)) for n in lengths]
    like = torch.zeros(1)
    for visible, rule in (
        (causal(lengths, like), lambda i, j, source: j <= i),
        (prefix(lengths, sources, like), lambda i, j, source: j < source if i < source else j <= i),
    ):
        split = zip(visible.when.split(lengths), visible.until.split(lengths), sources, strict=True)
        for when, until, source in split:
            n = len(when)
            right = torch.tensor([[rule(i, j, source) for j in range(n)] for i in range(n)])
            assert torch.equal(when < until[:, None], right)


def test_the_cheapest_form_is_taken():
    places = torch.arange(5)[None]
    assert QueryMask.of(places + 9, places) == QueryMask()
    assert QueryMask.of(places + 1, places) == QueryMask(causal=True)
    assert QueryMask.of(places + 1, places + 1).some is not None
    assert QueryMask.of(places[:, :3] + 1, places).mask is not None


@pytest.mark.parametrize("kernel", KERNELS)
def test_where_there_is_no_key_there_are_zeros(kernel):
    visible = Visibility(torch.zeros(5, dtype=torch.int64), torch.ones(5, dtype=torch.int64))
    queries = replace(Rows.of(pack([[1] * 2, [1] * 3])), visible=visible)
    keys = replace(queries.select(torch.tensor([0, 1])).rows, visible=visible.select(torch.tensor([0, 1])))
    assert keys.known_lengths() == (2, 0)
    q, k, v = heads(5, 0), heads(2, 1), heads(2, 2)
    found = kernel(q, k, v, queries, keys, 0.0)
    torch.testing.assert_close(found[:2], masked(q[:2], k, v, torch.ones(2, 2, dtype=torch.bool)))
    assert found.shape == q.shape and not found[2:].any()


def test_in_float16_a_query_that_sees_nothing_gets_zeros_too():
    """The sum of the least number and a negative score is infinite."""
    seen = KeyMask.of(torch.tensor([[False, False], [True, False]])[None, None])
    q, k, v = (torch.ones(1, 1, 2, 8, dtype=torch.float16) for _ in range(3))
    added = torch.full((1, 1, 2, 2), -60.0, dtype=torch.float16)
    found = Backend(ComputeFormat(torch.float16)).attend_scored(q, k, v, added, seen, 0.0)
    assert found[0, 0].tolist() == [[0.0] * 8, [1.0] * 8]
