"""LAMB as Google released it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Lamb(Optimizer):
    """LAMB by the formula of google-research/albert (`lamb_optimizer.py`).

    m and v are Adam's moments without bias correction; u = m / (sqrt(v) + eps) + decay * w; w -= lr * (|w|
    / |u|) * u, where the ratio is 1 if either norm is 0. The ratio is not clamped. Groups with `adapt`
    False take the ratio 1.

    Args:
        params: groups as `training.optimizers.parameter_groups` makes them.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]] | Iterable[Tensor],
        lr: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapt": True}
        )
        self._scratch: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; no closure."""
        if closure is not None:
            raise ValueError("Lamb computes no loss itself")
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight] = {
                        "exp_avg": torch.zeros_like(weight),
                        "exp_avg_sq": torch.zeros_like(weight),
                    }
            gradients = [w.grad for w in weights if w.grad is not None]
            m, v = ([self.state[w][key] for w in weights] for key in ("exp_avg", "exp_avg_sq"))
            # Few launches on a GPU; on a CPU one matrix at a time, which fits into its cache.
            chunk = len(weights) if any(w.is_cuda for w in weights) else 1
            for i in range(0, len(weights), chunk):
                part = slice(i, i + chunk)
                _lamb(weights[part], gradients[part], m[part], v[part], self._buffers(weights[part]), group)

    def _buffers(self, weights: list[Tensor]) -> list[Tensor]:
        """Uninitialised tensors of the same shapes; on a CPU a reused one, as allocating takes longer than
        the arithmetic."""
        if len(weights) > 1 or weights[0].device.type != "cpu" or not weights[0].is_contiguous():
            return [torch.empty_like(w) for w in weights]
        (weight,) = weights
        if (
            self._scratch is None
            or len(self._scratch) < weight.numel()
            or self._scratch.dtype != weight.dtype
        ):
            self._scratch = torch.empty(weight.numel(), dtype=weight.dtype)
        return [self._scratch[: weight.numel()].view_as(weight)]


def _lamb(
    w: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], u: list[Tensor], group: dict[str, Any]
) -> None:
    """Update `w`, `m` and `v`; `u` is overwritten."""
    beta1, beta2 = group["betas"]
    # m, v and m / (sqrt(v) + eps) in one pass over memory: torch's fused Adam with rate -1 on zero weights,
    # at a step so late that its bias correction is 1.
    torch._foreach_zero_(u)
    late = [torch.full((), 1e9, device=x.device) for x in w]
    how = {"beta1": beta1, "beta2": beta2, "eps": group["eps"], "weight_decay": 0.0}
    torch._fused_adamw_(u, g, m, v, [], late, lr=-1.0, amsgrad=False, maximize=False, **how)
    if group["weight_decay"]:
        torch._foreach_add_(u, w, alpha=group["weight_decay"])
    if not group["adapt"]:
        torch._foreach_add_(w, u, alpha=-group["lr"])
        return
    w_norm, u_norm = torch.stack(torch._foreach_norm(w)), torch.stack(torch._foreach_norm(u))
    ratio = torch.where((w_norm > 0) & (u_norm > 0), w_norm / u_norm, 1.0)
    torch._foreach_addcmul_(w, u, list(ratio.unbind()), -group["lr"])
