"""One optimiser update as a function of the model and its micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from albertine.core.randomness import seed_torch
from albertine.training.distributed import World, trainable


class LossPart(Protocol):
    """A part of a loss, summed over its predictions: loss in nats (float32 with gradient), number of
    predictions, number of correct ones.
    """

    @property
    def loss_sum(self) -> Tensor: ...
    @property
    def count(self) -> Any: ...
    @property
    def correct(self) -> Tensor: ...


class MicroBatch(Protocol):
    """What a step reads of a micro-batch: predictions of each part of its loss, and its number of tokens."""

    @property
    def counts(self) -> dict[str, int]: ...
    @property
    def num_tokens(self) -> int: ...
    def to(self, device: torch.device | str) -> Any: ...


@runtime_checkable
class WeightedMicroBatch(Protocol):
    """A micro-batch that names the weights of parts of the loss; the same in all micro-batches of a step."""

    @property
    def weights(self) -> Mapping[str, float]: ...


LossFunction = Callable[[Any, Any], Mapping[str, LossPart]]
"""From the model and a micro-batch to the parts of the loss by name."""

MetricSums = Mapping[str, tuple[float, float]]
"""(sum, count) by metric; the metric is their quotient. Every rank has the same names."""


@runtime_checkable
class RecurrentState(Protocol):
    """A loss function with tensors that the next step reads, such as the memory of the preceding segments.
    They are part of every checkpoint.
    """

    @property
    def nbytes(self) -> int:
        """Upper bound of the bytes of `tensors`."""
        ...

    def settle(self) -> None:
        """Commit what the last step left. An unfinished step is never committed."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """The committed tensors of all ranks by name. A collective call: every rank makes it."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the tensors of a checkpoint."""
        ...


class MicroBatchRunner(Protocol):
    """Runs forward and backward pass of one micro-batch."""

    def __call__(
        self, batch: MicroBatch, names: Sequence[str], divisors: Mapping[str, float], sums: Tensor
    ) -> None:
        """Add the gradients of a micro-batch to the parameters' and its loss to `sums`; see `backward`."""
        ...


@dataclass(frozen=True)
class EagerRunner:
    """Calls the loss function and autograd, kernel by kernel."""

    model: nn.Module
    loss_fn: LossFunction
    device: torch.device

    def __call__(
        self, batch: MicroBatch, names: Sequence[str], divisors: Mapping[str, float], sums: Tensor
    ) -> None:
        backward(self.loss_fn(self.model, batch.to(self.device)), names, divisors, sums)


@dataclass(frozen=True)
class PartSum:
    """A part of the loss over all micro-batches and ranks: sum in nats without the weight, predictions,
    correct predictions, and the weight in the total loss."""

    loss_sum: float
    count: int
    correct: int
    weight: float = 1.0


@dataclass(frozen=True)
class StepReport:
    """The result of a step in host numbers, the same on every rank.

    Attributes:
        parts: the sums of each part of the loss.
        grad_norm: Euclidean norm of the gradient before clipping.
        tokens: tokens of all ranks, without padding.
        finite: whether loss and gradient were finite; if not, nothing was changed.
        extra: metrics of the passes beside the loss.
    """

    parts: dict[str, PartSum]
    grad_norm: float
    tokens: int
    finite: bool
    extra: MetricSums = field(default_factory=dict)


