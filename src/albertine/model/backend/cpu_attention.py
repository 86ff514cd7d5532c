"""Attention on a CPU: a loop over sequences, with one call for neighbours of equal shape."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.model.backend.cpu_training_attention import (
    FEWEST,
    attend_grouped,
    training_products,
    trains_by_products,
)

if TYPE_CHECKING:
    from albertine.model.rows import Rows

SCORES = 4 * 2**20
"""Maximum attention weights that plain products compute at once; more would be newly allocated memory every
time."""

VECTOR = 16
"""Numbers in a vector register. torch computes the remainder of a row of scores one by one, which takes as
long as all the rest; keys padded with masked rows of other sequences leave no remainder."""


MOST = 2**24
"""Maximum attention weights of one sequence in all heads; more do not fit any cache."""


def needs_gradient(q_RND: Tensor, k_TND: Tensor, v_TND: Tensor) -> bool:
    """Whether a gradient is required; adapters may be on any of the three layers."""
    return torch.is_grad_enabled() and (q_RND.requires_grad or k_TND.requires_grad or v_TND.requires_grad)


def attend(
    q_RND: Tensor,
    k_TND: Tensor,
    v_TND: Tensor,
    queries: Rows,
    keys: Rows,
    dropout: float,
    products: bool = False,
    windows: bool = False,
) -> Tensor:
    """`Backend.attend`.

    Split, not sliced: the backward of a slice fills a tensor of all T rows with zeros for every sequence.

    Args:
        products: whether two plain products are faster than the fused kernel, without gradients
            (`autotune_attention.py`). The choice depends on the size of each sequence alone, so results do
            not depend on the batch.
        windows: whether keys may be padded with rows of other sequences (`PaddedKeys`).
    """
    heads = q_RND.shape[1]
    visible = queries.visible is not None and keys.visible is not None
    lengths, most = (queries.known_lengths(), keys.known_lengths()), SCORES // heads
    learning = q_RND.dtype == torch.bfloat16 and needs_gradient(q_RND, k_TND, v_TND)
    if learning and not visible and len(q_RND) and 0 not in lengths[1]:
        return attend_grouped(q_RND, k_TND, v_TND, *lengths, dropout, most)
    sizes = NEVER
    if learning:
        sizes = 0, sys.maxsize
    elif products and not visible and dropout == 0:
        sizes = -(-FEWEST // (heads * q_RND.shape[2])), MOST // heads
    windows = windows and not visible and not torch.is_grad_enabled()
    pieces = _pieces(*lengths, sizes, most, windows, k_TND.shape[0])
    parts, forms, size = [], [ALL] * len(pieces), q_RND.shape[2]
    split: Sequence[Sequence[Tensor]] = ([q_RND], [k_TND], [v_TND])
    if visible or len(pieces) > 1:
        q_sizes = [piece.sequences * piece.queries for piece in pieces]
        k_sizes = [piece.sequences * piece.keys for piece in pieces]
        split = (torch.split(q_RND, q_sizes), torch.split(k_TND, k_sizes), torch.split(v_TND, k_sizes))
        forms = _forms(pieces, queries, keys, q_sizes, k_sizes) if visible else forms
    for piece, q, k, v, form in zip(pieces, *split, forms, strict=True):
        rows, looked_at, count, window, as_products = piece
        if not rows:
            continue
        q = q.view(count, rows, heads, size).transpose(1, 2)
        if window is not None:
            k, v = window.of(k_TND), window.of(v_TND)
            form = QueryMask(window.mask(q.dtype))
        else:
            k = k.view(count, looked_at, heads, size).transpose(1, 2)
            v = v.view(count, looked_at, heads, size).transpose(1, 2)
        if not as_products:
            out_SNLD = by_kernel(q, k, v, form, dropout)
        elif learning:
            out_SNLD = masked_training_products(q, k, v, form, dropout)
        else:
            out_SNLD = by_products(q, k, v)
        if form.some is not None:
            out_SNLD = out_SNLD * form.some
        parts.append(out_SNLD.transpose(1, 2).reshape(-1, heads, size))
    return parts[0] if len(parts) == 1 else torch.cat(parts) if parts else q_RND.contiguous()


class QueryMask(NamedTuple):
    """Attention mask of some sequences.

    Attributes:
        mask: bool (S, 1, L, M), or added to the scores; None: all keys, unless `causal`.
        causal: causal mask, with equal rows of queries and keys.
        some: whether each query sees any key, bool (S, 1, L, 1); None: all do.
    """

    mask: Tensor | None = None
    causal: bool = False
    some: Tensor | None = None

    @classmethod
    def of(cls, until_SL: Tensor, when_SM: Tensor) -> QueryMask:
        """The cheapest form of `when < until`."""
        if bool(until_SL.amin() > when_SM.amax()):
            return cls()
        places = torch.arange(when_SM.shape[1], device="cpu")
        same = until_SL.shape == when_SM.shape
        if same and bool((when_SM == places).all()) and bool((until_SL == places + 1).all()):
            return cls(causal=True)
        seen = (when_SM[:, None] < until_SL[..., None])[:, None]
        some = seen.any(-1, keepdim=True)
        # A query without a visible key needs a finite softmax: it attends to all keys, and its output is set
        # to zero.
        return cls(seen) if bool(some.all()) else cls(seen | ~some, some=some)


ALL = QueryMask()
"""All queries see all keys."""


def _forms(
    pieces: list[EqualRows], queries: Rows, keys: Rows, q_sizes: list[int], k_sizes: list[int]
) -> list[QueryMask]:
    assert queries.visible is not None and keys.visible is not None
    split = zip(
        pieces,
        torch.split(queries.visible.until, q_sizes),
        torch.split(keys.visible.when, k_sizes),
        strict=True,
    )
    return [
        QueryMask.of(until.view(piece.sequences, -1), when.view(piece.sequences, -1))
        if piece.queries and piece.keys  # without keys the kernel returns zeros
        else ALL
        for piece, until, when in split
    ]


def by_kernel(q_SNLD: Tensor, k_SNMD: Tensor, v_SNMD: Tensor, form: QueryMask, dropout: float) -> Tensor:
    """Attention by torch's fused kernel."""
    return F.scaled_dot_product_attention(
        q_SNLD, k_SNMD, v_SNMD, attn_mask=form.mask, dropout_p=dropout, is_causal=form.causal
    )


