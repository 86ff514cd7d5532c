"""The linear layer that sums its weight's gradient inside the product equals what autograd does by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from albertine.core.precision import ComputeFormat
from albertine.model.backend import LayerNorm, onednn
from albertine.model.backend.gradient_accumulation import Product
from tests.model.builders import model, packed

Apply = Callable[[Tensor, int, int], Tensor]


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((6, 4), (6,), (7, 4))
    weight, bias, x = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return weight.requires_grad_(), bias.requires_grad_(), x.requires_grad_()


def through_depths(apply: Apply, x: Tensor) -> Tensor:
    """Three uses of all rows, then the halves apart for different rows of x, as in the last depth."""
    for _ in range(3):
        x = torch.tanh(apply(x, 0, 6))[:, :4] + 0.5 * x
    return apply(x[:3], 0, 2).square().sum() + apply(x, 2, 6).sum()


def with_product(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    product = Product(weight, bias)
    return through_depths(lambda x, a, b: product(x, a, b), x)


def by_autograd(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    return through_depths(lambda x, a, b: x @ weight[a:b].T + bias[a:b], x)


def gradients(loss: Callable[..., Tensor]) -> list[Tensor]:
    leaves = tensors()
    loss(*leaves).backward()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def test_value_and_gradients_are_those_of_autograd() -> None:
    assert torch.allclose(with_product(*tensors()), by_autograd(*tensors()), rtol=1e-12)
    ours, theirs = gradients(with_product), gradients(by_autograd)
    assert len(ours) == len(theirs) == 3
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(ours, theirs, strict=True))


def test_a_use_of_the_weight_beside_the_product_counts_too() -> None:
    def ours(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
        product = Product(weight, bias)
        return product(x).sum() + product.weight.square().sum() + product.bias.square().sum()

    def theirs(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
        return (x @ weight.T + bias).sum() + weight.square().sum() + bias.square().sum()

    pairs = zip(gradients(ours), gradients(theirs), strict=True)
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in pairs)


def test_the_gradient_of_an_input_leaves_nothing_behind() -> None:
    weight, bias, x = tensors()
    loss = with_product(weight, bias, x)
    (first,) = torch.autograd.grad(loss, [x], retain_graph=True)
    loss.backward()
    for mine, plain in zip((weight.grad, bias.grad, first), gradients(by_autograd), strict=True):
        assert mine is not None
        assert torch.allclose(mine, plain, rtol=1e-12)


def test_a_second_backward_pass_starts_from_nothing() -> None:
    weight, bias, x = tensors()
    loss = with_product(weight, bias, x)
    loss.backward(retain_graph=True)
    loss.backward()
    for mine, once in zip((weight.grad, bias.grad, x.grad), gradients(by_autograd), strict=True):
        assert mine is not None
        assert torch.allclose(mine, 2 * once, rtol=1e-12)


@pytest.mark.parametrize("frozen", [True, False])
def test_without_a_gradient_wanted_it_is_a_plain_product(frozen: bool) -> None:
    weight, bias, x = (t.detach() for t in tensors())
    with torch.set_grad_enabled(frozen):
        y = Product(weight.requires_grad_(not frozen), bias)(x.requires_grad_())
    assert torch.allclose(y, x @ weight.T + bias)
    if frozen:
        assert torch.allclose(*torch.autograd.grad(y.sum(), [x]), weight.sum(0).expand_as(x))


def test_a_frozen_encoder_still_passes_gradients_to_its_embeddings() -> None:
    made = model().train()
    for parameter in made.encoder.attention.parameters():
        parameter.requires_grad_(False)
    made.encoder(packed([5, 7])).last_hidden.square().sum().backward()
    assert made.encoder.embeddings.word.weight.grad is not None
    assert all(p.grad is None for p in made.encoder.attention.parameters())
    assert all(p.grad is not None for p in made.encoder.feed_forward.parameters())


@pytest.mark.parametrize(
    ("fused", "keys", "form"),
    [
        (True, 80, "biases within the products, attention by products from 80 keys on"),
        (False, 0, "biases apart from the products, attention by products"),
    ],
)
def test_memory_of_training_in_bfloat16_is_reported(
    fused: bool, keys: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "bias_is_fused", lambda: fused)
    monkeypatch.setattr(onednn, "least_keys", lambda: keys)
    choice = onednn.training_choice()
    assert (choice.kind, choice.form) == ("training", form)
    assert choice.kernel == ("mkldnn._linear_pointwise" if fused else "plain")


def test_a_norm_of_inference_in_bfloat16_has_its_scale_unrounded() -> None:
    """Where scale and shift cancel, their difference is all there is; in bfloat16 it would be none."""
    layer = LayerNorm(2, eps=0.0)
    with torch.no_grad():
        layer.weight.fill_(1 + 2**-10)
        layer.bias.fill_(-1)
    rows = torch.tensor([[1.0, -1.0]], dtype=torch.bfloat16)
    with torch.inference_mode():
        found = onednn.Inference(ComputeFormat(torch.bfloat16)).layer_norm(layer, rows)
    assert found.dtype == torch.bfloat16
    assert found[0, 0] == 2**-10
