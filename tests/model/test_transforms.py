"""With the plain backend a model is a function like any other: differentiated twice, transformed, perturbed.

Every backend equals the slow reference.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, stack_module_state, vmap

from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from tests import reference
from tests.model import builders

BATCH = builders.packed([5, 9, 3])
ROWS = torch.tensor([1, 7, 16])
PLANS = [SharingPlan.shared(2), SharingPlan.unshared(2)]
every_plan = pytest.mark.parametrize("plan", PLANS, ids=["shared", "unshared"])


class Loss(nn.Module):
    """A scalar of all outputs that pretraining uses."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> Tensor:
        logits, sentence = self.model.pretraining_forward(BATCH, ROWS)
        assert sentence is not None
        return logits.square().mean() + sentence.square().mean()


def plain(plan: SharingPlan = PLANS[0], dtype: torch.dtype = torch.float64, seed: int = 0) -> Loss:
    model = builders.model(plan, seed=seed).to(dtype)
    model.encoder.backend = "plain"
    return Loss(model)


def by_reference(loss: Loss) -> Tensor:
    """The same scalar by the formulas of `tests/reference.py`."""
    model, batch = loss.model, builders.padded(BATCH)
    hidden = reference.encode(model, *batch)[-1]
    rows = torch.cat([row[:n] for row, n in zip(hidden, BATCH.lengths, strict=True)])
    logits, sentence = reference.mlm_logits(model, rows[ROWS]), reference.sentence_logits(model, hidden)
    return logits.square().mean() + sentence.square().mean()


def penalty(loss: Tensor, word: Tensor) -> Tensor:
    """The squared length of the gradient at the word embeddings, as gradient penalty takes it."""
    (slope,) = torch.autograd.grad(loss, [word], create_graph=True)
    return slope.square().sum()


def gradients(loss: Loss, value: Tensor) -> dict[str, Tensor]:
    loss.zero_grad()
    value.backward()
    return {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}


@every_plan
@pytest.mark.parametrize("recompute", [False, True])
def test_the_gradient_of_a_gradient_penalty(plan: SharingPlan, recompute: bool) -> None:
    loss = plain(plan)
    loss.model.encoder.recompute = recompute
    word = loss.model.encoder.embeddings.word.weight
    found = gradients(loss, penalty(loss(), word))
    expected = gradients(loss, penalty(by_reference(loss), word))
    assert found.keys() == expected.keys() and len(found) > 16
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-9, rtol=1e-7, msg=name)


@every_plan
def test_func_grad_of_a_functional_call(plan: SharingPlan) -> None:
    loss = plain(plan)
    weights = dict(loss.named_parameters())
    found = grad(lambda w: functional_call(loss, w, ()))(weights)
    expected = gradients(loss, by_reference(loss))
    assert len(found) == len(weights)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-10, rtol=1e-8, msg=name)


def test_a_directional_derivative_equals_a_finite_difference() -> None:
    loss = plain()
    weights = {name: p.detach() for name, p in loss.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    along = {n: torch.randn(p.shape, generator=generator, dtype=p.dtype) for n, p in weights.items()}

    def at(step: float) -> Tensor:
        return functional_call(loss, {n: p + step * along[n] for n, p in weights.items()}, ())

    _, forward = jvp(lambda w: functional_call(loss, w, ()), (weights,), (along,))
    backward = grad(lambda w: functional_call(loss, w, ()))(weights)
    with torch.no_grad():
        difference = (at(1e-6) - at(-1e-6)) / 2e-6
    torch.testing.assert_close(forward, difference, atol=0.0, rtol=1e-5)
    dot = torch.stack([(backward[n] * along[n]).sum() for n in weights]).sum()
    torch.testing.assert_close(dot, difference, atol=0.0, rtol=1e-5)


def test_an_ensemble_by_vmap() -> None:
    losses = [plain(seed=seed) for seed in range(3)]
    weights, _ = stack_module_state(losses)  # type: ignore[arg-type]
    found = vmap(lambda w: functional_call(losses[0], w, ()))(weights)
    torch.testing.assert_close(found, torch.stack([loss() for loss in losses]))


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_every_backend_takes_other_weights_of_a_functional_call(mode: Any) -> None:
    """Weights prepared before must not answer for them."""
    loss = Loss(builders.model())
    with mode():
        before = loss()
        for factor in (0.5, 0.8):
            weights = {name: factor * p.detach() for name, p in loss.named_parameters()}
            twin = Loss(builders.model())
            twin.load_state_dict(weights)
            torch.testing.assert_close(functional_call(loss, weights, ()), twin(), atol=1e-6, rtol=1e-5)
        assert torch.equal(loss(), before)


@pytest.mark.sample(16)
@every_plan
@pytest.mark.parametrize("backend", ["plain", "onednn", "cuda", "auto"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("act", ["gelu_new", "gelu", "relu"])
def test_every_backend_equals_the_reference(plan: SharingPlan, backend: str, mode: Any, act: str) -> None:
    """That of a GPU too, whose arithmetic a processor can do."""
    model = builders.model(plan, hidden_act=act)
    model.encoder.backend = backend
    ids, mask, types = builders.padded(BATCH)
    with mode():
        found = model(ids, mask, types, output_hidden_states=True)
        loss = Loss(model)()
    with torch.no_grad():
        expected = reference.encode(model, ids, mask, types)
        torch.testing.assert_close(loss.detach(), by_reference(Loss(model)), atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(found.hidden_states, expected, strict=True):
        torch.testing.assert_close(ours[mask.bool()], theirs[mask.bool()], atol=3e-5, rtol=1e-4)
    if mode is torch.enable_grad:
        ours = gradients(Loss(model), loss)
        for name, gradient in gradients(Loss(model), by_reference(Loss(model))).items():
            torch.testing.assert_close(ours[name], gradient, atol=3e-5, rtol=2e-3, msg=name)
