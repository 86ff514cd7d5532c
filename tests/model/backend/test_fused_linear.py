"""Fused products equal plain ones, whatever follows them."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.model.backend import fused_linear
from albertine.model.backend.base import PLAIN
from albertine.model.backend.fused_linear import FusedLinear
from albertine.model.config import Activation

ACTIVATIONS = get_args(Activation)
ROWS, INSIDE, OUT = 13, 24, 40
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.02}


def tensors(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((OUT, INSIDE), (OUT,), (ROWS, INSIDE), (ROWS, OUT))
    weight, bias, x, residual = (torch.randn(s, generator=generator).to(dtype) for s in shapes)
    return weight / 5, bias, x, residual


def layer(weight: Tensor, bias: Tensor, narrow: bool = False) -> FusedLinear:
    """One that works, or the test is skipped."""
    linear = FusedLinear(weight, bias, narrow)
    try:
        linear(torch.zeros(2, weight.shape[1], dtype=weight.dtype))
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"no fused product in {weight.dtype} here: {error}")
    return FusedLinear(weight, bias, narrow)


@pytest.mark.parametrize(
    ("narrow", "small", "many"), [(False, 0, ROWS), (True, 0, ROWS + 1), (True, 0, 4), (True, 1 << 17, 128)]
)
@pytest.mark.parametrize("dtype", TOLERANCE)
@torch.inference_mode()
def test_equal_to_plain_operations(
    dtype: torch.dtype, narrow: bool, small: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_linear, "SMALL", small)
    monkeypatch.setattr(fused_linear, "MANY", many)
    weight, bias, x, residual = tensors(dtype)
    linear = layer(weight, bias, narrow)
    plain, right = F.linear(x.float(), weight.float(), bias.float()), residual.float()
    found = {
        "alone": (linear(x), plain),
        "again, with fewer rows": (linear(x[:3]), plain[:3]),
        "one row": (linear(x[1:2], None, residual[1:2]), (plain + right)[1:2]),
        "no rows": (linear(x[:0]), plain[:0]),
        "rows with gaps": (linear(x[::2]), plain[::2]),
        "residual": (linear(x, None, residual), plain + right),
        "residual with gaps": (linear(x[::2], None, residual[::2]), (plain + right)[::2]),
        **{name: (linear(x, name), PLAIN.activate(plain, name)) for name in ACTIVATIONS},
        **{
            f"{name}, residual": (linear(x, name, residual), PLAIN.activate(plain, name) + right)
            for name in ACTIVATIONS
        },
    }
    for name, (ours, exact) in found.items():
        assert ours.dtype == dtype and ours.shape == exact.shape, name
        bound = TOLERANCE[dtype]
        torch.testing.assert_close(
            ours.float(), exact, atol=bound, rtol=bound, msg=lambda m, n=name: f"{n}: {m}"
        )
    fresh = tensors(dtype)
    assert torch.equal(x, fresh[2]) and torch.equal(residual, fresh[3])


@pytest.mark.parametrize("dtype", TOLERANCE)
@torch.inference_mode()
def test_a_bias_with_gaps_is_read_as_it_is(dtype: torch.dtype) -> None:
    weight, bias, x, _ = tensors(dtype)
    gaps = torch.stack([bias] * 3, 1)[:, 1]
    gaps[0] = 7.0  # as a kernel without notice of gaps would read other numbers where all copies agree
    bias = gaps.clone()
    assert not gaps.is_contiguous()
    assert torch.equal(layer(weight, gaps)(x), layer(weight, bias)(x))


@pytest.mark.parametrize(
    ("narrow", "many", "rows", "size", "laid_out"),
    [
        (False, False, 200, 8, True),
        (False, False, 1, 8, True),
        (True, False, 3, 8, False),
        (True, False, 2, 400, True),
        (True, False, 1, 400, True),
        (True, False, 1, 300, False),
        (True, False, 1, 1100, True),
        (True, False, 200, 400, False),
        (True, True, 200, 400, True),
        (True, True, 200, 8, False),
        (True, True, 1, 400, True),
    ],
)
@torch.inference_mode()
def test_with_avx2_alone_only_some_rows_of_a_large_weight_are_laid_out(
    narrow: bool, many: bool, rows: int, size: int, laid_out: bool
) -> None:
    layer(weight := torch.zeros(size, size), weight[0])  # or it is skipped
    linear = FusedLinear(weight, weight[0], narrow, many)
    linear(torch.zeros(rows, size))
    assert (linear._laid_out is not None) == laid_out


@torch.inference_mode()
def test_weights_are_laid_out_once() -> None:
    weight, bias, x, _ = tensors(torch.float32)
    linear = layer(weight, bias)
    first = linear(x)
    weight.zero_()
    torch.testing.assert_close(linear(x), first)
