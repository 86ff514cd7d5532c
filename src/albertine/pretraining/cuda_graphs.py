"""Pretraining passes as CUDA graphs, for models so small that kernel launches take longer than the kernels.

Forward and backward pass of a small model launch some thousand kernels: 40 ms of Python, and 10 ms of a large
GPU (docs/decisions/036). Captured once per shape of micro-batches, they are launched as one graph. A graph
reads batch, loss divisors and weights at fixed addresses, and accumulates into gradients and sums at fixed
addresses.
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
from albertine.training.step import EagerRunner, LossFunction, MicroBatch, MicroBatchRunner, backward

MAX_STATE_ELEMENTS = 1 << 24
"""Largest hidden state (tokens × hidden size) of a captured pass; above it, kernels take longer than launches
on any GPU."""
MAX_MEMORY_SHARE = 0.25
"""Largest share of GPU memory that a captured pass may use; a graph holds its memory."""


def cuda_graph_runner(model: Model, losses: LossFunction, device: torch.device) -> MicroBatchRunner | None:
    """The runner for `training.train_step`; None where nothing can be captured: on a CPU, with dropout,
    activation recomputation, or a loss other than `pretraining_losses`, and where attention is computed on
    padded batches, whose tables would grow with the padding."""
    if device.type != "cuda" or losses is not pretraining_losses or model.encoder.recompute:
        return None
    config = model.config
    dropouts = config.hidden_dropout_prob, config.attention_probs_dropout_prob
    dropout = any(dropouts) or (config.sentence_dropout and config.classifier_dropout_prob > 0)
    form = compute_format(model.encoder.precision, model.encoder.embeddings.word.weight, True)
    return None if dropout or not recordable(model.encoder, form) else CudaGraphRunner(model, device)


Key = tuple[MicroBatchSize, tuple[str, ...]]


class CudaGraphRunner:
    """Launches captured graphs; a micro-batch without one runs eagerly. Whether a micro-batch is padded
    depends on nothing else, so that a resumed run computes the same as an uninterrupted one.

    Attributes:
        graphs: by size and names of the losses.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        self.graphs: Graphs[_CapturedPass] = Graphs()
        self._model, self._device = model, device
        self._eager = EagerRunner(model, pretraining_losses, device)
        self._shares: dict[Key, float] = {}  # of GPU memory, by pass

    @cached_property
    def _gradients(self) -> dict[nn.Parameter, Tensor]:
        return {p: torch.zeros_like(p) for p in self._model.parameters() if p.requires_grad}

    def __call__(
        self, batch: MicroBatch, names: Sequence[str], divisors: Mapping[str, float], sums: Tensor
    ) -> None:
        assert isinstance(batch, PretrainingBatch)
        whole = batch.packed.prefix is None and all(name in divisors for name in batch.counts)
        small = batch.num_tokens * self._model.config.hidden_size <= MAX_STATE_ELEMENTS
        weights = own_weights(self._model) if whole and small else None
        if weights is None:
            self._eager(batch, names, divisors, sums)
            return
        size = MicroBatchSize.of(batch, self._model.encoder.embeddings.max_length)
        key, full = (size, tuple(names)), size.filled(batch)
        graph = self.graphs.get(key, weights)
        if graph is None and not self.graphs.failed and self._shares.get(key, 1.0) <= MAX_MEMORY_SHARE:
            new = partial(_CapturedPass, self._model, full.to(self._device), names, self._gradients)
            graph = self.graphs.record(key, new)
        if graph is not None:
            graph(full, divisors, sums)
            return
        compute = partial(self._eager, full, names, divisors, sums)
        if key in self._shares:
            compute()
        else:
            self._shares[key] = peak_share(compute, self._device)


class _CapturedPass:
    """Forward and backward pass of one batch shape.

    Args:
        batch: padded, on the device; later batches are copied into its tensors.
        gradients: static gradient tensors, shared by all graphs of the model.
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
            torch._foreach_copy_(list(gradients.values()), before)  # capture runs the pass too

    def _run(self) -> None:
        """Accumulate the gradients of this pass into the static ones; those of the model stay."""
        held = {p: p.grad for p in self._gradients}
        for p in held:
            p.grad = None
        self._sums.zero_()
        divisors = dict(zip(self._parts, self._divisors, strict=True))
        try:
            backward(pretraining_losses(self._model, self._batch), self._names, divisors, self._sums)
            self._of = [p for p in self._gradients if p.grad is not None]
            new = [p.grad for p in self._of if p.grad is not None]
            torch._foreach_add_([self._gradients[p] for p in self._of], new)
        finally:
            for p, gradient in held.items():
                p.grad = gradient

    def __call__(self, batch: PretrainingBatch, divisors: Mapping[str, float], sums: Tensor) -> None:
        copy_into(self._batch, batch)
        self._divisors.copy_(torch.tensor([divisors[name] for name in self._parts]), non_blocking=True)
        self._use_static_gradients()
        self._replay()
        sums += self._sums

    def _use_static_gradients(self) -> None:
        """Make the static gradients of this graph those of the model, with what they have accumulated."""
        if fresh := [self._gradients[p] for p in self._of if p.grad is None]:
            torch._foreach_zero_(fresh)
        for p in self._of:
            own = self._gradients[p]
            if p.grad is not None and p.grad is not own:
                own.copy_(p.grad)
            p.grad = own
