"""LAMB against its formula written out in float64, and which parameters decay."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from albertine.errors import SettingsError
from albertine.training import lamb
from albertine.training.lamb import Lamb, _lamb
from albertine.training.optimizers import block_matrices, build_optimizer, is_excluded, parameter_groups
from tests.model import builders
from tests.training.toy import Toy


def written_out(
    weights: list[Tensor],
    gradients: list[list[Tensor]],
    rates: list[float],
    decayed: list[bool],
    decay: float,
) -> list[Tensor]:
    """LAMB of google-research/albert, a number at a time, in float64."""
    w = [x.double().clone() for x in weights]
    m, v = [torch.zeros_like(x) for x in w], [torch.zeros_like(x) for x in w]
    for step, rate in zip(gradients, rates, strict=True):
        for i, g in enumerate(step):
            g = g.double()
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g * g
            update = m[i] / (v[i].sqrt() + 1e-6)
            ratio = torch.tensor(1.0, dtype=torch.float64)
            if decayed[i]:
                update = update + decay * w[i]
                w_norm, u_norm = w[i].norm(), update.norm()
                if w_norm > 0 and u_norm > 0:
                    ratio = w_norm / u_norm
            w[i] = w[i] - rate * ratio * update
    return w


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
def test_lamb_is_the_formula(dtype: torch.dtype, tolerance: float) -> None:
    model = Toy().to(dtype)
    draws = torch.Generator().manual_seed(1)
    parameters = dict(model.named_parameters())
    decayed = [not is_excluded(name, p) for name, p in parameters.items()]
    assert any(decayed) and not all(decayed)
    start = [p.detach().clone() for p in parameters.values()]
    # Gradients from tiny to large: the ratio has no clamp that could hide the difference.
    gradients = [
        [torch.randn(p.shape, generator=draws, dtype=dtype) * 10 ** (step % 7 - 4) for p in start]
        for step in range(100)
    ]
    rates = [0.01 * (1 - step / 100) for step in range(100)]
    optimizer = build_optimizer(model, "lamb", weight_decay=0.02)
    for step, rate in zip(gradients, rates, strict=True):
        for p, g in zip(parameters.values(), step, strict=True):
            p.grad = g.clone()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    expected = written_out(start, gradients, rates, decayed, 0.02)
    for (name, p), e in zip(parameters.items(), expected, strict=True):
        error = float((p.detach().double() - e).norm() / e.norm())
        assert error <= tolerance, f"{name}: {error:.1e}"


def test_all_matrices_together_is_each_alone() -> None:
    """What an accelerator is given in one call, the CPU is given one by one."""
    draws = torch.Generator().manual_seed(2)
    group = {"betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01, "adapt": True, "lr": 0.1}
    tensors = [[torch.rand(n, 3, generator=draws) for n in (2, 5, 4)] for _ in range(5)]
    alone = [[t.clone() for t in kind] for kind in tensors]
    _lamb(*tensors, group)
    for one in zip(*alone, strict=True):
        _lamb(*([t] for t in one), group)
    for kind, other in zip(tensors, alone, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(kind, other, strict=True))


class OnCard(nn.Parameter):
    """A tensor that claims to be on a GPU."""

    is_cuda = True


@pytest.mark.parametrize(("kind", "calls"), [(nn.Parameter, [1, 1, 1]), (OnCard, [3])])
def test_a_card_is_given_all_matrices_at_once(
    kind: type[nn.Parameter], calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(lamb, "_lamb", lambda weights, *_: seen.append(len(weights)))
    weights = [kind(torch.ones(n, 3)) for n in (2, 5, 4)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    Lamb(weights).step()
    assert seen == calls


def test_lamb_of_a_parameter_that_lies_otherwise_in_memory() -> None:
    """The fused kernel walks through memory, so all that it is given must lie alike."""
    draws = torch.Generator().manual_seed(2)
    start = torch.randn(8, 6, generator=draws)
    gradients = [torch.randn(6, 8, generator=draws) for _ in range(3)]
    found = []
    for parameter in (nn.Parameter(start.t()), nn.Parameter(start.t().contiguous())):
        optimizer = Lamb([parameter], lr=0.1, weight_decay=0.01)
        for gradient in gradients:
            optimizer.zero_grad()
            (parameter * gradient).sum().backward()
            optimizer.step()
        found.append(parameter.detach())
    assert found[0].stride() != found[1].stride()
    torch.testing.assert_close(*found)


def test_lamb_ratio_is_one_where_a_norm_is_zero() -> None:
    zero = nn.Parameter(torch.zeros(2, 2))
    still = nn.Parameter(torch.ones(2, 2))
    optimizer = Lamb([zero, still], lr=0.5)
    zero.grad, still.grad = torch.ones(2, 2), torch.zeros(2, 2)
    optimizer.step()
    # The first moments are 0.1 and 0.001, without bias correction: u = 0.1 / (sqrt(0.001) + 1e-6).
    torch.testing.assert_close(zero.detach(), torch.full((2, 2), -0.5 * 0.1 / (0.001**0.5 + 1e-6)))
    assert torch.equal(still.detach(), torch.ones(2, 2))


def test_lamb_leaves_a_parameter_without_a_gradient_alone() -> None:
    model = Toy()
    before = model.spare.weight.detach().clone()
    optimizer = build_optimizer(model, "lamb")
    for name, p in model.named_parameters():
        p.grad = None if name.startswith("spare") else torch.ones_like(p)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    assert torch.equal(model.spare.weight, before)
    assert model.spare.weight not in optimizer.state


@pytest.mark.parametrize(
    ("name", "shape", "excluded"),
    [
        ("encoder.blocks.0.attention.query.weight", (4, 4), False),
        ("embeddings.word_embeddings.weight", (9, 4), False),
        ("encoder.blocks.0.attention.query.bias", (4,), True),
        ("embeddings.LayerNorm.weight", (4,), True),
        ("block.layer_norm.weight", (4, 4), True),
        ("mlm.bias", (9,), True),
        ("r_w_bias", (2, 4), True),
        ("scale", (4,), True),
        ("bias_free.weight", (4, 4), False),
    ],
)
def test_exclusions(name: str, shape: tuple[int, ...], excluded: bool) -> None:
    assert is_excluded(name, torch.zeros(shape)) is excluded


def test_every_trained_parameter_is_in_one_group() -> None:
    model = Toy()
    model.spare.weight.requires_grad_(False)
    groups = parameter_groups(model, 0.01)
    grouped = [p for group in groups for p in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {p for p in model.parameters() if p.requires_grad}
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0]


def test_what_begins_at_zero_grows_under_lamb() -> None:
    """In proportion to its own length it would not."""
    model, own = nn.Module(), nn.Module()
    own.up, model.own, model.weight = nn.Parameter(torch.zeros(8, 4)), own, nn.Parameter(torch.zeros(8, 4))
    optimizer = build_optimizer(model, "lamb", weight_decay=0.0)
    for _ in range(200):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * group["rate"]
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    assert own.up.abs().min() > 0.05
    assert {group["adapt"] for group in parameter_groups(model, 0.01)} == {True, False}


def test_gates_and_zero_output_projections_are_not_adapted_and_an_own_output_is() -> None:
    """Under Muon gates and the output matrix are AdamW's, as embeddings are."""
    model = builders.model(head_gate=True, output="own")
    names = {id(p): name for name, p in model.named_parameters()}

    def adapted(**options: bool) -> dict[str, bool]:
        groups = parameter_groups(model, 0.01, **options)  # type: ignore[arg-type]
        return {names[id(p)]: group["adapt"] for group in groups for p in group["params"]}

    gate, output, projections = (
        "encoder.attention.0.gate.weight",
        "mlm.output",
        ("encoder.attention.0.output.weight", "encoder.feed_forward.0.output.weight"),
    )
    for zero in (False, True):
        found = adapted(zero_outputs=zero)
        assert found[output] and not found[gate]
        assert [found[name] for name in projections] == [not zero] * 2
    assert not {gate, output} & block_matrices(model).keys()
    assert not is_excluded(output, model.mlm.output) and not is_excluded(gate, torch.zeros(4, 24))  # type: ignore


def test_adamw_decays_matrices_only() -> None:
    model = Toy()
    optimizer = build_optimizer(model, "adamw", weight_decay=0.5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    for name, p in model.named_parameters():
        factor = 1.0 if is_excluded(name, p) else 0.95
        torch.testing.assert_close(p.detach(), before[name] * factor)


def test_unknown_optimiser() -> None:
    with pytest.raises(SettingsError, match="lamb or adamw"):
        build_optimizer(Toy(), "sgd")  # type: ignore[arg-type]


def test_adamw_has_the_constants_of_the_paper() -> None:
    groups = build_optimizer(Toy(), "adamw").param_groups
    assert {(group["betas"], group["eps"]) for group in groups} == {((0.9, 0.999), 1e-6)}
