"""The kernels against one another."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from albertine.core.batch import pack
from albertine.core.precision import ComputeFormat
from albertine.model.backend import cpu_attention, cpu_training_attention
from albertine.model.backend.base import Backend
from albertine.model.backend.cpu_attention import (
    NEVER,
    PaddedKeys,
    QueryMask,
    attend,
    masked_training_products,
)
from albertine.model.backend.cuda import attend_packed, attend_padded
from albertine.model.rows import Rows

plain = Backend(ComputeFormat(torch.float64)).attend


def heads(rows, seed):
    return torch.randn(rows, 2, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.data())
def test_the_kernels_agree_with_the_plain_formula(lengths, data):
    batch = pack([[1] * n for n in lengths])
    keys = Rows.of(batch)
    index = torch.tensor(data.draw(st.lists(st.integers(0, sum(lengths) - 1), unique=True, min_size=1)))
    rows, places, _ = keys.select(index)
    q, k, v = (heads(sum(lengths), seed) for seed in range(3))
    full = plain(q, k, v, keys, keys, 0.0)
    for kernel in (attend, attend_padded):
        torch.testing.assert_close(kernel(q, k, v, keys, keys, 0.0), full)
    for kernel in (plain, attend, attend_padded):
        torch.testing.assert_close(kernel(q[places], k, v, rows, keys, 0.0), full[places])


@given(st.lists(st.sampled_from([1, 5, 15, 16, 17, 31, 32, 40, 70]), min_size=1, max_size=7), st.data())
def test_keys_of_neighbours_are_not_seen(lengths, data):
    """Without gradients keys are filled up with those of other sequences, masked."""
    keys = Rows.of(pack([[1] * n for n in lengths]))
    q, k, v = (heads(3 * sum(lengths), seed).view(-1, 3, 2, 6)[:, seed] for seed in range(3))
    right = attend(q, k, v, keys, keys, 0.0)
    with torch.inference_mode():
        torch.testing.assert_close(attend(q, k, v, keys, keys, 0.0, windows=True), right)
        index = torch.tensor(data.draw(st.lists(st.integers(0, sum(lengths) - 1), unique=True, min_size=1)))
        rows, places, _ = keys.select(index)
        part = attend(q[places], k, v, rows, keys, 0.0, windows=True)
    torch.testing.assert_close(part, right[places])


def test_windows_stay_inside_the_batch():
    # Two of 20 take 12 rows of what follows; the last takes them from before it; 16 needs none.
    lengths = (20, 20, 16, 30)
    assert [p.window for p in cpu_attention._pieces(lengths, lengths, NEVER, 1, True, 86)] == [
        cpu_attention.PaddedKeys(0, 0, 20, 32, 2),
        None,
        cpu_attention.PaddedKeys(54, 2, 30, 32, 1),
    ]
    assert [p.window for p in cpu_attention._pieces((5,), (5,), NEVER, 1, True, 5)] == [None]


def test_attention_dropout_keeps_the_mean():
    batch = pack([[1] * 8] * 400)
    keys = Rows.of(batch)
    q, k = (heads(3200, seed).float() for seed in range(2))
    torch.manual_seed(0)
    for kernel in (plain, attend, attend_padded):
        dropped = kernel(q, k, torch.ones_like(k), keys, keys, 0.25)
        assert dropped.std() > 0.05
        assert dropped.mean() == pytest.approx(1.0, abs=0.01)


@given(st.lists(st.integers(0, 11), unique=True, min_size=1))
def test_restoring_gives_the_requested_order(rows):
    wanted = torch.tensor(rows)
    chosen, places, order = Rows.of(pack([[1] * 4, [1] * 8])).select(wanted)
    assert torch.equal(places if order is None else places[order], wanted)
    assert sum(chosen.known_lengths()) == len(rows)
    assert torch.equal(chosen.positions, torch.where(places < 4, places, places - 4))


def stand_in(q, k, v, cu_q, cu_k, max_q, max_k):
    """What the CUDA kernel does with its seven arguments: offsets only, and nothing beyond the bounds."""
    assert q.shape[2] % 8 == 0
    out = torch.full_like(q, float("nan"))
    for a, b, c, d in zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True):
        b, d = min(b, a + max_q), min(d, c + max_k)
        weights = (torch.einsum("qnd,knd->nqk", q[a:b], k[c:d]) / q.shape[2] ** 0.5).softmax(-1)
        out[a:b] = torch.einsum("nqk,knd->qnd", weights, v[c:d])
    return out


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.data())
def test_the_packed_call_passes_offsets_that_need_no_lengths(lengths, data):
    batch = pack([[1] * n for n in lengths])
    keys = Rows.of(batch)
    rows = data.draw(st.lists(st.integers(0, sum(lengths) - 1), unique=True, min_size=1))
    queries = keys.select(torch.tensor(rows + rows[:2])).rows
    unknown = replace(queries, lengths=None, longest=2 * batch.max_length)
    assert unknown.known_lengths() == queries.known_lengths()
    k, v = (heads(sum(lengths), seed) for seed in range(2))
    q = heads(len(rows) + len(rows[:2]), 3)
    expected = plain(q, k, v, queries, keys, 0.0)
    torch.testing.assert_close(attend_packed(stand_in, q, k, v, unknown, keys), expected)
    torch.testing.assert_close(attend_padded(q, k, v, unknown, keys, 0.0), expected)


@pytest.mark.parametrize(
    ("lengths", "dtype"), [([5, 5, 99, 3], torch.bfloat16), ([100, 131, 131, 131, 7], torch.bfloat16)]
)
@pytest.mark.parametrize("scores", [cpu_attention.SCORES, 2 * 2 * 131 * 131])
@pytest.mark.parametrize("amx", [False, True])
def test_training_in_bfloat16_on_a_cpu_takes_other_kernels_for_the_same_result(
    lengths, dtype, scores, amx, monkeypatch
):
    monkeypatch.setattr(cpu_attention, "SCORES", scores)  # of two sequences of 131
    monkeypatch.setattr(cpu_training_attention, "least_keys", lambda: 80 if amx else 0)
    keys = Rows.of(pack([[1] * n for n in lengths]))
    exact = [heads(sum(lengths), seed).requires_grad_() for seed in range(3)]
    rounded = [x.detach().to(dtype).requires_grad_() for x in exact]
    direction = heads(sum(lengths), 3)
    wanted = plain(*exact, keys, keys, 0.0)
    wanted.backward(direction)
    got = attend(*rounded, keys, keys, 0.0)
    got.backward(direction.to(dtype))
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), wanted, rtol=0.03, atol=0.03)
    for mine, theirs in zip(rounded, exact, strict=True):
        torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    "wanted", [[0], [20, 20, 3, 4, 5, 60, 99], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 35, 36, 99]]
)
@pytest.mark.parametrize("scores", [1, cpu_attention.SCORES])
def test_training_in_bfloat16_of_some_query_rows(wanted, scores, monkeypatch):
    """As in the last depth: some sequences have no query rows, and their keys have zero gradients."""
    monkeypatch.setattr(cpu_attention, "SCORES", scores)
    lengths = [10, 16, 17, 33, 24]
    keys = Rows.of(pack([[1] * n for n in lengths]))
    queries = keys.select(torch.tensor(sorted(wanted))).rows
    exact = [heads(n, seed).requires_grad_() for n, seed in ((len(wanted), 0), (100, 1), (100, 2))]
    rounded = [x.detach().bfloat16().requires_grad_() for x in exact]
    direction = heads(len(wanted), 3)
    right = plain(*exact, queries, keys, 0.0)
    right.backward(direction)
    got = attend(*rounded, queries, keys, 0.0)
    got.backward(direction.bfloat16())
    torch.testing.assert_close(got.double(), right, rtol=0.03, atol=0.03)
    for mine, theirs in zip(rounded, exact, strict=True):
        torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=0.05, atol=0.05)
        assert not mine.grad[theirs.grad == 0].any()


def test_training_in_bfloat16_with_equal_query_and_unequal_key_counts():
    """Sequences are laid out by their keys; each has as many query rows, which must attend to their own
    keys."""
    keys = Rows.of(pack([[1] * n for n in (40, 20, 40)]))
    queries = keys.select(torch.cat([torch.arange(16) + begin for begin in (0, 40, 60)])).rows
    q, k, v = (heads(n, seed) for seed, n in enumerate((48, 100, 100)))
    right = attend(q, k, v, queries, keys, 0.0)
    got = attend(*(x.bfloat16().requires_grad_() for x in (q, k, v)), queries, keys, 0.0)
    torch.testing.assert_close(got.double(), right, rtol=0.03, atol=0.03)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 5, 15, 16, 17, 33]), min_size=1, max_size=7),
    st.sampled_from([cpu_training_attention.training_products, cpu_training_attention.fused]),
    st.data(),
)
def test_gradients_of_sequences_side_by_side_are_exact(lengths, way, data):
    """Padded, in groups, with all or some rows as queries: the values and gradients of the plain formula."""

    def group_by_length(q, k, v, queries, keys, dropout):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                cpu_training_attention,
                "trains_by_products",
                lambda *_: way is cpu_training_attention.training_products,
            )
            lengths = queries.known_lengths(), keys.known_lengths()
            return cpu_training_attention.attend_grouped(q, k, v, *lengths, dropout, cpu_attention.SCORES)

    keys = Rows.of(pack([[1] * n for n in lengths]))
    index = torch.tensor(data.draw(st.lists(st.integers(0, sum(lengths) - 1), unique=True, min_size=1)))
    rows, places, _ = keys.select(index)
    for queries, count in ((keys, sum(lengths)), (rows, len(places))):
        found = []
        for kernel in (plain, group_by_length):
            q, k, v = (
                heads(n, s).requires_grad_() for s, n in enumerate((count, sum(lengths), sum(lengths)))
            )
            y = kernel(q, k, v, queries, keys, 0.0)
            y.backward(heads(count, 3))
            found.append((y.detach(), q.grad, k.grad, v.grad))
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("learn", [masked_training_products, cpu_training_attention.training_products])
def test_dropout_of_the_products_keeps_the_mean(learn):
    q, k, v = (torch.randn(20, 2, 128, 8, generator=torch.Generator().manual_seed(s)) for s in range(3))
    torch.manual_seed(0)
    hidden = QueryMask() if learn is masked_training_products else None
    dropped = learn(q, k, torch.ones_like(v), hidden, 0.25)
    assert dropped.std() > 0.01
    assert dropped.mean() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("lengths", [(130, 130, 130, 97, 4, 4), (64,), (200, 1, 65)])
@torch.inference_mode()
def test_inference_by_products_gives_the_same_and_each_text_alone_to_the_bit(lengths, monkeypatch):
    monkeypatch.setattr(cpu_attention, "SCORES", 2 * 2 * 130 * 130)  # of two sequences of 130
    monkeypatch.setattr(cpu_attention, "FEWEST", 2 * 64 * 64 * 6)
    called = []
    by_products = cpu_attention.by_products
    monkeypatch.setattr(cpu_attention, "by_products", lambda *a: called.append(a[0].shape) or by_products(*a))
    keys = Rows.of(pack([[1] * n for n in lengths]))
    q, k, v = (heads(sum(lengths), seed).bfloat16() for seed in range(3))
    wanted = attend(*(x.double() for x in (q, k, v)), keys, keys, 0.0)
    got = attend(q, k, v, keys, keys, 0.0, products=True)
    torch.testing.assert_close(got.double(), wanted, rtol=0.03, atol=0.03)
    assert sum(shape[0] for shape in called) == sum(n >= 64 for n in lengths)
    assert max(shape[0] for shape in called) <= 2
    start = 0
    for n in lengths:
        rows, own = slice(start, start + n), Rows.of(pack([[1] * n]))
        alone = attend(q[rows], k[rows], v[rows], own, own, 0.0, products=True)
        assert n < 64 or torch.equal(alone, got[rows])
        start += n


@torch.inference_mode()
def test_hidden_keys_are_never_left_to_products(monkeypatch):
    monkeypatch.setattr(cpu_attention, "by_products", lambda *_: pytest.fail("all keys would be seen"))
    keys = Rows.of(replace(pack([[1] * 80]), prefix=(30,)))
    q, k, v = (heads(80, seed).bfloat16() for seed in range(3))
    wanted = attend(*(x.double() for x in (q, k, v)), keys, keys, 0.0)
    got = attend(q, k, v, keys, keys, 0.0, products=True)
    torch.testing.assert_close(got.double(), wanted, rtol=0.03, atol=0.03)


@torch.no_grad()
def test_dropout_without_gradients_still_applies(monkeypatch):
    monkeypatch.setattr(cpu_attention, "FEWEST", 0)
    keys = Rows.of(pack([[1] * 90]))
    q, k, v = (heads(90, seed).bfloat16() for seed in range(3))
    kept, dropped = (attend(q, k, v, keys, keys, p, products=True) for p in (0.0, 0.5))
    assert (kept - dropped).abs().max() > 0.1


def test_tracing_attention_leaves_no_state():
    """Masks are cached between passes, and a tracer computes with proxies."""
    with FakeTensorMode():
        assert type(PaddedKeys(0, 3, 19, 32, 1).mask(torch.float32)) is not torch.Tensor
    assert type(PaddedKeys(0, 3, 19, 32, 1).mask(torch.float32)) is torch.Tensor
