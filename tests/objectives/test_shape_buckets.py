"""Micro-batches of few sizes: what is real comes first and is all that counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from albertine.bench.inputs import inputs, pretraining
from albertine.core.token_batches import bucket_size
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses
from albertine.objectives.shape_buckets import MicroBatchSize, copy_into
from tests.model import builders


def batch_of(lengths: list[int], pairs: bool = True) -> PretrainingBatch:
    batch = pretraining(inputs("toy", lengths, builders.VOCABULARY))[0]
    return batch if pairs else replace(batch, sentence_labels=None, sentence_count=0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(3, 200), min_size=1, max_size=60), st.booleans())
def test_the_form_of_a_filled_batch(lengths: list[int], pairs: bool) -> None:
    batch = batch_of(lengths, pairs)
    size = MicroBatchSize.of(batch)
    full = size.filled(batch)
    tokens, count, predictions = batch.num_tokens, len(lengths), len(batch.mlm_positions)
    assert full.num_tokens == size.tokens > tokens
    assert len(full.packed.cu_seqlens) == size.sequences + 1
    assert len(full.mlm_positions) == len(full.mlm_labels) == size.predictions
    added = full.packed.cu_seqlens.diff()[count:]
    assert int(added.min()) > 0 and int(added.max()) <= size.longest == full.packed.max_length
    assert max(lengths) <= size.longest
    for real, both in (
        (batch.packed.input_ids, full.packed.input_ids),
        (batch.packed.token_type_ids, full.packed.token_type_ids),
        (batch.packed.position_ids, full.packed.position_ids),
        (batch.packed.cu_seqlens, full.packed.cu_seqlens),
        (batch.mlm_positions, full.mlm_positions),
        (batch.mlm_labels, full.mlm_labels),
    ):
        assert real.dtype == both.dtype and torch.equal(real, both[: len(real)])
    # A row may be requested for twice: by a prediction and, at the head of a sequence, by its label.
    requested = full.mlm_positions.tolist()
    assert len(set(requested)) == len(requested) and max(requested) < size.tokens
    assert (full.mlm_labels[predictions:] == -100).all()
    if pairs:
        assert full.sentence_labels is not None and len(full.sentence_labels) == size.sequences
        assert (full.sentence_labels[count:] == -100).all()
    else:
        assert full.sentence_labels is None
    assert full.counts == {**batch.counts, "mlm": size.predictions}


@pytest.mark.parametrize("pairs", [True, False])
def test_the_sums_and_gradients_are_those_of_the_batch(pairs: bool, lengths_from_device: None) -> None:
    model = builders.model(max_position_embeddings=64).train()
    model.encoder.backend = "plain"

    def sums_and_gradients(
        batch: PretrainingBatch,
    ) -> tuple[dict[str, tuple[float, int]], list[Tensor | None]]:
        model.zero_grad(set_to_none=True)
        parts = pretraining_losses(model, batch)
        torch.stack([part.loss_sum for part in parts.values()]).sum().backward()
        sums = {name: (float(part.loss_sum.detach()), int(part.correct)) for name, part in parts.items()}
        return sums, [None if p.grad is None else p.grad.clone() for p in model.parameters()]

    for lengths in ([7, 30, 12], [3], [40] * 9):
        batch = batch_of(lengths, pairs)
        wanted, gradients = sums_and_gradients(batch)
        found, others = sums_and_gradients(MicroBatchSize.of(batch, 64).filled(batch))
        for name, (nats, right) in wanted.items():
            assert found[name] == (pytest.approx(nats, rel=1e-5), right)
        for a, b in zip(gradients, others, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                torch.testing.assert_close(b, a, atol=1e-5, rtol=1e-4)


def test_the_next_batch_takes_the_place_of_the_first() -> None:
    one, two = batch_of([20, 30, 14]), batch_of([14, 28, 21])
    size = MicroBatchSize.of(one)
    assert MicroBatchSize.of(two) == size
    place, other = size.filled(one), size.filled(two)
    copy_into(place, other)
    for name in ("mlm_positions", "mlm_labels", "sentence_labels"):
        assert torch.equal(getattr(place, name), getattr(other, name))
    for name in ("input_ids", "token_type_ids", "position_ids", "cu_seqlens"):
        assert torch.equal(getattr(place.packed, name), getattr(other.packed, name))


def test_passes_of_other_layers_are_of_another_size() -> None:
    """Each size has a captured pass of its own."""
    batch = batch_of([20, 30])
    sizes = {MicroBatchSize.of(replace(batch, loops=loops)) for loops in (None, 1, 2, 2)}
    assert len(sizes | {MicroBatchSize.of(replace(batch, depth=1))}) == 4


def test_few_sizes() -> None:
    for number in range(1, 5000):
        assert number <= bucket_size(number, 16, 64) <= max(number + 63, number * 17 / 16)
    assert len({bucket_size(n, 16, 64) for n in range(1, 65537)}) < 120
    rng = np.random.default_rng(0)
    sizes = {MicroBatchSize.of(batch_of(rng.integers(60, 129, 128).tolist())) for _ in range(40)}
    assert len(sizes) <= 6


def test_padding_never_exceeds_the_positions_of_a_model() -> None:
    batch = batch_of([90, 70])
    assert MicroBatchSize.of(batch).longest == 128
    assert MicroBatchSize.of(batch, 100).longest == 100
    assert int(MicroBatchSize.of(batch, 100).filled(batch).packed.cu_seqlens.diff().max()) <= 100
