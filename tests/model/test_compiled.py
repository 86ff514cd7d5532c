"""The compiled GELU is the plain one, forward and backward, and its absence changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from albertine.layout import Packed
from albertine.model import block, compiled
from albertine.model.attention import Segments
from albertine.model.compiled import gelu_tanh
from albertine.model.model import Model
from albertine.model.plan import SharingPlan
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


def same_gradients(model: Model, batch: Packed) -> None:
    """Compiled and not."""
    found = []
    for wanted in (False, True):
        model.encoder.compiled = wanted
        model.zero_grad(set_to_none=True)
        model.encoder(batch).last_hidden.square().sum().backward()
        found.append([p.grad for p in model.encoder.parameters()])
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_compiled_model_has_the_same_gradients() -> None:
    same_gradients(builders.model(hidden_act="gelu_new").train(), builders.packed([5, 9]))


def _attend_by_mask(
    q_TND: torch.Tensor, k_TND: torch.Tensor, v_TND: torch.Tensor, queries: Segments, keys: Segments, _: float
) -> torch.Tensor:
    """Attention within sequences whose lengths nobody asks for, as a GPU's kernel has it."""
    every = torch.arange(len(q_TND))
    own = torch.bucketize(every, keys.cu_seqlens.long(), right=True)
    scores = torch.einsum("tnd,und->ntu", q_TND, k_TND) * q_TND.shape[2] ** -0.5
    weights = scores.masked_fill(own[:, None] != own[None], float("-inf")).softmax(-1)
    return torch.einsum("ntu,und->tnd", weights, v_TND)


def test_a_depth_is_compiled_for_all_depths_and_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once behind the embeddings and once behind another depth; with the gradients of plain torch."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    whole = torch.compile(compiled._depth, dynamic=True, backend=counter)
    monkeypatch.setattr(compiled, "_compiled_depth", lambda: whole)
    monkeypatch.setattr("albertine.model.encoder.compiles", lambda device: "depth")
    monkeypatch.setattr(block, "attend", _attend_by_mask)
    model = builders.model(SharingPlan.shared(5), hidden_act="gelu_new").train()
    for lengths in ([5, 9], [12, 3, 7], [20]):
        same_gradients(model, builders.packed(lengths))
    assert 1 <= counter.frame_count <= 2


def test_without_a_compiler(
    fresh: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no C++ compiler\nat all")

    monkeypatch.setattr(torch, "compile", lambda f, **_: broken)
    x = torch.linspace(-3, 3, 12).view(3, 4)
    assert torch.equal(gelu_tanh(x), torch.nn.functional.gelu(x, approximate="tanh"))
    assert "not compiled (no C++ compiler)" in caplog.text
