"""The Jacobian's size and spectral radius against the matrix itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from albertine.core.randomness import seed_torch
from albertine.model.fixed_point import FixedPoint
from albertine.model.jacobian import jacobian_size, spectral_radius
from albertine.model.loop import EncoderOutput
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.model.solvers import Sequences
from tests.model import builders

H = 5
ROWS = Sequences.of(torch.tensor([0, 2, 5], dtype=torch.int32))


def case() -> tuple[Tensor, Tensor, list[Tensor]]:
    """f(z), z, and the Jacobian of each of two sequences of 2 and 3 rows."""
    random = torch.Generator().manual_seed(0)
    maps = [torch.randn(n * H, n * H, generator=random, dtype=torch.float64) / 4 for n in (2, 3)]
    z = torch.randn(5, H, generator=random, dtype=torch.float64).requires_grad_()

    def f(z: Tensor) -> Tensor:
        parts = [torch.tanh(m @ x.flatten()).view_as(x) for m, x in zip(maps, z.split([2, 3]), strict=True)]
        return torch.cat(parts)

    whole = torch.autograd.functional.jacobian(f, z).reshape(5 * H, 5 * H)
    return f(z), z, [whole[: 2 * H, : 2 * H], whole[2 * H :, 2 * H :]]


def test_the_size_is_right_in_the_mean() -> None:
    f, z, blocks = case()
    seed_torch(0, "test")
    mean = torch.stack([jacobian_size(f, z).detach() for _ in range(4000)]).mean()
    assert float(mean) == pytest.approx(sum(float(b.square().sum()) for b in blocks) / (5 * H), rel=0.03)


def test_the_spectral_radius_is_that_of_each_sequence() -> None:
    f, z, blocks = case()
    seed_torch(0, "test")
    found = spectral_radius(f, z, ROWS)
    for radius, block in zip(found.tolist(), blocks, strict=True):
        assert radius == pytest.approx(float(torch.linalg.eigvals(block).abs().max()), rel=0.01)
    assert any(
        abs(torch.linalg.eigvals(b)[torch.linalg.eigvals(b).abs().argmax()].imag) > 0.1 for b in blocks
    )


def test_the_spectral_radius_of_an_untrained_block() -> None:
    """Its eigenvalues are many of nearly one size. Catches: 60 steps, the mean over whose later half is 1 to
    2 % too small."""
    model = Model(builders.config(SharingPlan.shared(2), initializer_range=0.05), {"mlm"}).double().eval()
    batch = builders.packed([8])
    found, expected = [], []

    class Look:
        def run(self, step, x, rows, depth, wanted, all_depths):  # type: ignore[no-untyped-def]
            with torch.no_grad():
                for _ in range(300):
                    x = step(1, x, x, rows, rows)
            x = x.detach().requires_grad_()
            sequences = Sequences.of(rows.cu_seqlens)
            for seed in range(3):
                seed_torch(seed, "test")
                found.extend(spectral_radius(step(1, x, x, rows, rows), x, sequences).tolist())
            dense = torch.autograd.functional.jacobian(lambda z: step(1, z, z, rows, rows), x)
            expected.append(float(torch.linalg.eigvals(dense.reshape(x.numel(), -1)).abs().max()))
            return EncoderOutput(x)

    model.encoder.loop = Look()
    with torch.enable_grad():
        model.encoder(batch)
    assert found == pytest.approx(expected * 3, rel=0.005)


def test_a_map_of_nothing_has_a_radius_of_nothing() -> None:
    z = torch.randn(5, H).requires_grad_()
    assert spectral_radius(0 * z, z, ROWS).tolist() == [0, 0]


def test_the_penalty_of_a_pass_has_a_gradient_that_makes_it_smaller() -> None:
    plan = SharingPlan.shared(30)
    model = builders.model(plan, solver="anderson", input_injection=True, initializer_range=0.2).train()
    assert isinstance(model.encoder.loop, FixedPoint)
    model.encoder.loop.penalised = True
    batch, sizes = builders.packed([5, 9, 2]), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(15):
        seed_torch(0, "draw")
        size = model.encoder(batch).equilibrium.jacobian
        assert size.requires_grad
        optimizer.zero_grad()
        size.backward()
        optimizer.step()
        sizes.append(size.item())
    assert sizes[-1] < 0.8 * sizes[0]
    model.eval()
    with torch.no_grad():
        assert model.encoder(batch).equilibrium.jacobian is None


def test_the_penalty_is_the_same_by_any_backend_and_with_recomputing() -> None:
    batch, found = builders.packed([5, 9, 2]), []
    for backend, recompute in (("plain", False), ("auto", False), ("auto", True)):
        plan = SharingPlan.shared(30)
        model = builders.model(plan, solver="anderson", input_injection=True, initializer_range=0.1).train()
        model.encoder.backend, model.encoder.recompute = backend, recompute
        model.encoder.loop.penalised = True  # type: ignore[attr-defined]
        seed_torch(0, "draw")
        size = model.encoder(batch).equilibrium.jacobian
        size.backward()
        gradient = model.encoder.attention[0].value.weight.grad
        found.append((size.item(), gradient))
    for size, gradient in found[1:]:
        assert size == pytest.approx(found[0][0], rel=1e-3)
        torch.testing.assert_close(gradient, found[0][1], rtol=0.02, atol=1e-4)
