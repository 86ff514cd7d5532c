"""Randomness as a function, not a state.

Every draw is named by (seed, purpose, key…), where the key is usually (epoch, sample). The same name gives
the same numbers in any process, in any order, before and after a restart, so nothing about random state is
ever saved. The generator is Philox, which is counter-based: the purpose becomes its key and the integers
become its counter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


@lru_cache(maxsize=256)
def _philox_key(seed: int, purpose: str) -> tuple[int, int]:
    digest = hashlib.blake2b(f"{seed}\0{purpose}".encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """NumPy generator for the draws named (seed, purpose, key…); at most three non-negative integers as key.

    The lowest counter word counts the draws, so two different keys never overlap.
    """
    if len(key) > 3:
        raise ValueError(f"at most three integers name a draw, got {key}")
    words = [0, *(int(k) for k in key), *([0] * (3 - len(key)))]
    return np.random.Generator(np.random.Philox(key=_philox_key(seed, purpose), counter=words))  # type: ignore[arg-type]


def uniforms(
    seed: int, purpose: str, epochs: Sequence[int], samples: Sequence[int], sizes: Sequence[int]
) -> NDArray[np.float64]:
    """Uniform numbers for many samples, end to end: of sample i the first `sizes[i]` numbers of
    `generator(seed, purpose, epochs[i], samples[i])`.

    One generator is moved from name to name: Philox is nothing but its key and its counter, and to build a
    generator costs ten times as much as to draw the numbers of one sample.
    """
    draws = generator(seed, purpose)
    state: Any = draws.bit_generator.state  # a copy, taken before any draw: nothing left over in its buffer
    counter = state["state"]["counter"]
    out = np.empty(int(np.sum(sizes)), dtype=np.float64)
    at = 0
    for epoch, sample, size in zip(epochs, samples, sizes, strict=True):
        counter[:] = (0, epoch, sample, 0)
        draws.bit_generator.state = state
        draws.random(out=out[at : at + size])
        at += size
    return out


def permutation(n: int, seed: int, purpose: str, *key: int) -> np.ndarray:
    """A random order of range(n), int64, shape (n,)."""
    return generator(seed, purpose, *key).permutation(n)


def torch_seed(seed: int, purpose: str, *key: int) -> int:
    """A whole number from 0 to 2**63 - 1, the seed of a torch generator named (seed, purpose, key…).

    CUDA's generator uses all of it. torch's CPU generator looks at its lowest 32 bits alone, so of
    some 77,000 names two are likely to draw the same there; names that lie near each other are no likelier.
    """
    name = "\0".join([str(seed), purpose, *(str(int(k)) for k in key)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


def torch_generator(seed: int, purpose: str, *key: int) -> torch.Generator:
    """A torch generator on the CPU for the draws named (seed, purpose, key…); see `torch_seed`."""
    import torch

    return torch.Generator().manual_seed(torch_seed(seed, purpose, *key))


@contextmanager
def isolated_torch_rng(device: torch.device | None = None) -> Iterator[None]:
    """Within, new numbers of torch are float32 whatever format a program chose as its default; afterwards
    that format and torch's own generators are as they were, whatever was drawn.

    Args:
        device: a GPU that will be drawn on, though nothing was computed there yet.
    """
    import torch

    drawn = device is not None and device.type == "cuda"
    cuda: bool = drawn or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    before = torch.get_default_dtype()
    with torch.random.fork_rng(range(torch.cuda.device_count()) if cuda else ()):
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


class RngSnapshot:
    """What torch's own generators draw from here on, to be drawn again and again: dropout masks that stay
    as they are over several calls of a function."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._host = torch.get_rng_state()
        self._card = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def rewind(self) -> None:
        """The next draws are the first ones again."""
        import torch

        torch.set_rng_state(self._host)
        if self._card is not None:
            torch.cuda.set_rng_state(self._card, self._device)


def seed_torch(seed: int, purpose: str, *key: int) -> None:
    """Set torch's own generators (CPU and every accelerator) to the draws named (seed, purpose, key…).

    Called before each forward pass, it makes dropout a function of the step instead of a state to be saved.
    It is for a run, which gives a program its random state back in the end (`isolated_torch_rng`).
    """
    import torch

    torch.manual_seed(torch_seed(seed, purpose, *key))