def by_products(q_SNLD: Tensor, k_SNMD: Tensor, v_SNMD: Tensor) -> Tensor:
    """Attention without mask by two products and a softmax, in the format of the queries. The fused kernel
    computes scores in float32, which without AMX takes twice as long as in bfloat16."""
    S, N, L, D = q_SNLD.shape
    q, k, v = (x.reshape(S * N, -1, D) for x in (q_SNLD, k_SNMD, v_SNMD))
    scores = torch.baddbmm(q.new_empty(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=D**-0.5)
    # In place: allocating a second matrix of this size takes twice as long from 384 tokens on.
    torch.softmax(scores, -1, out=scores)
    return torch.bmm(scores, v).view(S, N, L, D)


def masked_training_products(
    q_SNLD: Tensor, k_SNMD: Tensor, v_SNMD: Tensor, form: QueryMask, dropout: float
) -> Tensor:
    """Training in bfloat16 with a mask; without one see `cpu_training_attention.py`."""
    L, M = q_SNLD.shape[2], k_SNMD.shape[2]
    if not trains_by_products(q_SNLD.shape, M):
        return by_kernel(q_SNLD.float(), k_SNMD.float(), v_SNMD.float(), form, dropout).to(q_SNLD.dtype)
    seen = torch.ones(L, M, dtype=torch.bool, device="cpu").tril() if form.causal else form.mask
    hidden = (
        None
        if seen is None
        else torch.zeros(seen.shape, dtype=torch.float32, device="cpu").masked_fill_(~seen, float("-inf"))
    )
    return training_products(q_SNLD, k_SNMD, v_SNMD, hidden, dropout)


class PaddedKeys(NamedTuple):
    """Keys of neighbouring sequences of equal length, each padded with masked rows of other sequences to a
    multiple of `VECTOR`. Their weight is 0, and 0 · NaN is NaN: a non-finite result has to be computed again
    without them (`onednn.Cpu.isolate_non_finite`).

    Attributes:
        first: first row of the first sequence. before: masked rows before its own keys.
        length, size: keys of each sequence, without and with padding.
    """

    first: int
    before: int
    length: int
    size: int
    sequences: int

    def of(self, x_TND: Tensor) -> Tensor:
        """(T, N, D) to (sequences, N, size, D), without a copy."""
        row, head, one = x_TND.stride()
        shape = (self.sequences, x_TND.shape[1], self.size, x_TND.shape[2])
        offset = x_TND.storage_offset() + self.first * row
        return x_TND.as_strided(shape, (self.length * row, head, row, one), offset)

    def mask(self, dtype: torch.dtype) -> Tensor:
        """Mask added to the scores, (1, 1, 1, size)."""
        mask = _mask(self.before, self.length, self.size, dtype)
        if type(mask) is not Tensor:  # a proxy of a tracer, which later passes cannot use
            _mask.cache_clear()
        return mask


@lru_cache(maxsize=4096)
def _mask(before: int, length: int, size: int, dtype: torch.dtype) -> Tensor:
    mask = torch.full((1, 1, 1, size), float("-inf"), dtype=dtype, device="cpu")
    mask[..., before : before + length] = 0
    return mask


def _window(start: int, length: int, sequences: int, rows: int) -> PaddedKeys | None:
    """Padded keys of sequences that begin at row `start` of `rows`; None where no padding is needed, or no
    rows are left for it."""
    size = -(-length // VECTOR) * VECTOR
    beyond = max(0, start + (sequences - 1) * length + size - rows)
    if size == length or beyond > start:
        return None
    return PaddedKeys(start - beyond, beyond, length, size, sequences)


class EqualRows(NamedTuple):
    """Neighbouring sequences of equal shape, for one kernel call; `queries` and `keys` are rows of each."""

    queries: int
    keys: int
    sequences: int
    window: PaddedKeys | None
    by_products: bool = False


NEVER = (0, -1)
"""Empty range of sizes: attention is never computed by products."""


@lru_cache(maxsize=64)  # read in every layer
def _pieces(
    queries: tuple[int, ...],
    keys: tuple[int, ...],
    products: tuple[int, int],
    most: int,
    windows: bool,
    rows: int,
) -> list[EqualRows]:
    """Kernel calls for sequences of these lengths.

    Args:
        products: minimum and maximum attention weights of one head for attention by products.
        most: maximum attention weights for each head and call of products, to stay in the caches.
        windows: whether keys may be padded for the fused kernel. rows: of all keys.
    """
    shapes = list(zip(queries, keys, strict=True))
    starts = [i for i in range(len(shapes)) if i == 0 or shapes[i] != shapes[i - 1]]
    pieces = []
    first = 0
    for a, b in pairwise([*starts, len(shapes)]):
        q, k = shapes[a]
        by_products = products[0] <= q * k <= products[1]
        size = max(1, most // max(1, q * k)) if by_products else b - a
        for done in range(a, b, size):
            count = min(size, b - done)
            window = _window(first, k, count, rows) if windows and not by_products else None
            pieces.append(EqualRows(q, k, count, window, by_products))
            first += count * k
    return pieces
