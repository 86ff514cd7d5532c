"""Uniform numbers for many samples, each run of numbers named by its own (seed, purpose, epoch, sample)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.randomness import generator


def uniforms(
    seed: int, purpose: str, epochs: Sequence[int], samples: Sequence[int], sizes: Sequence[int]
) -> NDArray[np.float64]:
    """The first `sizes[i]` numbers of `generator(seed, purpose, epochs[i], samples[i])`, end to end.

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
