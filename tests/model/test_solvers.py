"""The solvers on maps whose fixed points are known, and on maps that have none; in double."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from albertine.model.solvers import SOLVERS, Sequences, Solution, anderson, broyden

H = 6
LENGTHS = (4, 1, 7)
Solver = Callable[..., Solution]
each_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def batch(*lengths: int) -> Sequences:
    return Sequences.of(torch.tensor([0, *lengths]).cumsum(0).to(torch.int32))


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(norm: float, seed: int = 0) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """z·A + b with a symmetric A of that spectral norm, and A."""
    a, b = noise(H, H, seed=seed), noise(H, seed=seed + 1)
    a = a + a.T
    a = a * norm / torch.linalg.matrix_norm(a, 2)
    return lambda z: z @ a + b, a


def fixed_point_of(f: Callable[[Tensor], Tensor], a: Tensor) -> Tensor:
    b = f(torch.zeros(1, H, dtype=torch.float64))
    return torch.linalg.solve(torch.eye(H, dtype=torch.float64) - a.T, b.T).T


@each_solver
@pytest.mark.parametrize("norm", [0.5, 0.89])
def test_three_starts_give_one_point_within_the_tolerance(solver: Solver, norm: float) -> None:
    f, a = linear(norm)
    rows = batch(*LENGTHS)
    for scale in (0.0, 1.0, 30.0):
        found = solver(f, scale * noise(12, H, seed=5), rows, tolerance=1e-6, limit=200)
        assert found.converged.all() and (found.residual <= 1e-6).all()
        torch.testing.assert_close(found.f, f(found.z))
        point = fixed_point_of(f, a).expand_as(found.z)
        assert float((found.f - point).norm() / point.norm()) <= 10 * 1e-6


@each_solver
def test_it_is_faster_than_repeating(solver: Solver) -> None:
    f, _ = linear(0.89)
    found = solver(f, torch.zeros(12, H, dtype=torch.float64), batch(*LENGTHS), tolerance=1e-6, limit=200)
    assert int(found.iterations.max()) <= 15  # repeating takes ln(1e-6) / ln(.89) = 119
    if solver is anderson:  # the published damping makes it as slow as that
        start = torch.zeros(12, H, dtype=torch.float64)
        slow = anderson(f, start, batch(*LENGTHS), tolerance=1e-6, limit=200, absolute=True)
        assert int(slow.iterations.max()) > 100


def test_how_fast_it_is_does_not_depend_on_the_size_of_the_numbers() -> None:
    f, a = linear(0.89)
    b = f(torch.zeros(1, H, dtype=torch.float64))
    found = {}
    for scale in (1e-3, 1.0, 1e3):
        start = torch.zeros(12, H, dtype=torch.float64)
        settings = {"tolerance": 1e-5, "limit": 300}
        small = anderson(lambda z, c=scale * b: z @ a + c, start, batch(*LENGTHS), **settings)
        found[scale] = int(small.iterations.max())
    assert max(found.values()) <= min(found.values()) + 2 < 20
    published = anderson(lambda z: z @ a + 1e-3 * b, start, batch(*LENGTHS), absolute=True, **settings)
    assert int(published.iterations.max()) > 60  # the published damping outweighs such small differences


@each_solver
def test_alone_is_as_in_company_of_a_hard_one(solver: Solver) -> None:
    easy, hard = linear(0.3)[0], linear(0.97, seed=7)[0]
    start = noise(12, H, seed=3)
    settings = {"tolerance": 1e-6, "limit": 60}

    def together(z: Tensor) -> Tensor:  # the rows of the middle sequence follow another map
        return torch.cat([easy(z[:4]), hard(z[4:5]), easy(z[5:])])

    company = solver(together, start, batch(*LENGTHS), **settings)
    for place, (rows, f) in enumerate([(slice(0, 4), easy), (slice(4, 5), hard), (slice(5, 12), easy)]):
        alone = solver(f, start[rows], batch(LENGTHS[place]), **settings)
        torch.testing.assert_close(company.f[rows], alone.f, rtol=0, atol=1e-12)
        assert int(company.iterations[place]) == int(alone.iterations)
        torch.testing.assert_close(company.residual[place : place + 1], alone.residual)
    assert len(set(company.iterations.tolist())) > 1  # or the case would not be one


def plainly_accelerated(f: Callable[[Tensor], Tensor], start: Tensor, count: int, m: int) -> list[Tensor]:
    """The iterates of locuslab/deq's Anderson for one sequence, written out once more: full matrices, the
    oldest column overwritten, beta 1, lambda 1e-4, `torch.linalg.solve`."""
    points = [start.flatten(), f(start).flatten()]
    images = [points[1], f(points[1].view_as(start)).flatten()]
    kept = [0, 1]
    while len(points) < count:
        x, y = (torch.stack([those[i] for i in kept[-m:]]) for those in (points, images))
        g = y - x
        n = len(g)
        bordered = torch.zeros(n + 1, n + 1, dtype=start.dtype)
        bordered[0, 1:] = bordered[1:, 0] = 1
        bordered[1:, 1:] = g @ g.T + 1e-4 * torch.eye(n, dtype=start.dtype)
        e = torch.zeros(n + 1, dtype=start.dtype)
        e[0] = 1
        points.append(torch.linalg.solve(bordered, e)[1:] @ y)
        images.append(f(points[-1].view_as(start)).flatten())
        kept.append(len(points) - 1)
    return [p.view_as(start) for p in points]


def test_anderson_makes_the_published_iterates() -> None:
    f, _ = linear(0.8)

    def bent(z: Tensor) -> Tensor:
        return torch.tanh(f(z)) + 0.1 * z

    start = noise(5, H, seed=4)
    seen: list[Tensor] = []

    def watched(z: Tensor) -> Tensor:
        seen.append(z.clone())
        return bent(z)

    anderson(watched, start, batch(5), limit=12, tolerance=0.0, memory=4, absolute=True)
    expected = plainly_accelerated(bent, start, 12, 4)
    assert len(seen) == 12
    for ours, theirs in zip(seen, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_mixing_goes_part_of_the_way() -> None:
    f, a = linear(0.5)
    found = anderson(f, noise(12, H), batch(*LENGTHS), tolerance=1e-8, limit=300, mixing=0.5)
    assert found.converged.all()
    torch.testing.assert_close(found.f, fixed_point_of(f, a).expand_as(found.f), atol=1e-6, rtol=0)
    seen: list[Tensor] = []
    anderson(lambda z: (seen.append(z), f(z))[1], seen_start := noise(12, H), batch(12), limit=3, mixing=0.0)
    # The second mixture is of iterates alone: between the first two.
    one, two = seen_start, f(seen_start)
    along = ((seen[2] - one) * (two - one)).sum() / (two - one).square().sum()
    torch.testing.assert_close(seen[2], one + along * (two - one))


def test_broyden_solves_a_linear_map_in_as_many_steps_as_it_has_dimensions() -> None:
    f, _ = linear(3.0)  # no contraction: repeating would diverge
    found = broyden(f, noise(1, H), batch(1), tolerance=1e-9, limit=2 * H + 2)
    assert found.converged.all()  # Gay (1979): in at most 2n steps


@each_solver
def test_divergence_is_reported_and_never_raised(solver: Solver) -> None:
    def explode(z: Tensor) -> Tensor:
        return 3 * z.sign() * (z.abs() + 1) ** 1.5

    start = noise(12, H)
    found = solver(explode, start, batch(*LENGTHS), limit=60)
    assert not found.converged.any() and torch.isfinite(found.z).all() and torch.isfinite(found.f).all()
    first = (explode(start) - start).norm() / explode(start).norm()
    assert torch.isfinite(found.residual).all() and float(found.residual.max()) <= 2 * float(first)


@each_solver
def test_a_map_of_norm_three_is_solved_or_reported(solver: Solver) -> None:
    f, a = linear(3.0)
    found = solver(f, noise(12, H), batch(*LENGTHS), tolerance=1e-8, limit=50)
    point = fixed_point_of(f, a).expand_as(found.f)
    near = [
        bool((x - y).norm() <= 1e-5 * y.norm())
        for x, y in zip(found.f.split(LENGTHS), point.split(LENGTHS), strict=True)
    ]
    assert all(close or not done for close, done in zip(near, found.converged.tolist(), strict=True))
    assert torch.isfinite(found.f).all() and torch.isfinite(found.residual).all()


@each_solver
def test_nan_in_one_sequence_spares_the_others(solver: Solver) -> None:
    f, a = linear(0.5)
    calls = 0

    def breaks(z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        out = f(z)
        if calls >= 3:
            out[4:5] = float("nan")
        return out

    start = noise(12, H)
    found = solver(breaks, start, batch(*LENGTHS), tolerance=1e-6)
    assert found.converged.tolist() == [True, False, True]
    assert int(found.iterations[1]) == 3 and torch.isfinite(found.z).all()
    point = fixed_point_of(f, a).expand_as(found.f)
    torch.testing.assert_close(found.f[:4], point[:4], atol=1e-4, rtol=0)
    never = solver(lambda z: z * float("nan"), start, batch(*LENGTHS))
    assert torch.isinf(never.residual).all() and torch.equal(never.z, start)
    assert never.iterations.tolist() == [1, 1, 1] and not never.converged.any()


@each_solver
def test_singular_systems_are_no_error(solver: Solver) -> None:
    constant = noise(12, H)
    settings = {"limit": 8, "tolerance": 0.0}
    if solver is anderson:
        settings["damping"] = 0.0  # equal differences: a singular system at the third iterate
    found = solver(lambda z: z + constant, torch.zeros_like(constant), batch(*LENGTHS), **settings)
    assert torch.isfinite(found.z).all() and torch.isfinite(found.f).all()
    assert (
        solver is broyden or not found.converged.any()
    )  # Broyden's steps grow until the constant is nothing
    there = solver(lambda z: 0 * z + constant, noise(12, H, seed=2), batch(*LENGTHS))
    assert there.converged.all() and torch.equal(there.f, constant)


@each_solver
def test_the_best_iterate_is_kept_and_the_start_is_one_too(solver: Solver) -> None:
    # Near the start f hardly moves; one step farther away it throws about.
    def f(z: Tensor) -> Tensor:
        far = z.norm(dim=1, keepdim=True) > 2.001
        return torch.where(far, -5 * z, z * 1.01)

    start = torch.zeros(1, H, dtype=torch.float64)
    start[0, 0] = 2.0
    found = solver(f, start, batch(1), limit=2, tolerance=1e-6)
    assert torch.equal(found.z, start) and float(found.residual) == pytest.approx(0.02 / 2.02, rel=1e-4)
    assert not found.converged.any()


@each_solver
def test_the_limit_is_a_number_of_evaluations(solver: Solver) -> None:
    f, _ = linear(0.89)
    calls: list[int] = []
    found = solver(lambda z: (calls.append(1), f(z))[1], noise(12, H), batch(*LENGTHS), limit=5, tolerance=0)
    assert len(calls) == 5 and found.iterations.tolist() == [5, 5, 5]
