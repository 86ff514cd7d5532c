"""Attention on a processor in bfloat16 with gradients, for sequences of many lengths.

One call for every sequence is mostly calls: of texts of a hundred tokens a product of one takes some
microseconds, and what is around it a hundred; and for every new length oneDNN compiles its kernels once more.
So sequences of about the same length are laid side by side, each filled up with rows of its own to a multiple
of `STEP`, which nobody sees.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

STEP = 16
"""Sequences are filled up to a multiple of so many rows."""

WEIGHTS = 1 << 21
"""Most weights of attention that are computed at once; more would not stay in the caches."""


class Group(NamedTuple):
    """Sequences of about one length, side by side.

    Attributes:
        sequences: how many. length: rows of each, filled up.
        hidden: what is added to the scores, bfloat16 (sequences · heads, 1, length): minus infinity where a
            row is none of the sequence's own; None: all are.
    """

    sequences: int
    length: int
    hidden: Tensor | None


class Places(NamedTuple):
    """Where the rows of a batch go.

    Attributes:
        groups: of sequences.
        rows: for every row of the groups, head by head, which of the T · N vectors it is, int64.
        back: for every vector where it stands in the groups, int64 (T · N,).
        filling: which of `rows` only fill a sequence up, int64.
    """

    groups: list[Group]
    rows: Tensor
    back: Tensor
    filling: Tensor


@lru_cache(maxsize=8)  # asked at every depth
def places(lengths: tuple[int, ...], heads: int) -> Places:
    """How sequences of these lengths are laid side by side."""
    filled = [-(-n // STEP) * STEP for n in lengths]
    starts = torch.tensor([0, *lengths]).cumsum(0).tolist()
    groups, rows, beyond = [], [], []
    for length in sorted(set(filled) - {0}):
        alike = [i for i, n in enumerate(filled) if n == length]
        most = max(1, WEIGHTS // (heads * length * length))
        for first in range(0, len(alike), most):
            members = alike[first : first + most]
            size_S1 = torch.tensor([lengths[i] for i in members])[:, None]
            begin_S1 = torch.tensor([starts[i] for i in members])[:, None]
            inside = torch.arange(length)
            which_SL = begin_S1 + torch.minimum(inside, size_S1 - 1)
            beyond_SL = inside >= size_S1
            rows.append((which_SL[:, None, :] * heads + torch.arange(heads)[:, None]).reshape(-1))
            beyond.append(beyond_SL.repeat_interleave(heads, 0).reshape(-1))
            hidden = None
            if bool(beyond_SL.any()):
                added = torch.zeros(beyond_SL.shape).masked_fill_(beyond_SL, float("-inf")).bfloat16()
                hidden = added.repeat_interleave(heads, 0)[:, None]
            groups.append(Group(len(members), length, hidden))
    every, fills = torch.cat(rows), torch.cat(beyond)
    own = (~fills).nonzero()[:, 0]
    back = torch.empty(starts[-1] * heads, dtype=torch.int64)
    back[every[own]] = own
    return Places(groups, every, back, fills.nonzero()[:, 0])


def attend_side_by_side(
    q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, lengths: tuple[int, ...], dropout: float
) -> Tensor:
    """softmax(q·kᵀ/√D)·v inside each sequence, all rows seeing all, (T, N, D).

    Args:
        q_TND, k_TND, v_TND: bfloat16, of the same rows.
        dropout: probability for attention weights.
    """
    _, heads, size = q_TND.shape
    groups, rows, back, filling = places(lengths, heads)
    sizes = [group.sequences * heads * group.length for group in groups]
    alike = len(set(lengths)) == 1 and not len(filling)  # then nothing has to be looked up
    split = []
    for x in (q_TND, k_TND, v_TND):
        if alike:
            x = x.view(-1, lengths[0], heads, size).transpose(1, 2).reshape(-1, size)
        else:
            x = cast(Tensor, _Gathered.apply(x.reshape(-1, size), rows, back, None))  # type: ignore[no-untyped-call]
        split.append(x.split(sizes))
    found = []
    for group, *each in zip(groups, *split, strict=True):
        q, k, v = (x.view(-1, group.length, size) for x in each)
        hidden, used = (q.new_zeros(1, 1, 1), 0) if group.hidden is None else (group.hidden, 1)
        scores = torch.baddbmm(hidden, q, k.transpose(1, 2), beta=used, alpha=size**-0.5)
        weights = F.dropout(torch.softmax(scores, -1), dropout, dropout > 0)
        found.append(torch.bmm(weights, v).view(-1, size))
    mixed = found[0] if len(found) == 1 else torch.cat(found)
    if alike:
        return mixed.view(-1, heads, lengths[0], size).transpose(1, 2).reshape(q_TND.shape)
    return cast(Tensor, _Gathered.apply(mixed, back, rows, filling)).view(q_TND.shape)  # type: ignore[no-untyped-call]


class _Gathered(torch.autograd.Function):
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
