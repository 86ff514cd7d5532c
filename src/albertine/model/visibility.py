"""Who sees whom, as two integers a token: key j is seen by query i of its sequence where when[j] < until[i].

This one comparison gives full, causal, UniLM's and permuted attention (`objectives/factorisation.py`) without
a mask of length × length in memory, and it tells every kernel its best form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Visibility(NamedTuple):
    """Two integers for each of R rows, int64 (R,).

    Attributes:
        when: the row is seen, as a key, by the queries with a larger `until`.
        until: the row sees, as a query, the keys with a smaller `when`.
    """

    when: Tensor
    until: Tensor

    def select(self, index: Tensor) -> Visibility:
        """That of some rows, int64 (P,) into R."""
        return Visibility(self.when[index], self.until[index])

    def seen(self, keys: Visibility, q_sizes: Sequence[int], k_sizes: Sequence[int]) -> list[Tensor]:
        """Which of the keys each query of a sequence sees, bool (L, M) for every sequence."""
        untils, whens = self.until.split_with_sizes(q_sizes), keys.when.split_with_sizes(k_sizes)
        return [when < until[:, None] for until, when in zip(untils, whens, strict=True)]


def causal(lengths: Sequence[int], like: Tensor) -> Visibility:
    """Every row sees itself and what is before it. On the device of `like`."""
    places = _places(lengths)
    return _made(places, places + 1, like)


def prefix(lengths: Sequence[int], sources: Sequence[int], like: Tensor) -> Visibility:
    """The first `sources` rows of each sequence see one another, each row after them itself and all before it
    (UniLM, Dong et al. 2019, section 2.3)."""
    places = _places(lengths)
    return _made(places, np.maximum(np.repeat(sources, lengths), places + 1), like)


def _places(lengths: Sequence[int]) -> np.ndarray:
    ends = np.cumsum(lengths)
    return np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)


def _made(when: np.ndarray, until: np.ndarray, like: Tensor) -> Visibility:
    both = torch.from_numpy(np.stack([when, until])).to(like.device, non_blocking=True)
    return Visibility(both[0], both[1])
