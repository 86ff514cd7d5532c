"""Cross-entropy of many logits, with its gradient computed in the same pass over them.

    loss = Σ_p log Σ_v exp z_pv - z_p,label        ∂loss/∂z_pv = exp z_pv / Σ_v exp z_pv - [v = label]

torch's own operations read and write (P, V) numbers in float32 a dozen times. On a CPU a few rows at a time
are processed while they stay in the caches, and the gradient is written once, in the format of the logits.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100
"""Label of positions that do not count."""

PIECE = 1 << 21
"""Bytes of a piece of logits in float32."""


def cross_entropy(logits_PV: Tensor, labels_P: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of the cross-entropies in nats, float32, and how many labels have the greatest logit of their
    row (the first of several), int64; both scalars. The softmax is taken in float32 in any case.

    Args:
        labels_P: int64, `IGNORED` where there is no label.
    """
    if logits_PV.device.type == "cpu" and torch.is_grad_enabled() and logits_PV.requires_grad:
        return cast(tuple[Tensor, Tensor], _Summed.apply(logits_PV, labels_P))  # type: ignore[no-untyped-call]
    # log_softmax with dtype float32 saves a copy of (P, V).
    scores_PV = F.log_softmax(logits_PV, dim=-1, dtype=torch.float32)
    loss = F.nll_loss(scores_PV, labels_P, reduction="sum", ignore_index=IGNORED)
    with torch.no_grad():
        # On a CPU this is five times as fast as `argmax` of bfloat16 logits.
        correct = (scores_PV.max(-1).indices == labels_P).sum()
    return loss, correct


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_PV: Tensor, labels_P: Tensor) -> tuple[Tensor, Tensor]:
        gradient_PV = torch.empty_like(logits_PV)
        loss, correct = (logits_PV.new_zeros((), dtype=each) for each in (torch.float32, torch.int64))
        size = max(1, PIECE // (4 * logits_PV.shape[1]))
        pieces = (torch.split(x, size) for x in (logits_PV, labels_P, gradient_PV))
        for logits, labels, gradient in zip(*pieces, strict=True):
            counts, column = labels != IGNORED, labels.clamp(min=0)[:, None]
            z = logits.to(torch.float32, copy=True)
            greatest, own = z.amax(1, keepdim=True), z.gather(1, column)
            # Among equal logits the first counts; only rows whose label has the greatest are checked again.
            hits = ((own == greatest)[:, 0] & counts).nonzero()[:, 0]
            correct += (z[hits].max(1).indices == labels[hits]).sum()
            total = z.sub_(greatest).exp_().sum(1, keepdim=True)
            loss += (total.log_() + greatest - own)[counts].sum()
            z.mul_(torch.where(counts[:, None], (-total).exp_(), 0.0))
            z.scatter_add_(1, column, -counts[:, None].float())
            gradient.copy_(z)
        ctx.save_for_backward(logits_PV, labels_P, gradient_PV)
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor, None]:
        logits_PV, labels_P, gradient_PV = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivative
            counts_P1 = (labels_P != IGNORED)[:, None]
            own_PV = F.one_hot(labels_P.clamp(min=0), logits_PV.shape[1])
            found = (logits_PV.softmax(-1, dtype=torch.float32) - own_PV) * counts_P1 * scale
            return found.to(logits_PV.dtype), None
        return gradient_PV * scale.to(gradient_PV.dtype), None
