"""Keyed randomness: every draw is a function of (seed, purpose, key…), with the key usually (epoch, sample).

The same arguments give the same numbers in any process, in any order, before and after a restart, so no
random state is saved. The generator is Philox, which is counter-based: seed and purpose become its key, the
integers its counter.
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
    """NumPy generator for (seed, purpose, key…), the key at most three non-negative integers.

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

    One generator is reused by setting its counter: building a generator takes ten times as long as drawing
    the numbers of one sample.
    """
    draws = generator(seed, purpose)
    state: Any = draws.bit_generator.state  # a copy, taken before any draw, so its buffer is empty
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
    """Seed of a torch generator for (seed, purpose, key…), 0 to 2**63 - 1.

    CUDA's generator uses all bits. torch's CPU generator uses the lowest 32 only, so among some 77,000 keys
    two are likely to give the same numbers; similar keys are no more likely to.
    """
    name = "\0".join([str(seed), purpose, *(str(int(k)) for k in key)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


def torch_generator(seed: int, purpose: str, *key: int) -> torch.Generator:
    """A torch generator on the CPU for (seed, purpose, key…); see `torch_seed`."""
    import torch

    return torch.Generator().manual_seed(torch_seed(seed, purpose, *key))


@contextmanager
def isolated_torch_rng(device: torch.device | None = None) -> Iterator[None]:
    """Inside, torch's default dtype is float32; afterwards the default dtype and torch's global generators
    are restored.

    Args:
        device: a GPU on which numbers will be drawn, if CUDA may not be initialised yet.
    """
    import torch

    on_gpu = device is not None and device.type == "cuda"
    cuda: bool = on_gpu or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    before = torch.get_default_dtype()
    with torch.random.fork_rng(range(torch.cuda.device_count()) if cuda else ()):
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


class RngSnapshot:
    """State of torch's global generators, to repeat the same draws: dropout masks that stay the same over
    several calls of a function."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._cpu_state = torch.get_rng_state()
        self._gpu_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def rewind(self) -> None:
        """Restore the state, so that the next draws repeat the first."""
        import torch

        torch.set_rng_state(self._cpu_state)
        if self._gpu_state is not None:
            torch.cuda.set_rng_state(self._gpu_state, self._device)


def seed_torch(seed: int, purpose: str, *key: int) -> None:
    """Seed torch's global generators (CPU and every accelerator) for (seed, purpose, key…).

    Called before each forward pass, so that dropout is a function of the step and no state has to be saved.
    Runs call it within `isolated_torch_rng`, which restores the program's random state.
    """
    import torch

    torch.manual_seed(torch_seed(seed, purpose, *key))
