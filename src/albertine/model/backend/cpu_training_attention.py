"""Attention on a processor in bfloat16 with gradients, for sequences of many lengths.

One call for every sequence is mostly calls: of texts of a hundred tokens a product of one takes some
microseconds, and what is around it a hundred; and for every new length oneDNN compiles its kernels once more.
So sequences of about the same length are laid side by side, each filled up to a multiple of `STEP` with its
last row, which is masked there. Not with rows of another sequence: were these NaN, so would be the products.
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
"""Sequences are filled up to a multiple of so many rows."""

FEWEST = 5 * 2**19
"""Multiply-adds of one product, in all heads: with fewer, its calls take longer than the fused kernel."""


@cache
def least_keys() -> int:
    """Keys from which products learn faster in bfloat16 than the fused kernel does in float32. Told by the
    processor and not measured: a run that is resumed has to take the same way."""
    return 80 if "amx_bf16" in cpu_flags() else 0


def learns_by_products(shape: torch.Size, keys: int) -> bool:
    """Whether queries (S, N, L, D) in bfloat16 and so many keys of each sequence learn by plain products: the
    backward of the fused kernel, which computes in float32, takes two to three times as long."""
    return keys >= least_keys() and shape.numel() * keys >= FEWEST


class Group(NamedTuple):
    """Sequences of about one length, side by side.

    Attributes:
        sequences: how many. queries, keys: rows of each, filled up.
        hidden: what is added to the scores, float32 (sequences, 1, 1, keys): minus infinity where a key is
            none of the sequence's own; None: all are.
    """

    sequences: int
    queries: int
    keys: int
    hidden: Tensor | None


class Places(NamedTuple):
    """Where the rows of a batch go.

    Attributes:
        there: for every row of the groups, head by head, which of the T · N vectors it is, int64.
        back: for every vector where it stands in the groups, int64 (T · N,).
        filling: which of `there` only fill a sequence up, int64.
        alike: the one length of all sequences, if they keep their order and nothing has to be moved but the
            heads.
    """

    there: Tensor
    back: Tensor
    filling: Tensor
    alike: int | None

    def of(self, x_TND: Tensor) -> Tensor:
        """Rows side by side, head by head, (·, D)."""
        _, heads, size = x_TND.shape
        if self.alike is not None:
            return x_TND.view(-1, self.alike, heads, size).transpose(1, 2).reshape(-1, size)
        return _looked_up(x_TND.reshape(-1, size), self.there, self.back, None)

    def undone(self, x: Tensor, heads: int) -> Tensor:
        """`of` the other way, (T, N, D)."""
        size = x.shape[-1]
        if self.alike is not None:
            return x.view(-1, heads, self.alike, size).transpose(1, 2).reshape(-1, heads, size)
        return _looked_up(x, self.back, self.there, self.filling).view(-1, heads, size)


@lru_cache(maxsize=16)  # asked at every depth
def side_by_side(
    queries: tuple[int, ...], keys: tuple[int, ...], heads: int, most: int
) -> tuple[list[Group], Places, Places]:
    """How sequences with so many rows that ask and that are looked at are laid side by side, in groups of at
    most so many weights of attention of one head."""
    asked, seen = (torch.tensor(lengths, device="cpu") for lengths in (queries, keys))
    filled = (seen + STEP - 1) // STEP * STEP
    groups, members = [], []
    for length in sorted(set(filled.tolist())):
        alike = (filled == length).nonzero()[:, 0]
        asking = max(STEP, int(-(-asked[alike].max() // STEP) * STEP))
        for some in torch.split(alike, max(1, most // (asking * length))):
            beyond_SM = torch.arange(length, device="cpu") >= seen[some][:, None]
            hidden = None
            if bool(beyond_SM.any()):
                hidden = torch.zeros(beyond_SM.shape, dtype=torch.float32, device="cpu").masked_fill_(
                    beyond_SM, float("-inf")
                )[:, None, None]
            groups.append(Group(len(some), asking, length, hidden))
            members.append(some)
    looked_at = _places(seen, members, [group.keys for group in groups], heads)
    if queries == keys:
        return groups, looked_at, looked_at
    return groups, _places(asked, members, [group.queries for group in groups], heads), looked_at


def _places(sizes: Tensor, members: list[Tensor], filled: list[int], heads: int) -> Places:
    """Of groups with these sequences, each filled up to so many rows."""
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
    return Places(every, back, fills.nonzero()[:, 0], int(sizes[0]) if in_order and one_length else None)


def attend_side_by_side(
    q_RND: Tensor,
    k_TND: Tensor,
    v_TND: Tensor,
    queries: tuple[int, ...],
    keys: tuple[int, ...],
    dropout: float,
    most: int,
) -> Tensor:
    """softmax(q·kᵀ/√D)·v inside each sequence, all of whose rows are seen, (R, N, D).

    Args:
        q_RND, k_TND, v_TND: of any format; some row asks.
        queries, keys: rows of each sequence, which all have keys.
        dropout: probability for attention weights. most: of these for each head at once, to stay in the
            processor's caches.
    """
    _, heads, size = q_RND.shape
    groups, asking, seen = side_by_side(queries, keys, heads, most)
    q_sizes = [group.sequences * heads * group.queries for group in groups]
    k_sizes = [group.sequences * heads * group.keys for group in groups]
    each_q = torch.split(asking.of(q_RND), q_sizes)
    each_k, each_v = (torch.split(seen.of(x), k_sizes) for x in (k_TND, v_TND))
    found = []
    for group, q, k, v in zip(groups, each_q, each_k, each_v, strict=True):
        q_SNLD = q.view(group.sequences, heads, group.queries, size)
        k_SNMD, v_SNMD = (x.view(group.sequences, heads, group.keys, size) for x in (k, v))
        attend = products_learning if learns_by_products(q_SNLD.shape, group.keys) else fused
        found.append(attend(q_SNLD, k_SNMD, v_SNMD, group.hidden, dropout).view(-1, size))
    return asking.undone(found[0] if len(found) == 1 else torch.cat(found), heads)


def fused(q_SNLD: Tensor, k_SNMD: Tensor, v_SNMD: Tensor, hidden: Tensor | None, dropout: float) -> Tensor:
    """By torch's fused kernel, which is slow in bfloat16."""
    dtype = torch.promote_types(q_SNLD.dtype, torch.float32)
    q, k, v = (x.to(dtype) for x in (q_SNLD, k_SNMD, v_SNMD))
    added = None if hidden is None else hidden.to(dtype)
    return F.scaled_dot_product_attention(q, k, v, added, dropout).to(q_SNLD.dtype)


def products_learning(
    q_SNLD: Tensor, k_SNMD: Tensor, v_SNMD: Tensor, hidden: Tensor | None, dropout: float
) -> Tensor:
    """By two products and a softmax between them, in the format of the queries.

    Args:
        hidden: what is added to the scores, of a shape that broadcasts to (S, N, L, M).
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


def _looked_up(x: Tensor, there: Tensor, back: Tensor, nobody: Tensor | None) -> Tensor:
    return cast(Tensor, _LookUp.apply(x, there, back, nobody))  # type: ignore[no-untyped-call]


class _LookUp(torch.autograd.Function):
    """x[there], whose gradient is looked up as well: dy[back], zeros where `nobody` asked."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Tensor, back: Tensor, nobody: Tensor | None) -> Tensor:
        ctx.back, ctx.nobody = back, nobody
        return x.index_select(0, there)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        dx = dy.index_select(0, ctx.back)
        return dx if ctx.nobody is None else dx.index_fill_(0, ctx.nobody, 0.0), None, None, None
