"""Named draws: what a seed of torch's is worth."""

from __future__ import annotations

import torch

from albertine.randomness import torch_generator, torch_seed

LOW = 2**32


def draws(seed: int) -> list[float]:
    return torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()


def test_a_seed_is_told_by_its_low_bits_already() -> None:
    """The CPU's generator sees no others; it is for this test to say so if a later torch looks at more."""
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
