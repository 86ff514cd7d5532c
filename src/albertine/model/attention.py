"""Attention over a packed batch: the only file that knows kernels.

Every kernel computes softmax(q·kᵀ/√D)·v inside each sequence and nothing across sequences. Queries may be
fewer than keys (the last depth computes only the wanted rows), so queries and keys have their own offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.layout import Packed


def _packed_kernel() -> Callable[..., Any] | None:
    """The unpadded kernel, CUDA only. Its keyword arguments changed with every release of torch; the first
    seven positions did not. It imports torch's compiler, which takes longer than torch itself."""
    if torch.cuda.device_count() == 0:
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn


PACKED_KERNEL = _packed_kernel()

SCORES = 4 * 2**20
"""Most weights of attention that plain products make at once; more would be fresh memory every time."""


VECTOR = 16
"""Numbers in a vector register. What is left over in a row of scores torch computes one by one, which takes
as long again as all the rest; with rows of other sequences, masked, nothing is left over."""


@dataclass(frozen=True)
class Segments:
    """Which rows of a packed tensor belong to which sequence.

    Attributes:
        cu_seqlens: int32 (S+1,) offsets.
        lengths: the same as Python integers, or None where learning them would stall the device.
        longest: an upper bound of the lengths.
        reach: as queries, how many keys of its sequence each row sees, from the first on, int64 (rows,);
            None: all.
    """

    cu_seqlens: Tensor
    lengths: tuple[int, ...] | None
    longest: int
    reach: Tensor | None = None

    @classmethod
    def of(cls, packed: Packed) -> Segments:
        return cls(packed.cu_seqlens, packed.lengths, packed.max_length, _reach(packed))

    def known_lengths(self) -> tuple[int, ...]:
        """The lengths, asking the device if need be."""
        return self.lengths if self.lengths is not None else tuple(self.cu_seqlens.diff().tolist())


def _reach(packed: Packed) -> Tensor | None:
    """A row of a source sees the whole source, a row of a target all up to itself (albert_family.md 1.13)."""
    if packed.prefix is None:
        return None
    starts = packed.cu_seqlens[:-1].long()
    sizes, sources = (torch.tensor(x, device=starts.device) for x in (packed.lengths, packed.prefix))
    first, source = (
        torch.repeat_interleave(x, sizes, output_size=packed.num_tokens) for x in (starts, sources)
    )
    return torch.maximum(source, torch.arange(1, packed.num_tokens + 1, device=starts.device) - first)


@dataclass(frozen=True)
class RowSubset:
    """Wanted rows, sorted so that each sequence's are contiguous.

    Attributes:
        sorted_rows: int64 (R,) indices into T, ascending.
        restore: int64 (R,) that puts results back in the order asked for, or None if that was ascending.
        segments: the sequences of `sorted_rows`.
    """

    sorted_rows: Tensor
    restore: Tensor | None
    segments: Segments

    @classmethod
    def of(cls, rows: Tensor, packed: Packed) -> RowSubset:
        """Sort `rows` (int64 (R,), indices into T; a row may be named at most twice) by sequence."""
        ordered, order = torch.sort(rows, stable=True)
        cu = torch.searchsorted(ordered, packed.cu_seqlens.long()).to(torch.int32)
        reach = _reach(packed)
        reach = None if reach is None else reach[ordered]
        if rows.device.type != "cpu":
            return cls(ordered, order.argsort(), _bounded(cu, min(len(rows), 2 * packed.max_length), reach))
        lengths = tuple(cu.diff().tolist())
        restore = None if torch.equal(ordered, rows) else order.argsort()
        return cls(ordered, restore, Segments(cu, lengths, max(lengths, default=0), reach))


def _bounded(cu_seqlens: Tensor, bound: int, reach: Tensor | None = None) -> Segments:
    """Segments whose lengths stay on the device."""
    # The kernel leaves queries beyond the bound unwritten: fail loudly, yet without waiting.
    torch._assert_async((cu_seqlens.diff() <= bound).all())
    return Segments(cu_seqlens, None, bound, reach)


def attend(
    q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Segments, keys: Segments, dropout: float
) -> Tensor:
    """Attention within each sequence.

    Args:
        q_RND, k_TND, v_TND: packed queries, keys and values; strided views are fine, the last dimension
            contiguous.
        queries, keys: offsets of the same S sequences in R and in T; `queries.reach` bounds what a query
            sees.
        dropout: probability for attention weights, 0 outside training.

    Returns:
        (R, N, D).
    """
    if q_RND.device.type == "cpu":
        return _attend_each(q_RND, k_TND, v_TND, queries, keys, dropout)
    # The packed kernel has no dropout and no bounds, knows only half precision, and heads of at most 256.
    half = q_RND.dtype in (torch.bfloat16, torch.float16)
    whole = queries.reach is None
    if PACKED_KERNEL is None or dropout > 0.0 or not (half and whole) or q_RND.shape[2] > 256:
        return attend_padded(q_RND, k_TND, v_TND, queries, keys, dropout)
    return _attend_packed(PACKED_KERNEL, q_RND, k_TND, v_TND, queries, keys)


