"""The kernels of inference equal the plain operations, 8-bit integers equal whole-number arithmetic, and
where there is no kernel nothing changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from albertine.errors import SettingsError
from albertine.model import block, fused
from albertine.model.activation import activate
from albertine.model.fused import Fused, Int8, fuses, rounded
from albertine.precision import Format
from tests import reference
from tests.model import builders

ROWS, INSIDE, OUT = 13, 24, 40
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.02}


def tensors(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((OUT, INSIDE), (OUT,), (ROWS, INSIDE), (ROWS, OUT))
    weight, bias, x, residual = (torch.randn(s, generator=generator).to(dtype) for s in shapes)
    return weight / 5, bias, x, residual


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(block, "fuses", lambda dtype: False)
    monkeypatch.setattr(fused, "counts_in_int8", lambda dtype: False)
    yield


@pytest.mark.parametrize("pieces", [(0, 0, 1), (ROWS, ROWS + 1, 5)])
@pytest.mark.parametrize("dtype", TOLERANCE)
@torch.inference_mode()
def test_fused_products_equal_plain_ones(
    dtype: torch.dtype, pieces: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fused.SLOW, (INSIDE, OUT), pieces)
    if not fuses(dtype):
        pytest.skip(f"this torch has no fused product in {dtype} here")
    weight, bias, x, residual = tensors(dtype)
    linear = Fused(weight, bias)
    plain = F.linear(x.float(), weight.float(), bias.float())
    first = Fused(weight.T.contiguous(), bias[:INSIDE])
    between = activate(F.linear(residual.float(), weight.T.float(), bias[:INSIDE].float()), "gelu_new")
    found = {
        "whole": (linear(x), plain),
        "part": (linear(x, 8, 24), plain[:, 8:24]),
        "again": (linear(x[:3]), plain[:3]),
        "added": (linear.added(x, residual), plain + residual.float()),
        "chained": (
            first.chained(residual, "gelu_new", linear, residual),
            F.linear(between, weight.float(), bias.float()) + residual.float(),
        ),
        **{name: (linear.activated(x, name), activate(plain, name)) for name in fused.KERNELS},
    }
    for name, (ours, right) in found.items():
        torch.testing.assert_close(
            ours.float(),
            right,
            atol=TOLERANCE[dtype],
            rtol=TOLERANCE[dtype],
            msg=lambda m, n=name: f"{n}: {m}",
        )


@pytest.mark.parametrize("dtype", TOLERANCE)
@torch.inference_mode()
def test_a_bias_with_gaps_is_read_as_it_is(dtype: torch.dtype) -> None:
    if not fuses(dtype):
        pytest.skip(f"this torch has no fused product in {dtype} here")
    weight, bias, x, _ = tensors(dtype)
    gaps = torch.stack([bias] * 3, 1)[:, 1]
    assert not gaps.is_contiguous()
    assert torch.equal(Fused(weight, gaps)(x), Fused(weight, bias)(x))


@builders.needs_int8
@torch.inference_mode()
def test_int8_is_whole_number_arithmetic() -> None:
    weight, bias, x, residual = tensors(torch.float32)
    linear = Int8(weight, bias, torch.float32)
    # Written out: every output has a scale of its own, the activations have one; products are exact integers.
    weight_scale = weight.abs().amax(1) / fused.largest_weight()
    x_scale = x.abs().max() / 127
    whole = (x / x_scale).round() @ (weight / weight_scale[:, None]).round().T
    right = whole * x_scale * weight_scale + bias
    assert 0 < (right - F.linear(x, weight, bias)).abs().max() < 0.05
    torch.testing.assert_close(linear(x), right, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(linear(x, 8, 24), right[:, 8:24], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(linear.added(x, residual), right + residual, atol=1e-4, rtol=1e-4)
    for name in fused.KERNELS:
        exact = activate(right, name)
        bound = 6e-4 if name == "gelu_new" else 1e-4  # which is taken by the form of erf
        torch.testing.assert_close(linear.activated(x, name), exact, atol=bound, rtol=1e-4)


@builders.needs_int8
@torch.inference_mode()
def test_int8_sums_do_not_saturate() -> None:
    """Two products of 127 and 255 do not fit into 16 bits, where processors without VNNI add them."""
    whole = torch.ones(64, 64)
    linear, bias = Int8(whole, whole[0], torch.float32), whole[0]
    torch.testing.assert_close(linear(whole), whole * 65)
    torch.testing.assert_close(
        linear.chained(whole, "relu", Int8(whole, bias, torch.float32), -whole), whole * 4160
    )


@builders.needs_int8
@pytest.mark.parametrize("reach", [1.0, 8.0])
@pytest.mark.parametrize("rows", [40, 256, 1100])
@torch.inference_mode()
def test_int8_from_product_to_product_cuts_nothing_off(rows: int, reach: float) -> None:
    """The scale between two products comes from the first rows; the last ones may reach further."""
    weight, bias, _, _ = tensors(torch.float32)
    x = torch.randn(rows, INSIDE, generator=torch.Generator().manual_seed(1))
    x[-1] *= reach
    up, down = Int8(weight, bias, torch.float32), Int8(weight.T.contiguous(), bias[:INSIDE], torch.float32)
    found = up.chained(x, "gelu", down, x.clone())
    right = F.linear(F.gelu(F.linear(x, weight, bias)), weight.T, bias[:INSIDE]) + x
    # Steps of activations and weights are a 254th of their range each: an error of a few steps is rounding.
    error = (found - right).norm(dim=1) / right.norm(dim=1)
    assert error[-1] < 0.02 and error.mean() < 0.02 * reach
    torch.testing.assert_close(found, up.chained(x, "gelu", down, x.clone()), atol=0, rtol=0)


def test_only_wide_products_are_rounded_where_bfloat16_is_fast() -> None:
    for dtype, outputs, rounds in (
        (torch.bfloat16, 768, False),
        (torch.bfloat16, 2304, True),
        (torch.float32, 9, True),
    ):
        assert fused.worth_rounding(outputs, Format(dtype, int8=True)) == Format(dtype, int8=rounds)


@pytest.mark.parametrize(("reach", "dtype", "zero"), [(127, torch.int8, 0), (64, torch.uint8, 128)])
def test_rounding_to_int8(monkeypatch: pytest.MonkeyPatch, reach: int, dtype: torch.dtype, zero: int) -> None:
    monkeypatch.setattr(fused, "largest_weight", lambda: reach)
    q, grid = rounded(torch.tensor([[-2.54, 0.0, 1.27, 0.021]]))
    assert q.dtype == dtype and grid == (pytest.approx(0.02), zero)
    assert (q.int() - zero).tolist() == [[-127, 0, 64, 1]]
    zeros, grid = rounded(torch.zeros(2, 2))
    assert (zeros == zero).all() and grid.step > 0


@given(builders.plans(), builders.lengths, st.data())
def test_inference_equals_the_reference(plan, lengths, data):
    """Without gradients blocks run in fused kernels over a rounded number of rows."""
    model, batch = builders.model(plan), builders.packed(lengths)
    row = st.integers(0, batch.num_tokens - 1)
    rows = torch.tensor(data.draw(st.lists(row, unique=True, min_size=1)))
    with torch.inference_mode():
        found = model.encoder(batch).last_hidden
        wanted = model.encoder(batch, rows=rows).last_hidden
    hidden = reference.encode(model, *builders.padded(batch))[-1]
    right = torch.cat([hidden[i, :n] for i, n in enumerate(batch.lengths)])
    torch.testing.assert_close(found, right, atol=3e-5, rtol=1e-4)
    torch.testing.assert_close(wanted, right[rows], atol=3e-5, rtol=1e-4)


@builders.needs_int8
@given(builders.lengths)
def test_int8_stays_near_float32(lengths):
    model, batch = builders.model(initializer_range=0.1), builders.packed(lengths)
    with torch.inference_mode():
        exact = model.encoder(batch).last_hidden
        model.precision = "int8"
        rough = model.encoder(batch).last_hidden
        first = model.encoder(batch, rows=batch.first_tokens).last_hidden
    assert F.cosine_similarity(rough.float(), exact).min() > 0.995
    torch.testing.assert_close(first.float(), rough[batch.first_tokens].float(), atol=0.1, rtol=0.1)


def test_weights_that_change_are_laid_out_again() -> None:
    model, batch = builders.model(), builders.packed([5, 9])
    with torch.no_grad():
        before = model.encoder(batch).last_hidden
        model.encoder.feed_forward[0].output.weight.mul_(2)
        after = model.encoder(batch).last_hidden
        hidden = reference.encode(model, *builders.padded(batch))[-1]
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after[:5], hidden[0, :5], atol=3e-5, rtol=1e-4)


def test_int8_is_for_inference() -> None:
    model, batch = builders.model(), builders.packed([5])
    model.precision = "int8"
    with pytest.raises(SettingsError, match="int8 is for inference"):
        model.encoder(batch)
    with torch.inference_mode(), pytest.raises(SettingsError, match="int8 is for inference"):
        model.train().encoder(batch)


def test_without_kernels(without_kernels: None) -> None:
    model, batch = builders.model(), builders.packed([5, 9])
    with torch.inference_mode():
        found = model.encoder(batch).last_hidden
        model.precision = "int8"
        with pytest.raises(SettingsError, match="needs a torch with oneDNN"):
            model.encoder(batch)
    hidden = reference.encode(model, *builders.padded(batch))[-1]
    torch.testing.assert_close(found[5:], hidden[1, :9], atol=3e-5, rtol=1e-4)
