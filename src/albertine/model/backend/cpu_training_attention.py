"""Attention on a CPU in bfloat16 with gradients, for sequences of many lengths.

With one call for every sequence, the product of a hundred tokens takes some microseconds and the calls around
it a hundred, and oneDNN compiles its kernels for every new length. So sequences of about the same length form
a group, each padded to a multiple of `STEP` with masked copies of its last row, not with rows of other
sequences, whose NaN would spread.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from albertine.core.processors import cpu_flags

STEP = 16
"""Sequences are padded to a multiple of this number of rows."""

FEWEST = 5 * 2**19
"""Minimum multiply-adds of one product, in all heads; with fewer, its calls take longer than the fused
kernel."""


@cache
def least_keys() -> int:
    """Minimum keys for which products in bfloat16 train faster than the fused kernel in float32. Depends on
    CPU features and is not measured: a resumed run has to take the same path."""
    return 80 if "amx_bf16" in cpu_flags() else 0


def trains_by_products(shape: torch.Size, keys: int) -> bool:
    """Whether queries (S, N, L, D) in bfloat16 and this number of keys of each sequence are trained by plain
    products: the backward of the fused kernel, in float32, takes two to three times as long."""
    return keys >= least_keys() and shape.numel() * keys >= FEWEST


class Group(NamedTuple):
    """Sequences of about one length, padded to equal shape.

    Attributes:
        sequences: their number. queries, keys: padded rows of each.
        hidden: added to the scores, float32 (sequences, 1, 1, keys): minus infinity at padding; None: no
            padding.
    """

    sequences: int
    queries: int
    keys: int
    hidden: Tensor | None


class RowLayout(NamedTuple):
    """Layout of the rows of a batch in groups.

    Attributes:
        there: for every row of the groups, head by head, its index among the T · N vectors, int64.
        back: for every vector its index in the groups, int64 (T · N,).
        filling: indices of padding in `there`, int64.
        alike: the length of all sequences where it is equal and they keep their order, so that only heads are
            transposed.
    """

    there: Tensor
    back: Tensor
    filling: Tensor
    alike: int | None

    def of(self, x_TND: Tensor) -> Tensor:
        """Rows in the layout of the groups, head by head, (·, D)."""
        _, heads, size = x_TND.shape
        if self.alike is not None:
            return x_TND.view(-1, self.alike, heads, size).transpose(1, 2).reshape(-1, size)
        return _gather(x_TND.reshape(-1, size), self.there, self.back, None)

    def inverse(self, x: Tensor, heads: int) -> Tensor:
        """Inverse of `of`, (T, N, D)."""
        size = x.shape[-1]
        if self.alike is not None:
            return x.view(-1, heads, self.alike, size).transpose(1, 2).reshape(-1, heads, size)
        return _gather(x, self.back, self.there, self.filling).view(-1, heads, size)


@lru_cache(maxsize=16)  # read in every layer
def group_by_length(
    queries: tuple[int, ...], keys: tuple[int, ...], heads: int, most: int
) -> tuple[list[Group], RowLayout, RowLayout]:
    """Groups of sequences with these numbers of queries and keys, and the layouts of queries and keys; a
    group has at most `most` attention weights of one head."""
    num_queries, num_keys = (torch.tensor(lengths, device="cpu") for lengths in (queries, keys))
    padded = (num_keys + STEP - 1) // STEP * STEP
    groups, members = [], []
    for length in sorted(set(padded.tolist())):
        alike = (padded == length).nonzero()[:, 0]
        rows = max(STEP, int(-(-num_queries[alike].max() // STEP) * STEP))
        for some in torch.split(alike, max(1, most // (rows * length))):
            beyond_SM = torch.arange(length, device="cpu") >= num_keys[some][:, None]
            hidden = None
            if bool(beyond_SM.any()):
                hidden = torch.zeros(beyond_SM.shape, dtype=torch.float32, device="cpu").masked_fill_(
                    beyond_SM, float("-inf")
                )[:, None, None]
            groups.append(Group(len(some), rows, length, hidden))
            members.append(some)
    key_layout = _layout(num_keys, members, [group.keys for group in groups], heads)
    if queries == keys:
        return groups, key_layout, key_layout
    return groups, _layout(num_queries, members, [group.queries for group in groups], heads), key_layout


def _layout(sizes: Tensor, members: list[Tensor], filled: list[int], heads: int) -> RowLayout:
    """Layout of groups with these members, each padded to this number of rows."""
    ends = sizes.cumsum(0)
    there, beyond, head_N1 = [], [], torch.arange(heads, device="cpu")[:, None]
    for some, length in zip(members, filled, strict=True):
        inside = torch.arange(length, device="cpu")
        end_S1 = ends[some][:, None]
        row_SL = torch.minimum(end_S1 - sizes[some][:, None] + inside, (end_S1 - 1).clamp(min=0))
        there.append((row_SL[:, None] * heads + head_N1).flatten())
        beyond.append((inside >= sizes[some][:, None]).repeat_interleave(heads, 0).flatten())
    every, fills = torch.cat(there), torch.cat(beyond)
    own = (~fills).nonzero()[:, 0]
    back = torch.empty(int(ends[-1]) * heads, dtype=torch.int64, device="cpu")
    back[every[own]] = own
    in_order = torch.equal(torch.cat(members), torch.arange(len(sizes), device="cpu"))
    one_length = len(own) == len(every) and bool((sizes == sizes[0]).all())
    return RowLayout(every, back, fills.nonzero()[:, 0], int(sizes[0]) if in_order and one_length else None)


def attend_grouped(
    q_RND: Tensor,
    k_TND: Tensor,
    v_TND: Tensor,
    queries: tuple[int, ...],
    keys: tuple[int, ...],
    dropout: float,
    most: int,
) -> Tensor:
    """softmax(q·kᵀ/√D)·v inside each sequence without mask, (R, N, D).

    Args:
        q_RND, k_TND, v_TND: in any format, with at least one query.
        queries, keys: rows of each sequence, which all have keys.
        dropout: probability for attention weights. most: maximum attention weights of one head at once, to
            stay in the caches.
    """
    _, heads, size = q_RND.shape
    groups, query_layout, key_layout = group_by_length(queries, keys, heads, most)
    q_sizes = [group.sequences * heads * group.queries for group in groups]
    k_sizes = [group.sequences * heads * group.keys for group in groups]
    each_q = torch.split(query_layout.of(q_RND), q_sizes)
    each_k, each_v = (torch.split(key_layout.of(x), k_sizes) for x in (k_TND, v_TND))
    found = []
    for group, q, k, v in zip(groups, each_q, each_k, each_v, strict=True):
        q_SNLD = q.view(group.sequences, heads, group.queries, size)
        k_SNMD, v_SNMD = (x.view(group.sequences, heads, group.keys, size) for x in (k, v))
        attend = training_products if trains_by_products(q_SNLD.shape, group.keys) else fused
        found.append(attend(q_SNLD, k_SNMD, v_SNMD, group.hidden, dropout).view(-1, size))
    return query_layout.inverse(found[0] if len(found) == 1 else torch.cat(found), heads)


def fused(q_SNLD: Tensor, k_SNMD: Tensor, v_SNMD: Tensor, hidden: Tensor | None, dropout: float) -> Tensor:
    """Attention by torch's fused kernel in float32; it is slow in bfloat16."""
    dtype = torch.promote_types(q_SNLD.dtype, torch.float32)
    q, k, v = (x.to(dtype) for x in (q_SNLD, k_SNMD, v_SNMD))
    added = None if hidden is None else hidden.to(dtype)
    return F.scaled_dot_product_attention(q, k, v, added, dropout).to(q_SNLD.dtype)


