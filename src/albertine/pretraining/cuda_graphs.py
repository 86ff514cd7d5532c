"""Passes of pretraining on a GPU as graphs of kernels, where the card would wait for Python.

Forward and backward pass of a small model start some thousand kernels, which takes Python 40 ms, and a large
card ten to compute (docs/decisions/036). Recorded once for a size of micro-batches they are started as a
whole. A graph reads a batch, the divisors of the losses and the weights where they lie, and adds to
gradients and sums that lie in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from albertine.core.precision import compute_format
from albertine.model.backend.cuda import recordable
from albertine.model.backend.cuda_graphs import Graphs, own_weights, peak_share, recorded
from albertine.model.model import Model
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses
from albertine.objectives.shape_buckets import MicroBatchSize, copy_into
from albertine.training.step import Instead, LossFunction, MicroBatch, add_up, never

MOST = 1 << 24
"""Numbers of a state (tokens by hidden size): with more, any card is busy for longer than its kernels take to
start."""
ROOM = 0.25
"""Of the card's memory a pass may take so much to be recorded: what a graph takes nobody else can have."""


def cuda_graph_runner(model: Model, losses: LossFunction, device: torch.device) -> Instead:
    """For `training.train_step`. Nothing is recorded on a processor, with dropout, with another loss than
    that of masked words and pairs, where depths are computed twice, and where attention is computed padded,
    whose tables would grow with what is filled up."""
    if device.type != "cuda" or losses is not pretraining_losses or model.encoder.recompute:
        return never
    config = model.config
    dropouts = config.hidden_dropout_prob, config.attention_probs_dropout_prob
    dropout = any(dropouts) or (config.sentence_dropout and config.classifier_dropout_prob > 0)
    form = compute_format(model.encoder.precision, model.encoder.embeddings.word.weight, True)
    return never if dropout or not recordable(model.encoder, form) else CudaGraphRunner(model, device)


Key = tuple[MicroBatchSize, tuple[str, ...]]


class CudaGraphRunner:
    """Instead of passes whose kernels are started one by one; see `step.Instead`. Whether a micro-batch is
    filled up hangs on it alone, so that a run that was interrupted computes what one that was not does.

    Attributes:
        graphs: by size and names of the losses.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        self.graphs: Graphs[_Recording] = Graphs()
        self._model, self._device = model, device
        self._shares: dict[Key, float] = {}  # of the card's memory that a pass takes

    @cached_property
    def _gradients(self) -> dict[nn.Parameter, Tensor]:
        return {p: torch.zeros_like(p) for p in self._model.parameters() if p.requires_grad}

    def __call__(
        self, batch: MicroBatch, names: Sequence[str], divisors: Mapping[str, float], sums: Tensor
    ) -> bool:
        assert isinstance(batch, PretrainingBatch)
        whole = batch.packed.prefix is None and all(name in divisors for name in batch.counts)
        small = batch.num_tokens * self._model.config.hidden_size <= MOST
        weights = own_weights(self._model) if whole and small else None
        if weights is None:
            return False
        size = MicroBatchSize.of(batch, self._model.encoder.embeddings.max_length)
        key, full = (size, tuple(names)), size.filled(batch)
        graph = self.graphs.get(key, weights)
        if graph is None and not self.graphs.failed and self._shares.get(key, 1.0) <= ROOM:
            new = partial(_Recording, self._model, full.to(self._device), names, self._gradients)
            graph = self.graphs.record(key, new)
        if graph is not None:
            graph(full, divisors, sums)
            return True
        there = full.to(self._device)
        compute = partial(_computed, self._model, there, names, divisors, sums)
        if key in self._shares:
            compute()
        else:
            self._shares[key] = peak_share(compute, self._device)
        return True


def _computed(
    model: Model, batch: PretrainingBatch, names: Sequence[str], divisors: Mapping[str, float], sums: Tensor
) -> None:
    add_up(pretraining_losses(model, batch), names, divisors, sums)


class _Recording:
    """One recorded pass.

    Args:
        batch: filled, on the device; becomes the place of the batches.
        gradients: where those of all graphs of the model lie.
    """

    def __init__(
        self,
        model: Model,
        batch: PretrainingBatch,
        names: Sequence[str],
        gradients: dict[nn.Parameter, Tensor],
    ) -> None:
        device = batch.packed.input_ids.device
        self._model, self._batch, self._names, self._gradients = model, batch, names, gradients
        self._sums = torch.zeros(len(names), 2, dtype=torch.float64, device=device)
        self._parts = [name for name in names if name in batch.counts]
        self._divisors = torch.ones(len(self._parts), device=device)
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
        divisors = dict(zip(self._parts, self._divisors, strict=True))
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
        self._divisors.copy_(torch.tensor([divisors[name] for name in self._parts]), non_blocking=True)
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
