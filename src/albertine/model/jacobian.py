"""Size and spectral radius of the Jacobian of a layer, by vector-Jacobian products."""

from __future__ import annotations

import torch
from torch import Tensor

from albertine.model.solvers import Sequences

CHECK_EVERY, AGREED = 100, 2e-4


def jacobian_size(f_TH: Tensor, z_TH: Tensor) -> Tensor:
    """An estimate of |J|² / (T·H), |J| the Frobenius norm of J = ∂f/∂z, float32 scalar with gradient.

    Hutchinson's estimator: vᵀJ of a standard normal v, whose expected square is |J|² (Bai et al. 2021,
    2106.14342, equation 7).

    Args:
        f_TH: f(z), of operations that can be differentiated twice. z_TH: z, with gradient.
    """
    v_TH = torch.randn_like(f_TH)
    (product_TH,) = torch.autograd.grad(f_TH, z_TH, v_TH, create_graph=True)
    return product_TH.float().square().mean()


def spectral_radius(f_TH: Tensor, z_TH: Tensor, sequences: Sequences, limit: int = 500) -> Tensor:
    """The largest absolute value of J's eigenvalues, by the power method, float64 (S,).

    J of a packed batch has a block for each sequence. The result is the growth of |vᵀJᵏ| over the last
    quarter of the steps, which also converges for a pair of complex eigenvalues, unlike the quotient (vᵀJ)·v
    / v·v of the published code. Iteration ends when it equals that of the quarter before, for every sequence:
    an untrained block has many eigenvalues of nearly equal size, which take many steps to separate.

    Args:
        f_TH: f(z); its graph is kept. z_TH: z, with gradient. limit: maximum products with J.
    """
    v_TH = torch.randn_like(f_TH)
    logs: list[Tensor] = []
    while len(logs) < limit and not _settled(logs):
        size_S = sequences.dot(v_TH, v_TH).sqrt()
        safe_S = torch.where(size_S > 0, size_S, torch.ones_like(size_S))
        v_TH = v_TH / safe_S[sequences.of_rows, None].to(v_TH.dtype)
        (v_TH,) = torch.autograd.grad(f_TH, z_TH, v_TH, retain_graph=True)
        logs.append(sequences.dot(v_TH, v_TH).sqrt().log())
    return torch.stack(logs[-max(1, len(logs) // 4) :]).mean(0).exp()


def _settled(logs: list[Tensor]) -> bool:
    """Whether the last quarter of the steps and the one before have equal means, for every sequence."""
    quarter = len(logs) // 4
    if not quarter or len(logs) % CHECK_EVERY:
        return False
    before_S, last_S = torch.stack(logs[-2 * quarter :]).view(2, quarter, -1).mean(1)
    # Not `<=`: for a zero Jacobian the logarithms are infinite, and their difference is NaN.
    return not bool(((last_S - before_S).abs() > AGREED).any())