def _attend_packed(
    kernel: Callable[..., Any], q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Segments, keys: Segments
) -> Tensor:
    """The CUDA kernel. It wants a multiple of 8 as head size, so zeros fill it up; albert-tiny has 26."""
    size = q_RND.shape[2]
    if extra := -size % 8:
        # The kernel divides by the square root of the filled size; its scale argument is not a stable one.
        q_RND = q_RND * ((size + extra) / size) ** 0.5
        q_RND, k_TND, v_TND = (F.pad(x, (0, extra)) for x in (q_RND, k_TND, v_TND))
    out: Tensor = kernel(
        q_RND, k_TND, v_TND, queries.cu_seqlens, keys.cu_seqlens, queries.longest, keys.longest
    )
    return out[..., :size]


def _attend_each(
    q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Segments, keys: Segments, dropout: float
) -> Tensor:
    """A loop over sequences; neighbours of equal shape go into one call.

    Split, not sliced: the backward of a slice fills a tensor of all T rows with zeros, once for every
    sequence.
    """
    slow = q_RND.dtype == torch.bfloat16 and q_RND.requires_grad
    kernel = attend_by_products if slow else F.scaled_dot_product_attention
    pieces = _pieces(
        queries.known_lengths(),
        keys.known_lengths(),
        SCORES // q_RND.shape[1] if slow else 0,
        queries.reach is None and not torch.is_grad_enabled(),
        k_TND.shape[0],
    )
    q_sizes = [piece.sequences * piece.queries for piece in pieces]
    k_sizes = [piece.sequences * piece.keys for piece in pieces]
    reaches: Sequence[Tensor | None] = [None] * len(pieces)
    if queries.reach is not None:
        reaches = torch.split(queries.reach, q_sizes)
    parts = []
    split = (torch.split(q_RND, q_sizes), torch.split(k_TND, k_sizes), torch.split(v_TND, k_sizes))
    for piece, q, k, v, reach in zip(pieces, *split, reaches, strict=True):
        if not piece.queries:
            continue
        count, window = piece.sequences, piece.window
        seen = None if reach is None else _seen(reach.view(count, -1), piece.keys)
        q = q.view(count, piece.queries, *q.shape[1:]).transpose(1, 2)
        if window is not None:
            k, v, seen = window.of(k_TND), window.of(v_TND), window.mask(q.dtype)
        else:
            k, v = (x.view(count, piece.keys, *x.shape[1:]).transpose(1, 2) for x in (k, v))
        out_SNLD = kernel(q, k, v, attn_mask=seen, dropout_p=dropout)
        parts.append(out_SNLD.transpose(1, 2).reshape(-1, *q_RND.shape[1:]))
    return parts[0] if len(parts) == 1 else torch.cat(parts) if parts else q_RND.contiguous()


