"""A compiled depth is the plain one, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from albertine.layout import Packed
from albertine.model import block, compiled
from albertine.model.attention import Segments
from albertine.model.model import Model
from albertine.model.plan import SharingPlan
from tests.model import builders


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
    monkeypatch.setattr("albertine.model.encoder.compiles", lambda device: True)
    monkeypatch.setattr(block, "attend", _attend_by_mask)
    model = builders.model(SharingPlan.shared(5), hidden_act="gelu_new").train()
    for lengths in ([5, 9], [12, 3, 7], [20]):
        same_gradients(model, builders.packed(lengths))
    assert 1 <= counter.frame_count <= 2


def test_nothing_is_compiled_on_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr("albertine.model.encoder.compiled_depth", missing)
    same_gradients(builders.model(hidden_act="gelu_new").train(), builders.packed([5, 9]))
