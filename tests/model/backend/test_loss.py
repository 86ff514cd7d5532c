"""The cross-entropy that finds its gradient in one reading, beside torch's own operations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from albertine.model.backend import cross_entropy, loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("piece", [1, 4 * 4 * 50, 1 << 21])
def test_loss_hits_and_gradient_are_those_of_torch(dtype, piece, monkeypatch):
    monkeypatch.setattr(loss, "PIECE", piece)
    generator = torch.Generator().manual_seed(3)
    logits = (9 * torch.randn(11, 50, generator=generator)).to(dtype)
    logits[3] = 0.0  # all are equal: the first counts
    logits[4] *= 30  # exp of it overflows, and of its negative vanishes
    labels = torch.randint(0, 50, (11,), generator=generator)
    labels[3], labels[5], labels[6] = 1, -100, logits[6].argmax()
    own, theirs = logits.clone().requires_grad_(), logits.float().requires_grad_()
    found, correct = cross_entropy(own, labels)
    wanted = F.cross_entropy(theirs, labels, reduction="sum", ignore_index=-100)
    torch.testing.assert_close(found, wanted)
    assert int(correct) == int((theirs.argmax(1) == labels).sum())
    (found * 0.7).backward()
    (wanted * 0.7).backward()
    assert own.grad.dtype == dtype and not own.grad[5].any()
    tight = dtype == torch.float32
    torch.testing.assert_close(
        own.grad.float(), theirs.grad, rtol=1e-5 if tight else 0.02, atol=1e-6 if tight else 2e-3
    )
    assert torch.equal(own, logits), "what was given stays as it was"


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_it_is_summed_in_float32_whatever_the_default_is(default):
    logits = torch.randn(90, 50, generator=torch.Generator().manual_seed(1)).requires_grad_()
    labels = torch.arange(90) % 50
    expected, _ = cross_entropy(logits, labels)
    torch.set_default_dtype(default)
    try:
        found, _ = cross_entropy(logits, labels)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float32 and torch.equal(found, expected)


def test_without_gradients_the_loss_is_the_same():
    logits, labels = (
        torch.randn(6, 9, generator=torch.Generator().manual_seed(1)),
        torch.tensor([0, 3, -100, 8, 1, 1]),
    )
    learning = cross_entropy(logits.clone().requires_grad_(), labels)
    with torch.no_grad():
        plain = cross_entropy(logits, labels)
    torch.testing.assert_close(plain[0], learning[0].detach())
    assert int(plain[1]) == int(learning[1])


def test_it_can_be_differentiated_twice():
    logits, labels = (
        torch.randn(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float32),
        torch.tensor([1, -100, 4]),
    )
    found = []
    for form in (
        lambda x: cross_entropy(x, labels)[0],
        lambda x: F.cross_entropy(x, labels, reduction="sum"),
    ):
        x = logits.clone().requires_grad_()
        (first,) = torch.autograd.grad(form(x), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        found.append(second)
    torch.testing.assert_close(found[0], found[1])
