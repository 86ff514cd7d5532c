"""Attention masks as two integers a token: key j is visible to query i of its sequence iff when[j] <
until[i].

This comparison expresses full, causal, UniLM's and permuted attention (`objectives/factorisation.py`) without
a mask of length × length in memory, and each kernel can derive its cheapest form.
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
        when: as a key, the row is visible to queries with a larger `until`.
        until: as a query, the row sees keys with a smaller `when`.
    """

    when: Tensor
    until: Tensor

    def select(self, index: Tensor) -> Visibility:
        """Those of some rows, int64 (P,) into R."""
        return Visibility(self.when[index], self.until[index])

    def seen(self, keys: Visibility, q_sizes: Sequence[int], k_sizes: Sequence[int]) -> list[Tensor]:
        """Boolean mask (L, M) of queries and keys for every sequence."""
        untils, whens = self.until.split_with_sizes(q_sizes), keys.when.split_with_sizes(k_sizes)
        return [when < until[:, None] for until, when in zip(untils, whens, strict=True)]


def causal(lengths: Sequence[int], like: Tensor) -> Visibility:
    """Causal mask, on the device of `like`."""
    places = _places(lengths)
    return _made(places, places + 1, like)


def prefix(lengths: Sequence[int], sources: Sequence[int], like: Tensor) -> Visibility:
    """Prefix mask: the first `sources` rows of each sequence see each other, later rows are causal (UniLM,
    Dong et al. 2019, section 2.3)."""
    places = _places(lengths)
    return _made(places, np.maximum(np.repeat(sources, lengths), places + 1), like)


def _places(lengths: Sequence[int]) -> np.ndarray:
    ends = np.cumsum(lengths)
    return np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)


def _made(when: np.ndarray, until: np.ndarray, like: Tensor) -> Visibility:
    both = torch.from_numpy(np.stack([when, until])).to(like.device, non_blocking=True)
    return Visibility(both[0], both[1])
