"""Muon for the matrices of the blocks and AdamW for everything else, as one optimizer.

Muon (Keller Jordan 2024, kellerjordan.github.io/posts/muon) replaces the momentum of a matrix by the nearest
matrix whose singular values are all about 1, so that the update has the same size in every direction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from albertine.core.number_formats import Precision
from albertine.core.precision import compute_format
from albertine.training.distributed import World

COEFFICIENTS, ITERATIONS, EPS = (3.4445, -4.7750, 2.0315), 5, 1e-7


def orthogonal(x: Tensor) -> Tensor:
    """Nearly U·Vᵀ of x = U·S·Vᵀ by five quintic Newton-Schulz steps, in the format of x.

    In float32 singular values end between 0.68 and 1.21; only those below 0.002 of the norm of x end lower.
    The operations of `torch.optim.Muon`, in any format and for batched matrices.

    Args:
        x: (rows, columns) or (matrices, rows, columns).
    """
    a, b, c = COEFFICIENTS
    multiply = torch.addmm if x.ndim == 2 else torch.baddbmm
    tall = x.shape[-2] > x.shape[-1]
    y = x.mT if tall else x
    # Also in bfloat16: its range is that of float32, and errors of a hundredth do not matter here.
    y = y / torch.linalg.vector_norm(y, dim=(-2, -1), keepdim=True).clamp_min(EPS)
    for _ in range(ITERATIONS):
        gram = y @ y.mT
        y = multiply(y, multiply(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return y.mT if tall else y


class Muon(Optimizer):
    """Muon for groups with `matrices` above 0, fused AdamW for the others.

    Of a matrix with gradient g: m = momentum·m + (1 - momentum)·g; u = orthogonal((1 - momentum)·g +
    momentum·m); w = (1 - lr·decay)·w - lr·√max(1, rows / columns)·u. State is tensors alone: `momentum` of
    a matrix; `step`, `exp_avg` and `exp_avg_sq` of all else.

    Args:
        params: groups of `training.optimizers.parameter_groups`. `matrices` is the number of matrices stacked
            in each parameter, which are orthogonalised one by one.
        betas, eps: of AdamW.
        precision: of Muon's products; `auto` is bfloat16 where the hardware supports it, in half the time.
        world: the processes of the run, with equal gradients; each orthogonalises its share of the matrices,
            and they are exchanged.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]] | Iterable[Tensor],
        lr: float = 0.0,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        precision: Precision = "auto",
        world: World | None = None,
    ) -> None:
        adam = {"betas": betas, "eps": eps}
        super().__init__(
            params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "matrices": 0, **adam}
        )
        self._precision, self._world = precision, world or World()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; no closure."""
        if closure is not None:
            raise ValueError("Muon computes no loss itself")
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if not weights:
                continue
            if not group["matrices"]:
                self._adamw(weights, group)
            # All matrices at once: few launches on a GPU, a share for every process. A single process on a
            # CPU is no faster that way.
            elif weights[0].is_cuda or self._world.size > 1:
                self._muon(weights, group)
            else:
                for weight in weights:
                    self._muon([weight], group)

    def _muon(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [w.grad for w in weights if w.grad is not None]
        for w in weights:
            if not self.state[w]:
                self.state[w] = {"momentum": torch.zeros_like(w)}
        moments = [self.state[w]["momentum"] for w in weights]
        torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, moments, group["momentum"])
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        by_shape: defaultdict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for weight, update in zip(weights, updates, strict=True):
            for pair in zip(weight.chunk(group["matrices"]), update.chunk(group["matrices"]), strict=True):
                by_shape[pair[0].shape].append(pair)
        before = 0
        for (rows, columns), pairs in by_shape.items():
            alpha = -group["lr"] * max(1.0, rows / columns) ** 0.5
            parts, directions = [part for part, _ in pairs], [update for _, update in pairs]
            torch._foreach_add_(parts, self._orthogonals(directions, before), alpha=alpha)
            before += len(pairs)

    def _orthogonals(self, updates: list[Tensor], before: int) -> list[Tensor]:
        """`orthogonal` of matrices of one shape, computed by all processes in turn.

        Args:
            before: number of matrices of other shapes before these, which determines the first process.
        """
        rank, size = self._world.rank, self._world.size
        own = slice((rank - before) % size, None, size)
        mine, dtype = updates[own], compute_format(self._precision, updates[0]).dtype
        if mine and mine[0].is_cuda:
            whole = orthogonal(torch.stack(mine).to(dtype)).to(updates[0].dtype)
            results = list(whole.contiguous())  # with the weights' layout, all are added by one kernel
        else:
            results = [orthogonal(update.to(dtype)) for update in mine]
        if size == 1:
            return results
        every = torch.zeros((len(updates), *updates[0].shape), device=updates[0].device)
        for place, direction in zip(every[own], results, strict=True):
            place.copy_(direction)
        return list(self._world.add(every))

    def _adamw(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        for w in weights:
            if not self.state[w]:
                self.state[w] = {
                    "step": torch.zeros((), device=w.device),
                    "exp_avg": torch.zeros_like(w),
                    "exp_avg_sq": torch.zeros_like(w),
                }
        m, v, steps = ([self.state[w][key] for w in weights] for key in ("exp_avg", "exp_avg_sq", "step"))
        beta1, beta2 = group["betas"]
        fused = all(w.device.type in ("cpu", "cuda") for w in weights)
        adamw(
            weights,
            [w.grad for w in weights if w.grad is not None],
            m,
            v,
            [],
            steps,
            fused=fused,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
