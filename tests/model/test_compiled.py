"""`torch.compile` of a block, an encoder and a whole model, by the user's own hand.

The backend "aot_eager" traces forward and backward pass and needs no compiler of C++.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from albertine.model.model import Model
from albertine.model.rows import Rows
from albertine.model.sharing import SharingPlan
from tests.model import builders

MODES = [torch.enable_grad, torch.inference_mode]
every_mode = pytest.mark.parametrize("mode", MODES)
SHARED, UNSHARED = SharingPlan.shared(2), SharingPlan.unshared(2)
BATCH = builders.packed([5, 9, 3])
ROWS = torch.tensor([1, 7, 16])


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def compiled(what: Any) -> Any:
    return torch.compile(what, backend="aot_eager")


def graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def breaks() -> int:
    return sum(counters["graph_break"].values())


def gradients(model: Model, outputs: list[Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    torch.stack([x.float().square().mean() for x in outputs]).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def compare(
    model: Model, run: Callable[[], list[Tensor]], plain: Callable[[], list[Tensor]], mode: Any
) -> None:
    """Outputs, and with gradients these too."""
    with mode():
        expected = plain()
        right = gradients(model, expected) if mode is torch.enable_grad else {}
        found = run()
        ours = gradients(model, found) if mode is torch.enable_grad else {}
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert ours.keys() == right.keys() and bool(right) == (mode is torch.enable_grad)
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, right[name], atol=3e-5, rtol=1e-4, msg=name)


@every_mode
def test_blocks_are_one_graph_each(mode: Any) -> None:
    model = builders.model()
    attention, feed_forward = model.encoder.attention[0], model.encoder.feed_forward[0]
    rows, x = Rows.of(BATCH), torch.randn(17, 24)
    fast, faster = compiled(attention), compiled(feed_forward)
    compare(
        model,
        lambda: [faster(fast(x, x, rows, rows))],
        lambda: [feed_forward(attention(x, x, rows, rows))],
        mode,
    )
    assert (graphs(), breaks()) == (2, 0)


@pytest.mark.sample
@every_mode
@pytest.mark.parametrize("plan", [SHARED, UNSHARED])
def test_blocks_compiled_in_place(mode: Any, plan: SharingPlan) -> None:
    """The way of torchtitan: each block for itself, inside a model that is not."""
    model, plain = builders.model(plan), builders.model(plan)
    for block in (*model.encoder.attention, *model.encoder.feed_forward):
        block.compile(backend="aot_eager")
    with mode():
        found, expected = ([*m.pretraining_forward(BATCH, ROWS)] for m in (model, plain))
        if mode is torch.enable_grad:
            ours, theirs = gradients(model, found), gradients(plain, expected)
            assert ours.keys() == theirs.keys()
            for name, gradient in ours.items():
                torch.testing.assert_close(gradient, theirs[name], atol=3e-5, rtol=1e-4, msg=name)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert graphs() >= 2 and breaks() == 0


@pytest.mark.sample
@every_mode
@pytest.mark.parametrize(("plan", "precision"), [(SHARED, "float32"), (UNSHARED, "bfloat16")])
def test_the_encoder_is_one_graph(mode: Any, plan: SharingPlan, precision: str) -> None:
    model = builders.model(plan)
    model.precision = precision  # type: ignore[assignment]
    encoder = compiled(model.encoder)
    model.encoder.backend = "plain"
    compare(
        model,
        lambda: [encoder(BATCH).last_hidden],
        lambda: [model.encoder(BATCH).last_hidden],
        mode,
    )
    assert (graphs(), breaks()) == (1, 0)


@pytest.mark.sample(1, keep=["enable_grad"])
@every_mode
def test_the_model_for_pretraining(mode: Any) -> None:
    model = builders.model(UNSHARED)
    run = compiled(model.pretraining_forward)
    compare(model, lambda: list(run(BATCH, ROWS)), lambda: list(model.pretraining_forward(BATCH, ROWS)), mode)
    assert 1 <= graphs() <= 12  # which rows a sequence has in the last depth is data


@pytest.mark.sample(1, keep=["enable_grad"])
@every_mode
def test_the_padded_call(mode: Any) -> None:
    model = builders.model(SHARED)
    fast, batch = compiled(model), builders.padded(BATCH)

    def outputs(call: Any) -> list[Tensor]:
        found = call(*batch, output_hidden_states=True)
        return [found.last_hidden_state, found.pooler_output, *found.hidden_states]

    compare(model, lambda: outputs(fast), lambda: outputs(model), mode)
    assert 1 <= graphs() <= 12  # where padding stands is data


def test_attention_weights_of_a_compiled_model() -> None:
    """Catches: a compiled pass, whose kernels store none."""
    model, batch = builders.model(UNSHARED), builders.padded(BATCH)
    with torch.no_grad():
        expected = model(*batch, output_attentions=True).attentions
        found = compiled(model)(*batch, output_attentions=True).attentions
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_other_batches_are_right_too() -> None:
    model = builders.model()
    fast = compiled(model.encoder)
    for lengths in ([5, 9, 3], [2], [7, 7, 1]):
        batch = builders.packed(lengths)
        with torch.inference_mode():
            torch.testing.assert_close(
                fast(batch).last_hidden, model.encoder(batch).last_hidden, atol=1e-5, rtol=1e-4
            )


def test_weights_that_change_after_compiling() -> None:
    model = builders.model()
    fast = compiled(model.encoder)
    with torch.inference_mode():
        fast(BATCH)
        model.encoder.feed_forward[0].output.weight.mul_(0.5)
        torch.testing.assert_close(
            fast(BATCH).last_hidden, model.encoder(BATCH).last_hidden, atol=1e-5, rtol=1e-4
        )
