"""The loop that solves for a fixed point z* = f(z*), where f is the layer that is shared throughout.

Deep equilibrium models (Bai et al. 2019, 1909.01377; 2021, 2106.14342). A solver finds z* without gradient,
so memory does not depend on the number of iterations. The gradient is that of the equation (implicit
differentiation): with J = ∂f/∂z at z*, an incoming gradient g continues into f as the y that solves y = Jᵀy +
g, by the same solver.
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
from albertine.model.backend import current, forward_pass
from albertine.model.backend.attention_weights import AttentionWeights
from albertine.model.backend.base import Backend
from albertine.model.jacobian import jacobian_size
from albertine.model.loop import EncoderOutput, LayerFunction, LayerLoop
from albertine.model.rows import Rows, SelectedRows
from albertine.model.solvers import SOLVERS, Convergence, Equilibrium, Map, Sequences, Solution

log = logging.getLogger(__name__)


class FixedPoint(LayerLoop):
    """Fixed point of every sequence.

    The result is f of the best iterate, in training and inference. `depth` is the maximum number of
    evaluations of f, all rows are computed before any are selected, and the hidden states are two: embeddings
    and fixed point. Dropout masks are drawn once a pass and reused in every iteration.

    Attributes:
        solver, tolerance: as in `EncoderConfig`.
        unrolled: compute `depth` layers in sequence instead, as at the beginning of pretraining.
        penalised: in training also compute `Equilibrium.jacobian`.
    """

    unrolled = penalised = False
    _warned = False

    def __init__(self, solver: str = "anderson", tolerance: float = 1e-3) -> None:
        self.solver, self.tolerance = solver, tolerance

    def run(
        self,
        layer: LayerFunction,
        x_TH: Tensor,
        rows: Rows,
        depth: int,
        selected: SelectedRows | None,
        all_depths: bool,
    ) -> EncoderOutput:
        # With injection the input is part of f, and the search starts at zero.
        start_TH = x_TH if rows.injection is None else torch.zeros_like(x_TH)
        if depth == 0:
            return super().run(layer, x_TH, rows, 0, selected, all_depths)
        if self.unrolled:
            return super().run(layer, start_TH, rows, depth, selected, all_depths)
        draws = RngSnapshot(x_TH.device)

        def f(z_TH: Tensor) -> Tensor:
            # In every iteration: a sequence with non-finite states stops, and leaves no trace in the result.
            return current().isolate_non_finite(lambda: once(z_TH), lambda f_TH: f_TH)

        def once(z_TH: Tensor) -> Tensor:
            draws.rewind()
            return layer(0, z_TH, z_TH, rows, rows)

        sequences, gradients = Sequences.of(rows.cu_seqlens), torch.is_grad_enabled()
        solution = self.solve(detached(f, x_TH.dtype, gradients), start_TH.detach(), sequences, depth)
        equilibrium = Equilibrium(solution.first(None), self.warn)
        # Where f was never finite the best iterate is the start, which does not depend on the input: return
        # NaN.
        known_S = torch.isfinite(solution.residual)
        z_TH = sequences.chosen(known_S, solution.f, solution.f.new_tensor(math.nan)).to(x_TH.dtype)
        if gradients:
            best_TH = solution.z.to(x_TH.dtype).requires_grad_()
            z_TH = self._implicit(f(best_TH), best_TH, sequences, depth, equilibrium)
            if self.penalised:
                equilibrium.jacobian = self._jacobian(layer, solution.z.to(x_TH.dtype), rows)
        if isinstance(current(), AttentionWeights):
            once(z_TH)  # the weights at the fixed point, in place of those of the last iteration
        states = (x_TH, z_TH) if all_depths else None
        last_TH = z_TH if selected is None else selected.of(z_TH)
        return EncoderOutput(last_TH, states, equilibrium=equilibrium)

    def solve(self, f: Map, start_TH: Tensor, sequences: Sequences, limit: int) -> Solution:
        """z = f(z) from a start, (T, H), in at least float32."""
        wide_TH = start_TH if start_TH.dtype == torch.float64 else start_TH.float()
        return SOLVERS[self.solver](f, wide_TH, sequences, limit=limit, tolerance=self.tolerance)

    def _implicit(
        self, f_TH: Tensor, z_TH: Tensor, sequences: Sequences, limit: int, equilibrium: Equilibrium
    ) -> Tensor:
        """f(z), whose gradient is that of the fixed point."""

        def solve_gradient(g_TH: Tensor) -> Tensor:
            # Unit length for each sequence, so that the solver's tolerances do not depend on the scale of the
            # loss.
            length_S = sequences.dot(g_TH.double(), g_TH.double()).sqrt()
            length_T1 = length_S[sequences.of_rows, None].to(g_TH.dtype)
            unit_TH = torch.where(length_T1 == 0, g_TH, g_TH / length_T1)

            def transposed(y_TH: Tensor) -> Tensor:
                y_TH = y_TH.to(f_TH.dtype)
                (product_TH,) = torch.autograd.grad(f_TH, z_TH, y_TH, retain_graph=True)
                return (product_TH + unit_TH).to(start_TH.dtype)

            start_TH = torch.zeros_like(unit_TH, dtype=torch.promote_types(unit_TH.dtype, torch.float32))
            solution = self.solve(transposed, start_TH, sequences, limit)
            equilibrium.backward = solution.first(equilibrium.sequences)
            return solution.f.to(g_TH.dtype) * length_T1

        return cast(Tensor, _Implicit.apply(f_TH, solve_gradient))  # type: ignore[no-untyped-call]

    def _jacobian(self, layer: LayerFunction, z_TH: Tensor, rows: Rows) -> Tensor:
        """The Jacobian penalty at z, by plain operations: fused ones can be differentiated only once."""
        z_TH = z_TH.detach().requires_grad_()
        form = current().form
        with forward_pass(self, lambda: Backend(form)):
            # Rows with indices are not recomputed (`Encoder.run_layer`), which allows a second derivative.
            every = replace(rows, indices=torch.arange(len(z_TH), device=z_TH.device))
            return jacobian_size(layer(0, z_TH, z_TH, every, rows), z_TH)

    def warn(self, found: Convergence) -> None:
        """Warn once of sequences that did not converge."""
        if self._warned or bool(found.converged.all()):
            return
        self._warned = True
        log.warning(
            "%d of %d sequences did not converge to their fixed point in %d iterations: residual up to %.2g, "
            "tolerance %.2g. Their best iterates are used; this warning is shown once",
            int((~found.converged).sum()),
            len(found.converged),
            int(found.iterations.max()),
            float(found.residual.max()),
            self.tolerance,
        )


def detached(f: Map, dtype: torch.dtype, gradients: bool) -> Map:
    """f without gradient in the solver's format, by the kernels of training where gradients are enabled:
    others would draw different dropout masks."""

    def g(z_TH: Tensor) -> Tensor:
        with torch.set_grad_enabled(gradients):
            return f(z_TH.to(dtype)).detach().to(z_TH.dtype)

    return g


class _Implicit(torch.autograd.Function):
    """Identity in the forward pass; `solve` of the gradient in the backward pass."""

    @staticmethod
    def forward(ctx: Any, f_TH: Tensor, solve: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.solve = solve
        return f_TH.view_as(f_TH)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g_TH: Tensor) -> tuple[Tensor, None]:
        return ctx.solve(g_TH), None
