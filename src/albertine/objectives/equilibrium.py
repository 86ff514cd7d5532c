"""Losses of an encoder with a solver: first by unrolled layers, then by the solver, optionally with a
Jacobian penalty (Bai et al. 2021, 2106.14342, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from albertine.model.fixed_point import FixedPoint
from albertine.model.loop import EncoderOutput
from albertine.model.model import Model
from albertine.model.solvers import Convergence, Equilibrium
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import Part, pretraining_losses

Sums = dict[str, tuple[float, float]]
"""(sum, count) by name."""


class EquilibriumMetrics:
    """Convergence metrics of the passes of an encoder, collected by a forward hook.

    Args:
        evaluation: also collect passes in evaluation mode.
    """

    def __init__(self, encoder: nn.Module, *, evaluation: bool = True) -> None:
        self.evaluation, self._passes = evaluation, list[tuple[Equilibrium, int]]()
        encoder.register_forward_hook(self._collect)

    def metrics(self) -> Sums:
        """Sums over all passes since the last call: evaluations of f, residual and converged share over
        sequences, the same of the gradient, and the size of the Jacobian over tokens."""
        names = ("iterations", "residual", "converged")
        every = [*names, *(f"gradient_{name}" for name in names), "jacobian"]
        sums = dict.fromkeys(every, (0.0, 0.0))
        for equilibrium, tokens in self._passes:
            for prefix, found in (("", equilibrium.forward), ("gradient_", equilibrium.backward)):
                for name, (total, count) in _sums(found).items():
                    before = sums[prefix + name]
                    sums[prefix + name] = before[0] + total, before[1] + count
            if equilibrium.jacobian is not None:
                total, count = sums["jacobian"]
                sums["jacobian"] = total + tokens * equilibrium.jacobian.item(), count + tokens
        self._passes.clear()
        return sums

    def _collect(self, encoder: nn.Module, inputs: tuple[object, ...], out: EncoderOutput) -> None:
        if out.equilibrium is not None and (self.evaluation or encoder.training):
            self._passes.append((out.equilibrium, int(getattr(inputs[0], "num_tokens", 0))))


class EquilibriumLosses(EquilibriumMetrics):
    """As `pretraining_losses`, for a model whose encoder has a solver.

    A batch with a `depth` is computed by that many unrolled layers, without the solver: the fixed point of an
    untrained block carries little information.

    Args:
        weight: of the Jacobian penalty, |J|² / (T·H) averaged over the tokens, relative to the other losses.
        frequency: share of the passes in which it is computed.
    """

    def __init__(self, model: Model, weight: float = 0.0, frequency: float = 1.0) -> None:
        super().__init__(model.encoder)
        assert isinstance(model.encoder.loop, FixedPoint)
        self.loop, self.weight, self.frequency = model.encoder.loop, weight, frequency

    def __call__(self, model: Model, batch: PretrainingBatch) -> dict[str, Part]:
        # From torch's global generator, which a step seeds by (seed, step, rank, micro-batch).
        penalised = batch.penalised and bool(torch.rand(()) < self.frequency)
        with self._set(unrolled=batch.depth is not None, penalised=penalised):
            parts = pretraining_losses(model, batch)
        if not batch.penalised:
            return parts
        size = self._passes[-1][0].jacobian if penalised else torch.zeros((), device=model.device)
        assert size is not None
        cost = self.weight * batch.num_tokens * size
        return parts | {"jacobian": Part(cost, batch.num_tokens, torch.zeros_like(size))}

    @contextmanager
    def _set(self, *, unrolled: bool, penalised: bool) -> Iterator[None]:
        self.loop.unrolled, self.loop.penalised = unrolled, penalised
        try:
            yield
        finally:
            self.loop.unrolled = self.loop.penalised = False


def _sums(found: Convergence | None) -> Sums:
    if found is None:
        return {}
    columns: dict[str, Tensor] = {
        "iterations": found.iterations,
        "residual": found.residual,
        "converged": found.converged,
    }
    return {name: (float(x.double().sum()), float(len(x))) for name, x in columns.items()}
