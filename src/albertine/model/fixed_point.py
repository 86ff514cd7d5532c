"""The loop over depths run to its fixed point: z* = f(z*), where f is the step that all depths share.

Deep equilibrium models (Bai et al. 2019, 1909.01377; 2021, 2106.14342). A solver finds z* without a gradient,
so memory does not depend on how many iterations it took. The gradient is that of the equation, not of the
way to its solution: with J = ∂f/∂z at z*, what arrives as g goes on into f as the y that solves
y = Jᵀy + g, found by the same solver.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from albertine.core.randomness import RngSnapshot
from albertine.model.backend import computing, current
from albertine.model.backend.base import Backend
from albertine.model.jacobian import jacobian_size
from albertine.model.layer_loop import Depths, EncoderOutput, Step
from albertine.model.rows import Rows, Selected
from albertine.model.solvers import SOLVERS, Convergence, Equilibrium, Map, Sequences, Solution

log = logging.getLogger(__name__)


class FixedPoint(Depths):
    """Every sequence is taken to the point that a step leaves as it is.

    The result is f of the best iterate, in training and out of it; `depth` is the most evaluations of f, rows
    are taken from the whole, and of `all_depths` there are two states, the embeddings and the fixed point.
    Dropout masks are drawn once a pass and stay over the iterations.

    Attributes:
        solver, tolerance: as in `EncoderConfig`.
        unrolled: compute `depth` steps one after the other instead, as at the beginning of a pretraining.
        penalised: in training also compute `Equilibrium.jacobian`.
    """

    unrolled = penalised = False
    _said = False

    def __init__(self, solver: str = "anderson", tolerance: float = 1e-3) -> None:
        self.solver, self.tolerance = solver, tolerance

    def run(
        self, step: Step, x_TH: Tensor, rows: Rows, depth: int, wanted: Selected | None, all_depths: bool
    ) -> EncoderOutput:
        # Without injection the input is nowhere but in the start.
        start_TH = x_TH if rows.injection is None else torch.zeros_like(x_TH)
        if depth == 0:
            return super().run(step, x_TH, rows, 0, wanted, all_depths)
        if self.unrolled:
            return super().run(step, start_TH, rows, depth, wanted, all_depths)
        draws = RngSnapshot(x_TH.device)

        def f(z_TH: Tensor) -> Tensor:
            # Each time: a sequence that is not finite stops, so that nothing of it is seen in the end.
            return current().isolated(lambda: once(z_TH), lambda f_TH: f_TH)

        def once(z_TH: Tensor) -> Tensor:
            draws.rewind()
            return step(0, z_TH, z_TH, rows, rows)

        sequences, gradients = Sequences.of(rows.cu_seqlens), torch.is_grad_enabled()
        solution = self.solved(detached(f, x_TH.dtype, gradients), start_TH.detach(), sequences, depth)
        equilibrium = Equilibrium(solution.first(None), self.warn)
        # Where f was never finite the best iterate is the start, which does not depend on the text.
        known_S = torch.isfinite(solution.residual)
        z_TH = sequences.chosen(known_S, solution.f, solution.f.new_tensor(math.nan)).to(x_TH.dtype)
        if gradients:
            best_TH = solution.z.to(x_TH.dtype).requires_grad_()
            z_TH = self._implicit(f(best_TH), best_TH, sequences, depth, equilibrium)
            if self.penalised:
                equilibrium.jacobian = self._jacobian(step, solution.z.to(x_TH.dtype), rows)
        states = (x_TH, z_TH) if all_depths else None
        last_TH = z_TH if wanted is None else wanted.of(z_TH)
        return EncoderOutput(last_TH, states, equilibrium=equilibrium)

    def solved(self, f: Map, start_TH: Tensor, sequences: Sequences, limit: int) -> Solution:
        """z = f(z) from a start, (T, H), in at least float32."""
        wide_TH = start_TH if start_TH.dtype == torch.float64 else start_TH.float()
        return SOLVERS[self.solver](f, wide_TH, sequences, limit=limit, tolerance=self.tolerance)

    def _implicit(
        self, f_TH: Tensor, z_TH: Tensor, sequences: Sequences, limit: int, equilibrium: Equilibrium
    ) -> Tensor:
        """f(z), whose gradient goes on as that of the fixed point."""

        def solve(g_TH: Tensor) -> Tensor:
            # Of length 1 for each sequence, so that the solver's absolute numbers mean the same for any loss.
            length_S = sequences.dot(g_TH.double(), g_TH.double()).sqrt()
            length_T1 = length_S[sequences.of_rows, None].to(g_TH.dtype)
            unit_TH = torch.where(length_T1 == 0, g_TH, g_TH / length_T1)

            def transposed(y_TH: Tensor) -> Tensor:
                y_TH = y_TH.to(f_TH.dtype)
                (product_TH,) = torch.autograd.grad(f_TH, z_TH, y_TH, retain_graph=True)
                return (product_TH + unit_TH).to(start_TH.dtype)

            start_TH = torch.zeros_like(unit_TH, dtype=torch.promote_types(unit_TH.dtype, torch.float32))
            solution = self.solved(transposed, start_TH, sequences, limit)
            equilibrium.backward = solution.first(equilibrium.sequences)
            return solution.f.to(g_TH.dtype) * length_T1

        return cast(Tensor, _Implicit.apply(f_TH, solve))  # type: ignore[no-untyped-call]

    def _jacobian(self, step: Step, z_TH: Tensor, rows: Rows) -> Tensor:
        """The penalty at z, in a pass of plain operations: fused ones can be differentiated only once."""
        z_TH = z_TH.detach().requires_grad_()
        form = current().form
        with computing(self, lambda: Backend(form)):
            # Rows that are named: nothing is computed again in the backward pass, which happens once only.
            every = replace(rows, places=torch.arange(len(z_TH), device=z_TH.device))
            return jacobian_size(step(0, z_TH, z_TH, every, rows), z_TH)

    def warn(self, found: Convergence) -> None:
        """Say once that there are sequences that did not converge."""
        if self._said or bool(found.converged.all()):
            return
        self._said = True
        log.warning(
            "%d of %d sequences did not come to their fixed point in %d iterations: residual up to %.2g, "
            "where %.2g was asked for. Their best iterates are used; this is said once",
            int((~found.converged).sum()),
            len(found.converged),
            int(found.iterations.max()),
            float(found.residual.max()),
            self.tolerance,
        )


def detached(f: Map, dtype: torch.dtype, gradients: bool) -> Map:
    """f without gradient in the format of a solver, by the kernels of training where there are gradients:
    others would draw other dropout masks."""

    def found(z_TH: Tensor) -> Tensor:
        with torch.set_grad_enabled(gradients):
            return f(z_TH.to(dtype)).detach().to(z_TH.dtype)

    return found


class _Implicit(torch.autograd.Function):
    """Identity; its backward is a function of the gradient."""

    @staticmethod
    def forward(ctx: Any, f_TH: Tensor, solve: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.solve = solve
        return f_TH.view_as(f_TH)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g_TH: Tensor) -> tuple[Tensor, None]:
        return ctx.solve(g_TH), None
