"""One optimiser update as a function of the model and its micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from albertine.core.randomness import seed_torch
from albertine.training.distributed import World, trainable


class LossPart(Protocol):
    """A part of a loss as sums over its predictions: nats (float32 with gradient), how many, how many
    right.
    """

    @property
    def loss_sum(self) -> Tensor: ...
    @property
    def count(self) -> Any: ...
    @property
    def correct(self) -> Tensor: ...


class MicroBatch(Protocol):
    """What a step needs of a micro-batch: how many predictions each part of its loss sums, and how many
    tokens it has.
    """

    @property
    def counts(self) -> dict[str, int]: ...
    @property
    def num_tokens(self) -> int: ...
    def to(self, device: torch.device | str) -> Any: ...


LossFunction = Callable[[Any, Any], Mapping[str, LossPart]]

Instead = Callable[[MicroBatch, Sequence[str], Mapping[str, float], Tensor], bool]
"""What `add_up` does of a micro-batch, done otherwise; False where it was not, and nothing was done. (The
micro-batch where it was made, names, divisors, sums.)"""


def never(*_: object) -> bool:
    """Every pass as it stands here."""
    return False


Told = Callable[[], Mapping[str, tuple[float, float]]]
"""What this rank's passes told beside the loss since the last call: (sum, count) by name, the same names on
every rank."""


@dataclass(frozen=True)
class PartSum:
    """A part of the loss over all micro-batches and ranks: sum in nats, number of predictions, number
    right.
    """

    loss_sum: float
    count: int
    correct: int


@dataclass(frozen=True)
class StepReport:
    """What a step did, in plain numbers that are the same on every rank.

    Attributes:
        parts: the sums of each part of the loss.
        grad_norm: Euclidean norm of the whole gradient before clipping.
        tokens: real tokens read by all ranks.
        finite: whether loss and gradient were finite; if not, nothing was changed.
        told: what the passes told beside the loss, sum and count.
    """

    parts: dict[str, PartSum]
    grad_norm: float
    tokens: int
    finite: bool
    told: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class FastGradientMethod:
    """The fast gradient method (Miyato et al. 2017): the word vectors are moved by `epsilon` along their
    gradient, and the loss there is minimised as well.

    Attributes:
        table: the parameter that is moved. epsilon: Euclidean length of the move, over the whole table.
    """

    table: nn.Parameter
    epsilon: float

    @contextmanager
    def moved(self, world: World) -> Iterator[None]:
        """The table at its worst point nearby, by the gradient of all ranks; then back again."""
        gradient = torch.zeros_like(self.table) if self.table.grad is None else self.table.grad.clone()
        world.add(gradient)
        norm = gradient.norm()
        before = self.table.detach().clone()
        if bool(torch.isfinite(norm)) and bool(norm > 0):
            with torch.no_grad():
                self.table.add_(gradient, alpha=self.epsilon / float(norm))
        try:
            yield
        finally:
            with torch.no_grad():
                self.table.copy_(before)


def train_step(
    model: nn.Module,
    micro_batches: Sequence[MicroBatch],
    loss_fn: LossFunction,
    optimizer: Optimizer,
    *,
    lr: float,
    step: int = 0,
    seed: int = 0,
    clip: float | None = None,
    world: World | None = None,
    parts: Sequence[str] | None = None,
    between: Callable[[], None] = lambda: None,
    adversary: FastGradientMethod | None = None,
    told: Told = dict,
    instead: Instead = never,
) -> StepReport:
    """Forward and backward over the micro-batches, one update of the weights.

    Each part of the loss is divided by its number of predictions over all micro-batches and ranks, so the
    way a global batch is cut up never changes the result. A step whose loss or gradient is not finite
    changes nothing; all ranks decide so together, because they decide on sums over all ranks.

    Args:
        micro_batches: this rank's; their union over the ranks is the global batch.
        loss_fn: gives the parts of the loss of a micro-batch, named as in its `counts`.
        lr: learning rate of this update.
        step, seed: name the dropout draws, together with rank and micro-batch; no generator state outlives
            the call.
        clip: largest gradient norm, or None.
        parts: names of the parts; needed only where a rank can have no micro-batch to learn them from.
        between: called before each micro-batch. What it raises leaves the weights as they were.
        adversary: add the gradient at the point where the table is moved to the loss' disadvantage.
        told: asked once, when all passes are over.
        instead: asked first for every pass, but those of the adversary.
    """
    world = world or World()
    names = sorted(parts if parts is not None else {n for b in micro_batches for n in b.counts})
    here = [float(sum(b.counts.get(n, 0) for b in micro_batches)) for n in names]
    *counts, tokens = world.add_numbers([*here, float(sum(b.num_tokens for b in micro_batches))])
    total = dict(zip(names, counts, strict=True))
    divisors = {name: count for name, count in total.items() if count}

    optimizer.zero_grad(set_to_none=True)
    sums = torch.zeros(len(names), 2, dtype=torch.float64, device=world.device)
    for index, batch in enumerate(micro_batches):
        between()
        seed_torch(seed, "dropout", step, world.rank, index)
        if not instead(batch, names, divisors, sums):
            add_up(loss_fn(model, batch.to(world.device)), names, divisors, sums)
    if adversary is not None:
        with adversary.moved(world):
            for index, batch in enumerate(micro_batches):
                between()
                seed_torch(seed, "adversarial dropout", step, world.rank, index)
                losses = loss_fn(model, batch.to(world.device))
                add_up(losses, names, divisors, torch.zeros_like(sums))

    parameters = trainable(model)
    used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.float64, device=world.device)
    world.add_gradients(parameters)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    norm = norm.double().to(world.device)
    broken = (~torch.isfinite(norm)).double()
    # Everything a step tells goes to the host in one transfer, the only wait for the device in a step. It
    # has to come before the update: that is what makes a step that is not finite harmless.
    flat = world.add(torch.cat([sums.view(-1), broken.view(1), used]))
    numbers, grad_norm = flat.tolist(), float(norm)
    loss_sums, (flag, *users) = numbers[: 2 * len(names)], numbers[2 * len(names) :]
    finite = flag == 0 and all(math.isfinite(x) for x in loss_sums)
    if finite:
        for parameter, count in zip(parameters, users, strict=True):
            if not count:  # not part of the loss on any rank: it must not decay away
                parameter.grad = None
        too_long = clip is not None and grad_norm > clip
        _update(optimizer, parameters, lr, clip / grad_norm if clip is not None and too_long else None)
    optimizer.zero_grad(set_to_none=True)
    pairs = zip(names, loss_sums[::2], loss_sums[1::2], strict=True)
    found = {name: PartSum(loss, int(total[name]), int(correct)) for name, loss, correct in pairs}
    return StepReport(found, grad_norm, int(tokens), finite, _over_ranks(told(), world))


def means(told: Mapping[str, tuple[float, float]], world: World) -> dict[str, float]:
    """The means over all ranks of what was told."""
    return {name: total / count for name, (total, count) in _over_ranks(told, world).items() if count}


def _over_ranks(told: Mapping[str, tuple[float, float]], world: World) -> dict[str, tuple[float, float]]:
    """Sums and counts over all ranks."""
    if not told:
        return {}
    numbers = world.add_numbers([x for pair in told.values() for x in pair])
    return dict(zip(told, zip(numbers[::2], numbers[1::2], strict=True), strict=True))


def add_up(
    losses: Mapping[str, LossPart], names: Sequence[str], divisors: Mapping[str, Any], sums: Tensor
) -> None:
    """Add the gradient of a micro-batch's share to the gradients, and its sums to `sums`.

    Args:
        divisors: of the parts that have any predictions, how many all micro-batches and ranks have together.
        sums: nats and how many are right, float64 (names, 2).
    """
    rows = {name: row for row, name in enumerate(names)}
    terms = [part.loss_sum / divisors[name] for name, part in losses.items() if name in divisors]
    if terms:
        torch.autograd.backward(torch.stack(terms).sum())
    for name, part in losses.items():
        sums[rows[name]] += torch.stack([part.loss_sum.detach().double(), part.correct.double()])


def _update(optimizer: Optimizer, parameters: Sequence[nn.Parameter], lr: float, scale: float | None) -> None:
    if scale is not None:
        torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], scale)
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("rate", 1.0)
    optimizer.step()


class RecurrentState(Protocol):
    """Tensors that the next step reads, and that a checkpoint therefore holds."""

    @property
    def nbytes(self) -> int:
        """Most bytes of `tensors`."""
        ...

    def settle(self) -> None:
        """The step was made. What it left counts from here on; what an unfinished step left never does."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Those of all processes by name, after the last step that was settled. Every process calls this."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what a checkpoint holds."""
        ...
