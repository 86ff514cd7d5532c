"""The compiled GELU is the plain one, forward and backward, and its absence changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from albertine.model import compiled
from albertine.model.compiled import gelu_tanh
from tests.model import builders


@pytest.fixture
def fresh() -> Iterator[None]:
    compiled._kernels.cache_clear()
    yield
    compiled._kernels.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_the_formula(dtype: torch.dtype, tolerance: float) -> None:
    """Whether or not there is a compiler here."""
    for rows in (3, 50):
        x = torch.linspace(-8, 8, rows * 24).view(rows, 24).to(dtype).requires_grad_()
        exact = x.detach().double().requires_grad_()
        right = torch.nn.functional.gelu(exact, approximate="tanh")
        found = gelu_tanh(x)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), right, atol=tolerance, rtol=tolerance)
        found.sum().backward()
        right.sum().backward()
        assert x.grad is not None and exact.grad is not None
        torch.testing.assert_close(x.grad.double(), exact.grad, atol=tolerance, rtol=tolerance)


@pytest.mark.slow
def test_a_compiled_model_has_the_same_gradients() -> None:
    model, batch = builders.model(hidden_act="gelu_new").train(), builders.packed([5, 9])
    found = []
    for wanted in (False, True):
        model.encoder.compiled = wanted
        model.zero_grad(set_to_none=True)
        model.encoder(batch).last_hidden.square().sum().backward()
        found.append([p.grad for p in model.encoder.parameters()])
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain, atol=1e-4, rtol=1e-4)


def test_without_a_compiler(
    fresh: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no C++ compiler\nat all")

    monkeypatch.setattr(torch, "compile", lambda f, **_: broken)
    x = torch.linspace(-3, 3, 12).view(3, 4)
    assert torch.equal(gelu_tanh(x), torch.nn.functional.gelu(x, approximate="tanh"))
    assert "not compiled (no C++ compiler)" in caplog.text
