"""Muon against an exact singular value decomposition and torch's own, and which parameters it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from albertine.core.precision import Precision
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from albertine.training.distributed import World
from albertine.training.muon import Muon, orthogonal
from albertine.training.optimizers import block_matrices, build_optimizer
from tests.model import builders
from tests.training.toy import WIDTH, BlockToy, Toy

SHAPES = [(24, 24), (12, 48), (48, 12)]


def matrix(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def groups(weight: nn.Parameter, matrices: int = 1, decay: float = 0.0) -> list[dict[str, object]]:
    return [{"params": [weight], "matrices": matrices, "weight_decay": decay}]


@pytest.mark.parametrize("shape", SHAPES)
def test_only_the_singular_values_change_and_all_become_about_one(shape: tuple[int, int]) -> None:
    """From singular values as far apart as is promised; with one step fewer the least ends at 0.4."""
    u, _, vt = torch.linalg.svd(matrix(*shape).double(), full_matrices=False)
    s = torch.logspace(0, -2.5, u.shape[1], dtype=torch.float64)
    x = u @ (s / s.norm()).diag() @ vt
    assert 0.001 < s[-1] / s.norm() < 0.003
    inside = u.T @ orthogonal(1e-3 * x.float()).double() @ vt.T
    values = inside.diagonal()
    assert (inside - values.diag()).abs().max() <= 1e-4, "another direction than U and V"
    assert values.min() >= 0.65 and values.max() <= 1.21


def test_a_matrix_of_zeros_has_no_direction() -> None:
    assert torch.equal(orthogonal(torch.zeros(3, 4)), torch.zeros(3, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_several_at_once_are_each_alone(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """What an accelerator is given in one call."""
    x = torch.stack([matrix(*shape, seed=seed) * 10**seed for seed in range(3)]).to(dtype)
    close = {"rtol": 0, "atol": 1e-5 if dtype == torch.float32 else 0.03}
    torch.testing.assert_close(orthogonal(x), torch.stack([orthogonal(part) for part in x]), **close)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_torchs_muon_to_the_bit(shape: tuple[int, int]) -> None:
    ours, theirs = (nn.Parameter(matrix(*shape)) for _ in range(2))
    one = Muon(groups(ours, decay=0.1), precision="bfloat16")
    two = torch.optim.Muon([theirs], weight_decay=0.1)
    for step in range(5):
        ours.grad, theirs.grad = (matrix(*shape, seed=step + 7) for _ in range(2))
        one.param_groups[0]["lr"] = two.param_groups[0]["lr"] = 0.02 / (1 + step)
        one.step()
        two.step()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_update_is_of_the_documented_size(precision: Precision) -> None:
    """Four times as many rows as columns: twice the rate; decay is of the rate itself."""
    weight = nn.Parameter(matrix(32, 8))
    before = weight.detach().clone()
    weight.grad = matrix(32, 8, seed=2)
    optimizer = Muon(groups(weight, decay=0.5), lr=0.1, precision=precision)
    optimizer.step()
    assert not any(torch.equal(weight, x) for x in (before, before * 0.95))
    update = (before * 0.95 - weight.detach()) / (0.1 * 2)
    torch.testing.assert_close(
        update, orthogonal(weight.grad), rtol=0, atol=1e-5 if precision == "float32" else 0.02
    )


@dataclass(frozen=True)
class Alone(World):
    """A process without the others' tensors, which keeps its own."""

    sent: list[torch.Tensor] = field(default_factory=list)

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        self.sent.append(tensor.clone())
        return tensor


@pytest.mark.parametrize("size", [2, 3, 5])
def test_processes_share_the_matrices_and_each_is_one_processs(size: int) -> None:
    shapes = [(6, 6)] * 3 + [(4, 8)] + [(8, 4)] * 2
    sent = []
    for rank in range(size):
        weights = [nn.Parameter(matrix(*shape)) for shape in shapes]
        for seed, weight in enumerate(weights):
            weight.grad = matrix(*weight.shape, seed=seed)
        world = Alone(rank, size)
        group = [{"params": weights, "matrices": 1}]
        Muon(group, lr=0.1, momentum=0.0, precision="float32", world=world).step()
        sent.append([part for together in world.sent for part in together])
    whose = [[bool(part.any()) for part in parts] for parts in sent]
    assert all(sum(column) == 1 for column in zip(*whose, strict=True)), "each by one process"
    assert max(map(sum, whose)) <= -(-len(shapes) // size), "and none has more than its share"
    for number, shape in enumerate(shapes):
        every = sum(parts[number] for parts in sent)
        torch.testing.assert_close(every, orthogonal(matrix(*shape, seed=number)), rtol=0, atol=1e-6)


def test_stacked_matrices_are_taken_each_by_itself() -> None:
    halves = [nn.Parameter(matrix(8, 8, seed=seed)) for seed in (1, 2)]
    both = nn.Parameter(torch.cat([p.detach() for p in halves]))
    for p, seed in zip(halves, (3, 4), strict=True):
        p.grad = matrix(8, 8, seed=seed) * 10 ** (2 * seed)  # the second one would drown the first
    both.grad = torch.cat([p.grad for p in halves])
    for weights, matrices in (([both], 2), (halves, 1)):
        Muon([{"params": weights, "matrices": matrices}], lr=0.1, precision="float32").step()
    torch.testing.assert_close(both, torch.cat(halves), rtol=0, atol=1e-6)


def test_all_else_is_torchs_adamw_to_the_bit() -> None:
    """Biases and norms without decay, at the share of the rate."""
    model, other = Toy(), Toy()
    optimizer = build_optimizer(model, "muon", weight_decay=0.1)
    theirs = build_optimizer(other, "adamw", weight_decay=0.1, betas=(0.9, 0.98), eps=1e-8)
    assert isinstance(theirs, AdamW)
    for step in range(4):
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            p.grad, q.grad = (1e-7 * matrix(*p.shape, seed=step) for _ in range(2))
        for maker, rate in ((optimizer, 0.02), (theirs, 0.02 * 0.15)):
            for group in maker.param_groups:
                group["lr"] = rate * group["rate"]
            maker.step()
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q), name


