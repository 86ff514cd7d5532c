"""Passes of pretraining on a GPU as graphs of kernels, where the card would wait for Python.

Forward and backward pass of a small model start some thousand kernels, which takes Python 40 ms, and a large
card six to compute (docs/decisions/036). Recorded once for a size of micro-batches they are started as a
whole. A graph reads a batch, the divisors of the losses and the weights where they lie, and adds to
gradients and sums that lie in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from albertine.model.backend.replay import Graphs, own_weights, recorded, timed
from albertine.model.model import Model
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.filling import MicroBatchSize, copy_into
from albertine.objectives.losses import pretraining_losses
from albertine.training.step import Instead, LossFunction, MicroBatch, add_up, never

SIGHTS = 2
"""A size is recorded when it is seen so often; before that its filled batches are computed as usual."""
WORTH = 0.9
"""A graph is kept that takes at most so much of the time of the pass it was recorded of; where one does not,
no larger batch is recorded either."""


def recorded_passes(model: Model, losses: LossFunction, device: torch.device) -> Instead:
    """For `training.train_step`. Nothing is recorded on a processor, with dropout, with another loss than
    that of masked words and pairs, and where depths are computed twice."""
    config = model.config
    dropouts = config.hidden_dropout_prob, config.attention_probs_dropout_prob
    dropout = any(dropouts) or (config.sentence_dropout and config.classifier_dropout_prob > 0)
    loop = config.positions not in ("learned", "rotary") or config.solves or config.halts
    if (
        device.type != "cuda"
        or losses is not pretraining_losses
        or dropout
        or loop
        or model.encoder.recompute
    ):
        return never
    return RecordedPasses(model, device)


class RecordedPasses:
    """Instead of passes whose kernels are started one by one; see `step.Instead`.

    Attributes:
        graphs: by size and names of the losses.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        self.graphs: Graphs[_Recording] = Graphs()
        self._model, self._device = model, device
        self._gradients = {p: torch.zeros_like(p) for p in model.parameters() if p.requires_grad}
        self._sights: Counter[tuple[MicroBatchSize, tuple[str, ...]]] = Counter()
        self._busy_from = 1 << 62  # tokens of a pass that keep the card busy without a graph

    def __call__(
        self, batch: MicroBatch, names: Sequence[str], divisors: Mapping[str, float], sums: Tensor
    ) -> bool:
        assert isinstance(batch, PretrainingBatch)
        whole = batch.packed.prefix is None and all(name in divisors for name in names)
        if not whole or self.graphs.failed:
            return False
        size = MicroBatchSize.of(batch, self._model.encoder.embeddings.longest)
        weights = own_weights(self._model)
        if size.tokens >= self._busy_from or weights is None:
            return False
        key, full = (size, tuple(names)), size.filled(batch)
        graph = self.graphs.get(key, weights)
        if graph is not None:
            self._replay(graph, key, partial(graph, full, divisors, sums))
            return True
        self._sights[key] += 1
        there = full.to(self._device)
        compute = partial(_computed, self._model, there, names, divisors, sums)
        if self._sights[key] < SIGHTS:
            compute()
        else:
            seconds = timed(compute, self._device)
            self.graphs.record(key, partial(_Recording, self._model, there, names, self._gradients, seconds))
        return True

    def _replay(self, graph: _Recording, key: Hashable, run: Callable[[], None]) -> None:
        """The second time also ask whether it was worth it; the first one brings a graph to the card."""
        graph.uses += 1
        if graph.uses != 2:
            run()
        elif timed(run, self._device) > WORTH * graph.without:
            del self.graphs.known[key]
            self._busy_from = min(self._busy_from, graph.tokens)


def _computed(
    model: Model, batch: PretrainingBatch, names: Sequence[str], divisors: Mapping[str, float], sums: Tensor
) -> None:
    add_up(pretraining_losses(model, batch), names, divisors, sums)


class _Recording:
    """One recorded pass.

    Args:
        batch: filled, on the device; becomes the place of the batches.
        gradients: where those of all graphs of the model lie.
        without: seconds of the pass when its kernels were started one by one.
    """

    def __init__(
        self,
        model: Model,
        batch: PretrainingBatch,
        names: Sequence[str],
        gradients: dict[nn.Parameter, Tensor],
        without: float,
    ) -> None:
        self.tokens, self.without, self.uses = batch.num_tokens, without, 0
        device = batch.packed.input_ids.device
        self._model, self._batch, self._names, self._gradients = model, batch, names, gradients
        self._sums = torch.zeros(len(names), 2, dtype=torch.float64, device=device)
        self._divisors = torch.ones(len(names), device=device)
        self._of: list[nn.Parameter] = []
        before = [gradient.clone() for gradient in gradients.values()]
        try:
            self._replay = recorded(self._run, device)
        finally:
            torch._foreach_copy_(list(gradients.values()), before)  # recording computes too

    def _run(self) -> None:
        """Add this pass to the gradients of all graphs; those of the model stay."""
        held = {p: p.grad for p in self._gradients}
        for p in held:
            p.grad = None
        self._sums.zero_()
        divisors = dict(zip(self._names, self._divisors, strict=True))
        try:
            add_up(pretraining_losses(self._model, self._batch), self._names, divisors, self._sums)
            self._of = [p for p in self._gradients if p.grad is not None]
            new = [p.grad for p in self._of if p.grad is not None]
            torch._foreach_add_([self._gradients[p] for p in self._of], new)
        finally:
            for p, gradient in held.items():
                p.grad = gradient

    def __call__(self, batch: PretrainingBatch, divisors: Mapping[str, float], sums: Tensor) -> None:
        copy_into(self._batch, batch)
        self._divisors.copy_(torch.tensor([divisors[name] for name in self._names]), non_blocking=True)
        self._lend()
        self._replay()
        sums += self._sums

    def _lend(self) -> None:
        """Let the gradients of the step be those that the graph adds to, as far as it has any."""
        if fresh := [self._gradients[p] for p in self._of if p.grad is None]:
            torch._foreach_zero_(fresh)
        for p in self._of:
            own = self._gradients[p]
            if p.grad is not None and p.grad is not own:
                own.copy_(p.grad)
            p.grad = own