@dataclass(frozen=True)
class FastGradientMethod:
    """The fast gradient method (Miyato et al. 2017): word embeddings are perturbed by `epsilon` along their
    gradient, and the loss at that point is minimised as well.

    Attributes:
        table: the parameter that is perturbed. epsilon: Euclidean norm of the perturbation.
    """

    table: nn.Parameter
    epsilon: float

    @contextmanager
    def perturbed(self, world: World) -> Iterator[None]:
        """Within, the table is perturbed along the gradient of all ranks; afterwards it is restored."""
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
    runner: MicroBatchRunner | None = None,
    extra_metrics: Callable[[], MetricSums] = dict,
) -> StepReport:
    """Forward and backward over the micro-batches, one update of the weights.

    Each part of the loss is divided by its number of predictions over all micro-batches and ranks, so the
    split of a global batch never changes the result; the total is their sum, with the weights of a
    `WeightedMicroBatch`. A step whose loss or gradient is not finite changes
    nothing; all ranks make the same decision, because it depends on sums over all ranks.

    Args:
        micro_batches: this rank's; their union over the ranks is the global batch.
        loss_fn: returns the parts of the loss of a micro-batch, named as in its `counts`.
        lr: learning rate of this update.
        step, seed: keys of the dropout draws, together with rank and micro-batch; no generator state
            outlives the call.
        clip: largest gradient norm, or None.
        parts: names of the parts; required only where a rank may have no micro-batch that has them.
        between: called before each micro-batch. An exception in it leaves the weights unchanged.
        adversary: add the gradient at a perturbed point of its table.
        runner: of every pass but those of the adversary; default: `EagerRunner`.
        extra_metrics: called once, after all passes.
    """
    world = world or World()
    run = EagerRunner(model, loss_fn, world.device) if runner is None else runner
    names = sorted(parts if parts is not None else {n for b in micro_batches for n in b.counts})
    here = [float(sum(b.counts.get(n, 0) for b in micro_batches)) for n in names]
    *counts, tokens = world.add_numbers([*here, float(sum(b.num_tokens for b in micro_batches))])
    total = dict(zip(names, counts, strict=True))
    weights = {n: w for b in micro_batches if isinstance(b, WeightedMicroBatch) for n, w in b.weights.items()}
    divisors = {name: count / weights.get(name, 1.0) for name, count in total.items() if count}

    optimizer.zero_grad(set_to_none=True)
    sums = torch.zeros(len(names), 2, dtype=torch.float64, device=world.device)
    for index, batch in enumerate(micro_batches):
        between()
        seed_torch(seed, "dropout", step, world.rank, index)
        run(batch, names, divisors, sums)
    if adversary is not None:
        with adversary.perturbed(world):
            for index, batch in enumerate(micro_batches):
                between()
                seed_torch(seed, "adversarial dropout", step, world.rank, index)
                backward(loss_fn(model, batch.to(world.device)), names, divisors, torch.zeros_like(sums))

    parameters = trainable(model)
    used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.float64, device=world.device)
    world.add_gradients(parameters)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    norm = norm.double().to(world.device)
    broken = (~torch.isfinite(norm)).double()
    # All numbers of a step go to the host in one transfer, its only device synchronisation. It precedes the
    # update, so that a step that is not finite changes nothing.
    flat = world.add(torch.cat([sums.view(-1), broken.view(1), used]))
    numbers, grad_norm = flat.tolist(), float(norm)
    loss_sums, (flag, *users) = numbers[: 2 * len(names)], numbers[2 * len(names) :]
    finite = flag == 0 and all(math.isfinite(x) for x in loss_sums)
    if finite:
        for parameter, count in zip(parameters, users, strict=True):
            if not count:  # unused on every rank: without a gradient it has no weight decay
                parameter.grad = None
        too_long = clip is not None and grad_norm > clip
        _update(optimizer, parameters, lr, clip / grad_norm if clip is not None and too_long else None)
    optimizer.zero_grad(set_to_none=True)
    pairs = zip(names, loss_sums[::2], loss_sums[1::2], strict=True)
    found = {
        name: PartSum(loss, int(total[name]), int(correct), weights.get(name, 1.0))
        for name, loss, correct in pairs
    }
    return StepReport(found, grad_norm, int(tokens), finite, _over_ranks(extra_metrics(), world))


def means(sums: MetricSums, world: World) -> dict[str, float]:
    """The metrics over all ranks; one without a count is left out."""
    return {name: total / count for name, (total, count) in _over_ranks(sums, world).items() if count}


def _over_ranks(sums: MetricSums, world: World) -> dict[str, tuple[float, float]]:
    """Sums and counts over all ranks."""
    if not sums:
        return {}
    numbers = world.add_numbers([x for pair in sums.values() for x in pair])
    return dict(zip(sums, zip(numbers[::2], numbers[1::2], strict=True), strict=True))


def backward(
    losses: Mapping[str, LossPart], names: Sequence[str], divisors: Mapping[str, Any], sums: Tensor
) -> None:
    """Backward pass of one micro-batch's share of the loss.

    Args:
        losses: the parts of the loss of the micro-batch.
        divisors: number of predictions of each part over all micro-batches and ranks, over its weight in the
            total loss, where there are any.
        sums: float64 (names, 2), to which loss in nats and number of correct predictions are added.
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