class Window(NamedTuple):
    """The keys of neighbouring sequences of equal length, each with some rows beyond it, which are masked, so
    that their number is a multiple of `VECTOR`.

    Attributes:
        first: row where the first sequence's keys begin. before: masked rows before its own.
    """

    first: int
    before: int
    length: int
    sequences: int

    @property
    def size(self) -> int:
        return -(-self.length // VECTOR) * VECTOR

    def of(self, x_TND: Tensor) -> Tensor:
        """(T, N, D) to (sequences, N, size, D), without a copy."""
        row, head, one = x_TND.stride()
        shape = (self.sequences, x_TND.shape[1], self.size, x_TND.shape[2])
        offset = x_TND.storage_offset() + self.first * row
        return x_TND.as_strided(shape, (self.length * row, head, row, one), offset)

    def mask(self, dtype: torch.dtype) -> Tensor:
        """What is added to the scores, (1, 1, 1, size)."""
        return _mask(self.before, self.length, self.size, dtype)


@lru_cache(maxsize=4096)
def _mask(before: int, length: int, size: int, dtype: torch.dtype) -> Tensor:
    mask = torch.full((1, 1, 1, size), float("-inf"), dtype=dtype)
    mask[..., before : before + length] = 0
    return mask


def _window(start: int, length: int, sequences: int, rows: int) -> Window | None:
    """The window of sequences whose keys begin at row `start` of `rows`; None where there is no use for one,
    or no room."""
    window = Window(start, 0, length, sequences)
    beyond = max(0, start + (sequences - 1) * length + window.size - rows)
    if window.size == length or beyond > start:
        return None
    return window._replace(first=start - beyond, before=beyond)


def _seen(reach_SL: Tensor, keys: int) -> Tensor:
    """Whether each query sees each key, boolean (S, 1, L, M)."""
    return (torch.arange(keys, device=reach_SL.device) < reach_SL[..., None])[:, None]


def attend_by_products(
    q_SNLD: Tensor, k_SNMD: Tensor, v_SNMD: Tensor, dropout_p: float, attn_mask: Tensor | None = None
) -> Tensor:
    """For training in bfloat16 on a CPU, where the fused kernel's backward takes two to three times as long
    as plain products; below eighty keys the fused kernel in float32 is faster still."""
    S, N, L, D = q_SNLD.shape
    M = k_SNMD.shape[2]
    if M < 80:
        q, k, v = q_SNLD.float(), k_SNMD.float(), v_SNMD.float()
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=dropout_p)
        return out.to(q_SNLD.dtype)
    scores = (q_SNLD * D**-0.5).reshape(S * N, L, D) @ k_SNMD.reshape(S * N, M, D).transpose(1, 2)
    if attn_mask is not None:
        scores = scores.view(S, N, L, M).masked_fill(~attn_mask, float("-inf")).view(S * N, L, M)
    weights = F.dropout(torch.softmax(scores, -1), dropout_p, dropout_p > 0)
    return (weights @ v_SNMD.reshape(S * N, M, D)).view(S, N, L, D)


class Piece(NamedTuple):
    """Neighbouring sequences of equal shape, for one call of a kernel; `queries` and `keys` are of each."""

    queries: int
    keys: int
    sequences: int
    window: Window | None


@lru_cache(maxsize=64)  # asked at every depth
def _pieces(
    queries: tuple[int, ...], keys: tuple[int, ...], most: int, windows: bool, rows: int
) -> list[Piece]:
    """The calls for sequences of these lengths.

    Args:
        most: weights of attention for each head and call, to stay in the processor's caches; 0: any number.
        windows: whether keys may be filled up. rows: of all keys.
    """
    shapes = list(zip(queries, keys, strict=True))
    starts = [i for i in range(len(shapes)) if i == 0 or shapes[i] != shapes[i - 1]]
    pieces = []
    first = 0
    for a, b in pairwise([*starts, len(shapes)]):
        q, k = shapes[a]
        size = max(1, most // max(1, q * k)) if most else b - a
        for done in range(a, b, size):
            count = min(size, b - done)
            pieces.append(Piece(q, k, count, _window(first, k, count, rows) if windows else None))
            first += count * k
    return pieces


def attend_padded(
    q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Segments, keys: Segments, dropout: float
) -> Tensor:
    """The same through one padded call: for attention dropout and for bounded queries on CUDA, and wherever
    the packed kernel is missing."""
    q_lengths, k_lengths = queries.known_lengths(), keys.known_lengths()
    q_index, _ = _padded_rows(q_lengths, q_RND.device)
    k_index, k_real = _padded_rows(k_lengths, k_TND.device)
    q_SLND = q_RND[q_index].view(len(q_lengths), -1, *q_RND.shape[1:])
    k_SLND, v_SLND = (x[k_index].view(len(k_lengths), -1, *x.shape[1:]) for x in (k_TND, v_TND))
    seen = k_real[:, None, None, :]
    if queries.reach is not None:  # what fills up a row of queries sees something too, which nobody reads
        seen = _seen(queries.reach[q_index].view(len(q_lengths), -1), k_real.shape[1])
    out_SNLD = F.scaled_dot_product_attention(
        q_SLND.transpose(1, 2),
        k_SLND.transpose(1, 2),
        v_SLND.transpose(1, 2),
        attn_mask=seen,
        dropout_p=dropout,
    )
    flat = out_SNLD.transpose(1, 2).reshape(-1, *q_RND.shape[1:])
    _, q_real = _padded_rows(q_lengths, q_RND.device)
    return flat[q_real.reshape(-1).nonzero().squeeze(1)]


def _padded_rows(lengths: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """For each cell of the padded (S, L) grid its packed row (flat; 0 for padding) and whether it is real (S,
    L)."""
    sizes = torch.tensor(lengths, device=device)
    columns = torch.arange(max(lengths), device=device)
    real = columns < sizes[:, None]
    starts = sizes.cumsum(0) - sizes
    return torch.where(real, starts[:, None] + columns, 0).reshape(-1), real
