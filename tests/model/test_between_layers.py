"""Passes that are interrupted between layers by other passes of the same model."""

from __future__ import annotations

import pytest
import torch

from albertine.core.between_layers import between_layers, calling_between_layers
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from tests.model import builders

PLANS = {
    "shared": SharingPlan.shared(4),
    "groups": SharingPlan.grouped(4, 2),
    "unshared": SharingPlan.unshared(4),
}


@pytest.fixture(params=PLANS, ids=str)
def model(request: pytest.FixtureRequest) -> Model:
    return builders.model(PLANS[request.param]).eval()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_interrupted_pass_gives_the_same_bits(model: Model, precision: str) -> None:
    """S19, S20. Catches: state of the outer pass that an inner one reads or overwrites."""
    model.encoder.precision = precision  # type: ignore[assignment]
    outer, inner = builders.packed([3, 17, 8]), builders.packed([5, 9])
    rows = torch.tensor([0, 3, 20])
    seen: list[tuple[int, int]] = []

    def call(done: int, layers: int) -> None:
        seen.append((done, layers))
        assert between_layers() is None  # the inner pass is not interrupted
        assert torch.equal(model.encoder(inner).last_hidden, alone)

    with torch.inference_mode():
        alone, whole = model.encoder(inner).last_hidden, model.encoder(outer).last_hidden
        chosen = model.encoder(outer, rows=rows).last_hidden
        with calling_between_layers(call):
            assert torch.equal(model.encoder(outer).last_hidden, whole)
            assert torch.equal(model.encoder(outer, rows=rows).last_hidden, chosen)
    assert seen == 2 * [(1, 4), (2, 4), (3, 4)]


def test_what_the_function_raises_ends_the_pass(model: Model) -> None:
    """Catches: a pass that is left as the current one."""

    def call(done: int, layers: int) -> None:
        raise InterruptedError

    with torch.inference_mode():
        whole = model.encoder(builders.packed([3, 4])).last_hidden
        with calling_between_layers(call), pytest.raises(InterruptedError):
            model.encoder(builders.packed([3, 4]))
        assert torch.equal(model.encoder(builders.packed([3, 4])).last_hidden, whole)