def test_what_has_no_gradient_stays_as_it_is() -> None:
    model = BlockToy()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = build_optimizer(model, "muon", weight_decay=0.5)
    model.encoder["feed_forward"][0].output.weight.grad = torch.ones(WIDTH, 2 * WIDTH)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {"encoder.feed_forward.0.output.weight"} and len(optimizer.state) == 1


def test_muon_takes_every_matrix_of_the_blocks_and_no_other() -> None:
    """A new layer in the blocks fails here, so that its optimizer is chosen deliberately."""
    config = replace(preset("albert-tiny-zh"), vocab_size=50, plan=SharingPlan.unshared(2))
    model = Model(config, ("mlm", "sop"))
    blocks = ("encoder.attention.", "encoder.feed_forward.")
    taken = {name for name, p in model.named_parameters() if p.ndim == 2 and name.startswith(blocks)}
    assert len(taken) == 2 * 6 and block_matrices(model) == dict.fromkeys(taken, 1)
    assert block_matrices(nn.ModuleDict({"base": model})).keys() == {f"base.{name}" for name in taken}


def test_the_positions_of_relative_attention_are_left_to_adamw() -> None:
    """They turn sinusoids of distances into keys, as embeddings do with words."""
    model = builders.model(SharingPlan.unshared(2), positions="relative")
    places = ("encoder.attention.", "encoder.feed_forward.")
    every = {name for name, p in model.named_parameters() if p.ndim == 2 and name.startswith(places)}
    vectors = {name for name in every if ".biases." in name}  # (N, D), added to each head's queries
    positions = {name for name in every if name.endswith(".position.weight")}
    assert len(positions) == 2 and block_matrices(model).keys() == every - vectors - positions


def test_an_input_injection_is_three_matrices() -> None:
    model = builders.model(input_injection=True)
    found = block_matrices(model)
    assert found["encoder.injection.weight"] == 3 and set(found.values()) == {1, 3}


def test_vectors_of_depths_and_low_rank_factors_are_no_matrices() -> None:
    model = BlockToy()
    block = model.encoder["feed_forward"][0]
    block.scales, block.lora_a = nn.Parameter(torch.ones(3, WIDTH)), nn.Linear(WIDTH, 2, bias=False)
    block.layer_norm = nn.Module()
    block.layer_norm.weight = nn.Parameter(torch.ones(3, WIDTH))  # one for every depth
    place = "encoder.feed_forward.0"
    assert block_matrices(model) == {f"{place}.intermediate.weight": 2, f"{place}.output.weight": 1}


def test_rates_and_decay_of_the_groups() -> None:
    model = BlockToy()
    model.spare.weight.requires_grad_(False)

    def rate_of(name: str) -> float:
        return 0.5 if name.startswith("parity") else 1.0

    optimizer = build_optimizer(model, "muon", weight_decay=0.1, rate_of=rate_of, adamw_share=0.2)
    found = {
        name: (group["matrices"], group["rate"], group["weight_decay"])
        for group in optimizer.param_groups
        for name, p in model.named_parameters()
        if any(p is q for q in group["params"])
    }
    place = "encoder.feed_forward.0"
    assert found == {
        "embedding.weight": (0, 0.2, 0.1),
        f"{place}.intermediate.weight": (2, 1.0, 0.1),
        f"{place}.intermediate.bias": (0, 0.2, 0.0),
        f"{place}.output.weight": (1, 1.0, 0.1),
        f"{place}.output.bias": (0, 0.2, 0.0),
        "LayerNorm.weight": (0, 0.2, 0.0),
        "LayerNorm.bias": (0, 0.2, 0.0),
        "parity.weight": (0, 0.1, 0.1),
        "parity.bias": (0, 0.1, 0.0),
        "spare.bias": (0, 0.2, 0.0),
    }
    default = build_optimizer(model, "muon")
    assert {g["rate"] for g in default.param_groups} == {1.0, 0.15}
    assert math.isclose(0.02 * 0.15, 0.003)


def test_the_format_of_the_products_is_what_the_processor_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bfloat16 is emulated a step would take eight times as long."""
    seen: list[torch.dtype] = []
    monkeypatch.setattr("albertine.training.muon.orthogonal", lambda x: (seen.append(x.dtype), x)[1])
    for fast in (True, False):
        monkeypatch.setattr("albertine.core.precision.fast_bfloat16", lambda device, fast=fast: fast)
        for precision in ("auto", "float32"):
            weight = nn.Parameter(matrix(4, 4))
            weight.grad = matrix(4, 4)
            Muon(groups(weight), lr=0.1, precision=precision).step()
    assert seen == [torch.bfloat16, torch.float32, torch.float32, torch.float32]
