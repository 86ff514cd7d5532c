"""Keyed random numbers and torch's generator."""

from __future__ import annotations

import pytest
import torch

from albertine.core.randomness import isolated_torch_rng, torch_generator, torch_seed
from albertine.model.config import Positions
from albertine.model.model import Model
from albertine.model.positions.rotary import frequencies
from albertine.model.task_model import Classifier
from tests.model.builders import config

LOW = 2**32


def draws(seed: int) -> list[float]:
    return torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()


def test_torch_seeds_differ_in_their_low_bits() -> None:
    """torch's CPU generator uses no others; this test fails if a later torch uses more."""
    assert draws(1) == draws(1 + LOW) != draws(2)
    names = [(seed, purpose, step) for seed in (1, 2) for purpose in ("a", "b") for step in range(500)]
    seeds = [torch_seed(*name) for name in names]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len({seed % LOW for seed in seeds}) == len(names)


def test_a_generator_is_a_function_of_its_name() -> None:
    def first(*name: int) -> float:
        return float(torch.rand((), generator=torch_generator(1, "test", *name)))

    assert first(2, 3) == first(2, 3)
    assert len({first(2, 3), first(3, 2), first(2), first(23)}) == 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("positions", ["rotary", "relative", "learned"])
def test_building_and_running_a_model_leaves_torch_unchanged(
    positions: Positions, dtype: torch.dtype
) -> None:
    """Of float32 whatever the default format is, in a pass too; and torch's generators stay."""
    shape = config(max_position_embeddings=64, positions=positions)
    state, ids = torch.get_rng_state(), torch.tensor([[1, 2, 3] * 20])
    plain = Classifier(Model(shape, seed=1), 2).eval()
    try:
        torch.set_default_dtype(dtype)
        other = Classifier(Model(shape, seed=1), 2).eval()
        assert torch.get_default_dtype() == dtype
        with torch.inference_mode():
            found, expected = (model.base(ids).last_hidden_state for model in (other, plain))
            turns = frequencies(64, 10000)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), state)
    weights = other.state_dict()
    for name, x in plain.state_dict().items():
        assert weights[name].dtype == torch.float32 and torch.equal(weights[name], x), name
    assert turns.dtype == torch.float32 and torch.equal(found, expected)


def test_apart_gives_back_what_was_there_after_an_error() -> None:
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError), isolated_torch_rng():
        torch.rand(3)
        raise RuntimeError
    assert torch.equal(torch.get_rng_state(), state)