def training_products(
    q_SNLD: Tensor, k_SNMD: Tensor, v_SNMD: Tensor, hidden: Tensor | None, dropout: float
) -> Tensor:
    """Attention by two products and a softmax, in the format of the queries.

    Args:
        hidden: mask added to the scores, broadcastable to (S, N, L, M).
    """
    S, N, L, D = q_SNLD.shape
    q, k, v = (x.reshape(S * N, -1, D) for x in (q_SNLD, k_SNMD, v_SNMD))
    if hidden is None:
        scores = torch.baddbmm(q.new_zeros(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=D**-0.5)
    else:
        shape = hidden.shape[-2:]
        added = hidden.to(q.dtype).expand(S, N, *shape).reshape(S * N, *shape)
        scores = torch.baddbmm(added, q, k.transpose(1, 2), alpha=D**-0.5)
    weights = F.dropout(torch.softmax(scores, -1), dropout, dropout > 0)
    return torch.bmm(weights, v).view(S, N, L, D)


def _gather(x: Tensor, there: Tensor, back: Tensor, padding: Tensor | None) -> Tensor:
    return cast(Tensor, _Gather.apply(x, there, back, padding))  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """x[there], whose gradient is a gather too: dy[back], zero at `padding`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Tensor, back: Tensor, padding: Tensor | None) -> Tensor:
        ctx.back, ctx.padding = back, padding
        return x.index_select(0, there)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        dx = dy.index_select(0, ctx.back)
        return dx if ctx.padding is None else dx.index_fill_(0, ctx.padding, 0.0), None, None, None
