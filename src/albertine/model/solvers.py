"""Fixed-point solvers, z = f(z), on packed rows.

Norms, mixing weights and stopping are computed for each sequence, so a result does not depend on the other
sequences of the batch; the published code (locuslab/deq, lib/solvers.py) uses norms over the whole batch. A
solver returns the iterate with the lowest residual, the start included, and raises nothing: a sequence with
non-finite numbers stops at its best iterate, and has not converged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]
"""f, (T, H) to (T, H), which computes every sequence independently."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """The sequence of each of T packed rows.

    Attributes:
        of_rows: int64 (T,). lengths: of each sequence, int64 (S,).
    """

    of_rows: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, cu_seqlens: Tensor) -> Sequences:
        """From offsets (S+1,)."""
        lengths = cu_seqlens.diff().long()
        return cls(torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths), lengths)

    @property
    def count(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    def dot(self, a_TH: Tensor, b_TH: Tensor) -> Tensor:
        """Inner product of two tensors (T, H) for each sequence, (S,) float64."""
        rows_T = (a_TH * b_TH).sum(1).double()
        # Deterministic, unlike `index_add_` on a GPU: a resumed run has equal bits.
        return torch.segment_reduce(rows_T, "sum", lengths=self.lengths, unsafe=True)

    def dots(self, several: Iterable[Tensor], b_TH: Tensor) -> Tensor:
        """Inner products of M tensors with b, (S, M) float64; one by one to save memory."""
        return torch.stack([self.dot(a_TH, b_TH) for a_TH in several], 1)

    def combined(self, weights_SM: Tensor, several: Iterable[Tensor], out_TH: Tensor) -> Tensor:
        """`out` plus the sum of M tensors (T, H), weighted for each sequence."""
        for weight_S, a_TH in zip(weights_SM.to(out_TH.dtype).unbind(1), several, strict=True):
            out_TH = torch.addcmul(out_TH, weight_S[self.of_rows, None], a_TH)
        return out_TH

    def chosen(self, where_S: Tensor, a_TH: Tensor, b_TH: Tensor) -> Tensor:
        """Rows of `a` for the sequences where a bool (S,) is true, of `b` for the others."""
        return torch.where(where_S[self.of_rows, None], a_TH, b_TH)


@dataclass(frozen=True, eq=False)
class Convergence:
    """Convergence of each sequence.

    Attributes:
        residual: |f(z) - z| / |f(z)| of the best iterate, float64 (S,); infinite where f was never finite.
        iterations: evaluations of f before the sequence stopped, int64 (S,).
        converged: whether its residual fell to the tolerance, bool (S,).
    """

    residual: Tensor
    iterations: Tensor
    converged: Tensor

    def first(self, sequences: int | None) -> Convergence:
        """Convergence of the first sequences."""
        every = self.residual, self.iterations, self.converged
        return Convergence(*(x[:sequences] for x in every))


@dataclass(frozen=True, eq=False)
class Solution(Convergence):
    """Result of a solver.

    Attributes:
        z: (T, H), the iterate with the lowest residual for every sequence. f: (T, H), f(z).
    """

    z: Tensor
    f: Tensor


@dataclass(eq=False)
class Equilibrium:
    """Convergence of an encoder pass.

    Attributes:
        convergence: of all sequences, padding included. warn: called with the convergence in inference.
        backward: convergence of the gradient, after a backward pass.
        jacobian: estimate of |J|² / (T·H) at z*, with gradient, where it was computed.
        sequences: number of real sequences, which come before padding; None: all.
    """

    convergence: Convergence
    warn: Callable[[Convergence], None]
    backward: Convergence | None = None
    jacobian: Tensor | None = None
    sequences: int | None = None

    @property
    def forward(self) -> Convergence:
        """Of the real sequences."""
        return self.convergence.first(self.sequences)

    def finish(self, sequences: int, warn: bool) -> None:
        """Set the number of real sequences, and with `warn` report whether one of them did not converge."""
        self.sequences = sequences
        if warn:
            self.warn(self.forward)


class _Search:
    """State of a search: the best iterate of every sequence, and whether the sequence is still `running`,
    bool (S,)."""

    def __init__(self, start_TH: Tensor, sequences: Sequences, tolerance: float, floor: float) -> None:
        self.sequences, self.tolerance, self.floor = sequences, tolerance, floor
        self.z, self.f = start_TH, start_TH
        count, device = sequences.count, start_TH.device
        self.residual = torch.full((count,), torch.inf, dtype=torch.float64, device=device)
        self.iterations = torch.zeros(count, dtype=torch.int64, device=device)
        self.converged = torch.zeros(count, dtype=torch.bool, device=device)
        self.running = torch.ones(count, dtype=torch.bool, device=device)

    def update(self, z_TH: Tensor, f_TH: Tensor) -> bool:
        """Record an iterate and its f; returns whether any sequence is still running."""
        sequences, step_TH = self.sequences, f_TH - z_TH
        found = sequences.dot(step_TH, step_TH).sqrt() / (sequences.dot(f_TH, f_TH).sqrt() + self.floor)
        finite = torch.isfinite(found)
        better = self.running & finite & (found < self.residual)
        self.residual = torch.where(better, found, self.residual)
        self.z, self.f = sequences.chosen(better, z_TH, self.z), sequences.chosen(better, f_TH, self.f)
        self.iterations += self.running
        self.converged |= better & (found <= self.tolerance)
        self.running = self.running & finite & ~self.converged
        return bool(self.running.any())

    def next_iterate(self, next_TH: Tensor, fallback_TH: Tensor) -> Tensor:
        """`next_TH`, or the fallback where it is not finite; the best iterate of sequences that have
        stopped."""
        choose = self.sequences.chosen
        finite = torch.isfinite(self.sequences.dot(next_TH, torch.zeros_like(next_TH)))  # 0 · inf is not
        return choose(self.running, choose(finite, next_TH, fallback_TH), self.z)

    def solution(self) -> Solution:
        return Solution(self.residual, self.iterations, self.converged, self.z, self.f)


@torch.no_grad()
def anderson(
    f: Map,
    start_TH: Tensor,
    sequences: Sequences,
    *,
    limit: int = 50,
    tolerance: float = 1e-3,
    memory: int = 6,
    damping: float = 1e-4,
    absolute: bool = False,
    mixing: float = 1.0,
) -> Solution:
    """Anderson's acceleration (1965), as deep equilibrium models use it (Bai et al. 2021, 2106.14342).

    The next iterate is Σ α_i·(mixing·f(z_i) + (1 - mixing)·z_i) over the last `memory` iterates, with the α
    that sum to 1 and make |Σ α_i·(f(z_i) - z_i)|² + damping·|α|² smallest: a bordered linear system of
    memory + 1 unknowns a sequence.

    Args:
        limit: maximum evaluations of f. tolerance: of |f(z) - z| / (1e-5 + |f(z)|).
        absolute: use the damping itself, as the published code does. By default it is relative to the
            smallest |f(z_i) - z_i|²: an absolute damping dominates as soon as these are small (short
            sequences, or near convergence), and the solver only averages.
    """
    search = _Search(start_TH, sequences, tolerance, floor=1e-5)
    memory = min(memory, limit)
    values: list[Tensor] = []  # f(z_i)
    steps: list[Tensor] = []  # f(z_i) - z_i
    system = start_TH.new_zeros(sequences.count, memory + 1, memory + 1, dtype=torch.float64)
    system[:, 0, 1:] = system[:, 1:, 0] = 1
    right = system.new_zeros(sequences.count, memory + 1, 1)
    right[:, 0] = 1
    z_TH = start_TH
    for k in range(limit):
        f_TH = f(z_TH)
        if not search.update(z_TH, f_TH) or k == limit - 1:
            break
        place, known = k % memory, min(k + 1, memory)
        values[place:], steps[place:] = [f_TH, *values[place + 1 :]], [f_TH - z_TH, *steps[place + 1 :]]
        inner, new = slice(1, known + 1), place + 1
        system[:, new, inner] = system[:, inner, new] = sequences.dots(steps, steps[place])
        damped = system[:, : known + 1, : known + 1].clone()
        diagonal_SM = damped.diagonal(dim1=1, dim2=2)[:, 1:]
        diagonal_SM += damping * (1.0 if absolute else diagonal_SM.amin(1, keepdim=True))
        # `solve_ex` does not raise for a singular system; non-finite results are replaced by `next_iterate`.
        weights = torch.linalg.solve_ex(damped, right[:, : known + 1]).result
        next_TH = sequences.combined(weights[:, 1:, 0], values, torch.zeros_like(z_TH))
        if mixing != 1:
            next_TH = sequences.combined((mixing - 1) * weights[:, 1:, 0], steps, next_TH)
        z_TH = search.next_iterate(f_TH if k == 0 else next_TH, f_TH)
    return search.solution()


@torch.no_grad()
def broyden(
    f: Map,
    start_TH: Tensor,
    sequences: Sequences,
    *,
    limit: int = 50,
    tolerance: float = 1e-3,
    memory: int = 30,
) -> Solution:
    """Broyden's good method (1965) for g(z) = f(z) - z = 0 (Bai et al. 2019, 1909.01377).

    The inverse of g's Jacobian is approximated by -I + Σ u_i·v_iᵀ with one more term an iteration (Sherman
    and Morrison), of which the last `memory` are kept.

    Args:
        limit: maximum evaluations of f. tolerance: of |g(z)| / (|f(z)| + 1e-9).
    """
    search = _Search(start_TH, sequences, tolerance, floor=1e-9)
    left: deque[Tensor] = deque(maxlen=memory)  # u_i
    right: deque[Tensor] = deque(maxlen=memory)  # v_i

    def inverse(x_TH: Tensor, u: deque[Tensor], v: deque[Tensor]) -> Tensor:
        """(-I + Σ u_i·v_iᵀ)·x; with u and v exchanged, by the transposed matrix."""
        return sequences.combined(sequences.dots(v, x_TH), u, -x_TH) if u else -x_TH

    z_TH, g_TH, before_TH = start_TH, torch.zeros_like(start_TH), start_TH
    for k in range(limit):
        f_TH = f(z_TH)
        if not search.update(z_TH, f_TH) or k == limit - 1:
            break
        changed_TH, moved_TH, g_TH = f_TH - z_TH - g_TH, z_TH - before_TH, f_TH - z_TH
        if k > 0:
            v_TH = inverse(moved_TH, right, left)
            scale_S = sequences.dot(v_TH, changed_TH)
            u_TH = (moved_TH - inverse(changed_TH, left, right)) / scale_S[sequences.of_rows, None].to(z_TH)
            usable = torch.isfinite(sequences.dot(u_TH, v_TH))  # false where z no longer moves
            left.append(sequences.chosen(usable, u_TH, torch.zeros_like(u_TH)))
            right.append(sequences.chosen(usable, v_TH, torch.zeros_like(v_TH)))
        before_TH = z_TH
        z_TH = search.next_iterate(z_TH - inverse(g_TH, left, right), f_TH)
    return search.solution()


SOLVERS: Mapping[str, Callable[..., Solution]] = {"anderson": anderson, "broyden": broyden}
