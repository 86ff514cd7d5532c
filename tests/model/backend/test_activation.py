"""Activations by their formulas."""

from __future__ import annotations

import math

import pytest
import torch

from albertine.core.precision import ComputeFormat
from albertine.model.backend.base import PLAIN
from albertine.model.backend.onednn import Training


def tanh_form(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def erf_form(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


FORMULAS = {
    "gelu_new": tanh_form,
    "gelu": erf_form,
    "relu": lambda x: max(x, 0.0),
    "relu2": lambda x: max(x, 0.0) ** 2,
}
POINTS = torch.linspace(-6, 6, 241)


@pytest.mark.parametrize("name", FORMULAS)
def test_in_float32_each_is_its_formula(name: str) -> None:
    right = torch.tensor([FORMULAS[name](x) for x in POINTS.tolist()])
    torch.testing.assert_close(PLAIN.activate(POINTS, name), right, atol=1e-6, rtol=1e-6)


def test_in_bfloat16_both_forms_of_gelu_are_one_on_a_processor() -> None:
    x = POINTS.bfloat16().requires_grad_()
    exact = x.detach().float().requires_grad_()
    found, right = Training(ComputeFormat(x.dtype)).activate(x, "gelu_new"), PLAIN.activate(exact, "gelu_new")
    assert torch.equal(found, PLAIN.activate(x, "gelu"))
    assert not torch.equal(found, PLAIN.activate(x, "gelu_new"))
    assert torch.equal(Training(ComputeFormat(torch.float32)).activate(exact, "gelu_new"), right)
    torch.testing.assert_close(found.float(), right, atol=6e-4, rtol=2**-8)
    found.sum().backward()
    right.sum().backward()
    assert x.grad is not None and exact.grad is not None
    torch.testing.assert_close(x.grad.float(), exact.grad, atol=4e-3, rtol=2**-8)
