"""A step is a function of the model and the global batch, however the batch is cut up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from albertine.training.distributed import World
from albertine.training.optimizers import OptimizerKind, build_optimizer
from albertine.training.step import FastGradientMethod, StepReport, train_step
from tests.training.toy import Toy, ToyBatch, ToyPart, WithoutPairs, rows, toy_loss


def whole_batch(size: int = 24) -> ToyBatch:
    ids, labels = (torch.from_numpy(x) for x in rows(0, size))
    return ToyBatch(ids, labels)


def cut(batch: ToyBatch, sizes: list[int]) -> list[ToyBatch]:
    return [ToyBatch(i, n) for i, n in zip(batch.ids.split(sizes), batch.labels.split(sizes), strict=True)]


def mlm_only(model: nn.Module, batch: Any) -> dict[str, ToyPart]:
    return {"mlm": toy_loss(model, batch)["mlm"]}


def step(
    micro_batches: list[ToyBatch], kind: OptimizerKind = "lamb", dropout: float = 0.0, **changes: Any
) -> tuple[Toy, StepReport]:
    model = Toy(dropout).double()
    arguments: dict[str, Any] = {"lr": 0.1, "loss_fn": toy_loss} | changes
    loss_fn = arguments.pop("loss_fn")
    report = train_step(model, micro_batches, loss_fn, build_optimizer(model, kind), **arguments)
    return model, report


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.mark.parametrize("kind", ["lamb", "adamw"])
@pytest.mark.parametrize("sizes", [[12, 12], [2, 20, 2], [4] * 6])
def test_cutting_the_batch_changes_nothing(kind: OptimizerKind, sizes: list[int]) -> None:
    # The mlm part reads every row and so is cut anywhere; which rows the sentence part reads depends on the
    # cut.
    whole, parts = (step(b, kind, loss_fn=mlm_only) for b in ([whole_batch()], cut(whole_batch(), sizes)))
    torch.testing.assert_close(weights(parts[0]), weights(whole[0]), rtol=1e-9, atol=1e-11)
    assert parts[1].parts["mlm"].loss_sum == pytest.approx(whole[1].parts["mlm"].loss_sum)
    assert parts[1].grad_norm == pytest.approx(whole[1].grad_norm)
    assert parts[1].tokens == 24 and parts[1].parts["mlm"].count == 24


def test_a_part_that_its_batch_does_not_count_is_refused() -> None:
    """Its gradient would be left out without a word."""

    def loss(model: nn.Module, batch: Any) -> dict[str, ToyPart]:
        found = toy_loss(model, batch)
        return {**found, "other": found["mlm"]}

    with pytest.raises(KeyError, match="other"):
        step([whole_batch()], loss_fn=loss)


def test_a_rank_without_a_part_adds_as_many_numbers_as_the_others() -> None:
    """Catches: ranks that wait for each other with sums of different lengths."""
    heard: list[list[int]] = []

    class Heard(World):
        def add(self, tensor: torch.Tensor) -> torch.Tensor:
            heard[-1].append(tensor.numel())
            return tensor

    whole = whole_batch()
    for batch, loss in ((whole, toy_loss), (WithoutPairs(whole.ids, whole.labels), mlm_only)):
        heard.append([])
        step([batch], loss_fn=loss, world=Heard(size=2), parts=("mlm", "sentence"))
    assert heard[0] == heard[1] and len(heard[0]) > 2


def test_every_part_is_divided_by_its_own_count() -> None:
    batches = cut(whole_batch(), [4, 20])
    model, report = step(batches)
    reference = Toy(0.0).double()
    found = [toy_loss(reference, b) for b in batches]
    loss = sum(f["mlm"].loss_sum for f in found) / 24 + sum(f["sentence"].loss_sum for f in found) / 12
    torch.autograd.backward(loss)
    norm = torch.cat([p.grad.reshape(-1) for p in reference.parameters() if p.grad is not None]).norm()
    assert report.grad_norm == pytest.approx(float(norm))
    assert report.parts["sentence"].count == 12
    assert report.parts["mlm"].correct == sum(int(f["mlm"].correct) for f in found)
    assert not torch.equal(weights(model), weights(reference))


def test_a_weight_is_of_the_gradient_and_not_of_the_reported_sums() -> None:
    @dataclass(frozen=True)
    class Weighted(ToyBatch):
        weights = {"sentence": 0.25}  # noqa: RUF012

    batches = [Weighted(batch.ids, batch.labels) for batch in cut(whole_batch(), [4, 20])]
    _, report = step(batches)
    reference = Toy(0.0).double()
    found = [toy_loss(reference, b) for b in batches]
    sums = {name: sum(f[name].loss_sum for f in found) for name in ("mlm", "sentence")}
    torch.autograd.backward(sums["mlm"] / 24 + 0.25 * sums["sentence"] / 12)
    norm = torch.cat([p.grad.reshape(-1) for p in reference.parameters() if p.grad is not None]).norm()
    assert report.grad_norm == pytest.approx(float(norm))
    assert report.parts["sentence"].loss_sum == pytest.approx(float(sums["sentence"].detach()))
    assert (report.parts["sentence"].weight, report.parts["mlm"].weight) == (0.25, 1.0)
    assert report.grad_norm != pytest.approx(step(cut(whole_batch(), [4, 20]))[1].grad_norm)


def test_a_part_without_predictions_is_no_division_by_zero() -> None:
    _, report = step(cut(whole_batch(3), [1, 1, 1]))
    assert report.finite and report.parts["sentence"].count == 0 and report.parts["mlm"].count == 3


def test_clipping() -> None:
    _, loose = step([whole_batch()], "adamw", clip=None)
    limit = loose.grad_norm / 2
    seen: list[float] = []

    class Looking(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
            seen.append(float(torch.nn.utils.get_total_norm(grads)))

    for clip in (limit, 2 * loose.grad_norm):
        model = Toy(0.0).double()
        report = train_step(
            model, [whole_batch()], toy_loss, Looking(model.parameters(), lr=0), lr=0, clip=clip
        )
        assert report.grad_norm == pytest.approx(loose.grad_norm)
    assert seen == pytest.approx([limit, loose.grad_norm])


def poisoned(where: str) -> Callable[[nn.Module, Any], dict[str, ToyPart]]:
    def loss_fn(model: nn.Module, batch: Any) -> dict[str, ToyPart]:
        parts = toy_loss(model, batch)
        mlm = parts["mlm"]
        if where == "loss":
            return parts | {"mlm": mlm._replace(loss_sum=mlm.loss_sum * float("nan"))}
        if where == "loss alone":  # its gradient is finite
            return parts | {"mlm": mlm._replace(loss_sum=mlm.loss_sum + float("inf"))}
        # A loss that is finite with a gradient that is not: the root at zero.
        zero = (model.get_parameter("shared.weight") * 0).sum()
        return parts | {"mlm": mlm._replace(loss_sum=mlm.loss_sum + zero.sqrt())}

    return loss_fn


@pytest.mark.parametrize("where", ["loss", "loss alone", "gradient"])
@pytest.mark.parametrize("kind", ["lamb", "adamw"])
def test_a_step_that_is_not_finite_changes_nothing(where: str, kind: OptimizerKind) -> None:
    model = Toy(0.0)
    optimizer = build_optimizer(model, kind)
    assert train_step(model, [whole_batch()], toy_loss, optimizer, lr=0.1).finite
    before = weights(model)
    state = {p: {k: v.clone() for k, v in entry.items()} for p, entry in optimizer.state.items()}
    report = train_step(model, cut(whole_batch(), [12, 12]), poisoned(where), optimizer, lr=0.1, clip=1.0)
    assert not report.finite
    assert torch.equal(weights(model), before)
    for p, entry in state.items():
        assert all(torch.equal(optimizer.state[p][k], v) for k, v in entry.items())


def test_an_unused_parameter_does_not_decay_away() -> None:
    model, _ = step([whole_batch()])
    assert torch.equal(model.spare.weight, Toy(0.0).double().spare.weight)


def test_dropout_is_named_by_seed_step_and_micro_batch() -> None:
    batches = cut(whole_batch(), [12, 12])

    def norm(**changes: Any) -> float:
        torch.rand(7)  # whatever state the generator is in
        return step(batches, dropout=0.5, **changes)[1].grad_norm

    assert norm(step=3, seed=1) == norm(step=3, seed=1)
    assert len({norm(step=3, seed=1), norm(step=4, seed=1), norm(step=3, seed=2)}) == 3
    twice = cut(ToyBatch(whole_batch().ids.repeat(2), whole_batch().labels.repeat(2)), [24, 24])
    sums: list[float] = []

    def noting(model: nn.Module, batch: Any) -> dict[str, ToyPart]:
        parts = toy_loss(model, batch)
        sums.append(float(parts["mlm"].loss_sum.detach()))
        return parts

    step(twice, dropout=0.5, loss_fn=noting)
    assert sums[0] != sums[1]


def test_stopping_between_micro_batches_leaves_everything() -> None:
    model = Toy(0.0)
    before = weights(model)
    calls = []

    def between() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_step(
            model,
            cut(whole_batch(), [12, 12]),
            toy_loss,
            build_optimizer(model, "lamb"),
            lr=0.1,
            between=between,
        )
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("sizes", [[24], [12, 12], [2, 20, 2]])
def test_the_adversary_adds_the_gradient_at_the_worst_point_nearby(sizes: list[int]) -> None:
    reference = Toy(0.0).double()

    def gradients() -> list[torch.Tensor]:
        loss = toy_loss(reference, whole_batch())["mlm"].loss_sum / 24
        parameters = [p for p in reference.parameters() if p is not reference.spare.weight]
        return list(torch.autograd.grad(loss, parameters, allow_unused=True))  # type: ignore[arg-type]

    clean = gradients()
    table = reference.embedding.weight
    direction = clean[0]
    with torch.no_grad():
        table.add_(0.3 * direction / direction.norm())
    wanted = [a + b for a, b in zip(clean, gradients(), strict=True) if a is not None and b is not None]
    norm = torch.cat([g.reshape(-1) for g in wanted]).norm()

    model = Toy(0.0).double()
    before = model.embedding.weight.detach().clone()
    optimizer = build_optimizer(model, "adamw")
    adversary = FastGradientMethod(model.embedding.weight, 0.3)
    batches = cut(whole_batch(), sizes)
    report = train_step(model, batches, mlm_only, optimizer, lr=0.0, adversary=adversary)
    assert report.grad_norm == pytest.approx(float(norm), rel=1e-6)
    assert torch.equal(model.embedding.weight, before)
    assert report.parts["mlm"].count == 24


def test_the_table_comes_back_whatever_happens() -> None:
    model = Toy(0.0).double()
    before = model.embedding.weight.detach().clone()
    calls = 0

    def failing() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyError("stop")

    adversary = FastGradientMethod(model.embedding.weight, 1.0)
    optimizer = build_optimizer(model, "adamw")
    with pytest.raises(KeyError):
        train_step(model, [whole_batch()], mlm_only, optimizer, lr=0.1, adversary=adversary, between=failing)
    assert torch.equal(model.embedding.weight, before)


def test_a_group_has_its_own_share_of_the_rate() -> None:
    model = Toy(0.0).double()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    rate = {"embedding.weight": 0.5, "shared.weight": 0.0}
    optimizer = build_optimizer(model, "adamw", weight_decay=0.0, rate_of=lambda name: rate.get(name, 1.0))
    train_step(model, [whole_batch()], mlm_only, optimizer, lr=0.01)
    # Adam's first step has the length of the rate wherever there is a gradient.
    moved = {n: (p.detach() - before[n]).abs().max().item() for n, p in model.named_parameters()}
    assert moved["shared.weight"] == 0
    assert moved["embedding.weight"] == pytest.approx(0.005, rel=0.01)
    assert moved["shared.bias"] == pytest.approx(0.01, rel=0.01)


def test_the_adversary_drops_out_otherwise() -> None:
    """Where the table is not moved at all, only its draws differ from those of the plain pass."""

    def norm(dropout: float, epsilon: float | None) -> float:
        model = Toy(dropout).double()
        adversary = None if epsilon is None else FastGradientMethod(model.embedding.weight, epsilon)
        optimizer = build_optimizer(model, "adamw")
        report = train_step(model, [whole_batch()], mlm_only, optimizer, lr=0.0, adversary=adversary)
        return report.grad_norm

    assert norm(0.0, 0.0) == pytest.approx(2 * norm(0.0, None))
    assert norm(0.5, 0.0) != pytest.approx(2 * norm(0.5, None), rel=1e-3)


def test_the_adversary_follows_the_gradient_of_all_ranks_and_leaves_it_as_it_is() -> None:
    class Two(World):
        def add(self, tensor: torch.Tensor) -> torch.Tensor:
            return tensor.add_(torch.tensor([[0.0, 4.0]]))

    table = nn.Parameter(torch.zeros(1, 2))
    table.grad = torch.tensor([[3.0, 0.0]])
    with FastGradientMethod(table, 10.0).perturbed(Two(size=2)):
        assert table.tolist() == [[6.0, 8.0]]
    assert table.grad.tolist() == [[3.0, 0.0]] and not table.any()


def test_the_adversary_drops_out_otherwise_at_every_step() -> None:
    def drawn(number: int) -> list[Any]:
        model, seen = Toy(0.5).double(), list[Any]()
        model.dropout.register_forward_hook(lambda _, __, out: seen.append((out == 0).flatten().tolist()))
        adversary = FastGradientMethod(model.embedding.weight, 0.0)
        optimizer = build_optimizer(model, "adamw")
        train_step(model, [whole_batch()], mlm_only, optimizer, lr=0.0, step=number, adversary=adversary)
        return seen[2:]  # the plain pass drops out twice before

    assert drawn(3) == drawn(3) != drawn(4)
