"""The stream a run trains on: order, batches and loader processes together (promise T6)."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from albertine.corpus.loader import Loader
from albertine.corpus.order import Cursor, steps
from albertine.objectives.batch import BatchBuilder, PretrainingBatch, Row
from albertine.objectives.masking import MaskSettings
from albertine.objectives.pairs import PairSettings
from tests.objectives.standin import random_corpus

BATCH = 24


class Recipe:
    """What a run asks of a loader process: the micro-batches of one rank of one global batch."""

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.builder = BatchBuilder(random_corpus(6, 40), PairSettings("sop", 48), MaskSettings(), 9)
        self.rank, self.world = rank, world

    def __call__(self, order: tuple[Cursor, list[Row]]) -> tuple[Cursor, list[PretrainingBatch]]:
        return order[0], self.builder.build(order[1], self.rank, self.world, micro_batch_tokens=400)

    def stream(
        self, workers: int, count: int, cursor: Cursor | None = None
    ) -> list[tuple[Cursor, list[PretrainingBatch]]]:
        torch.set_num_threads(1)
        return list(islice(Loader(self, steps(self.builder.rows, BATCH, 9, cursor), workers), count))


def equal(a: PretrainingBatch, b: PretrainingBatch) -> bool:
    """Every tensor the same, to the bit."""
    pairs = [
        (getattr(a.packed, name), getattr(b.packed, name))
        for name in ("input_ids", "token_type_ids", "position_ids")
    ]
    pairs += [
        (getattr(a, name), getattr(b, name))
        for name in ("mlm_positions", "mlm_labels", "sentence_labels", "samples")
    ]
    return (
        a.packed.lengths == b.packed.lengths
        and a.counts == b.counts
        and all(torch.equal(x, y) for x, y in pairs)
    )


# torch finds four processes many for a small machine; here they are the point.
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [2, 4])
def test_batches_do_not_depend_on_the_number_of_loader_processes(workers: int) -> None:
    epoch = -(-Recipe().builder.rows(0) // BATCH)
    count = epoch + 3  # across the change of epochs
    alone, spread = Recipe().stream(0, count), Recipe().stream(workers, count)
    assert alone[-1][0].epoch == 1
    for (here, left), (there, right) in zip(alone, spread, strict=True):
        assert here == there and len(left) == len(right) > 1
        assert all(equal(a, b) for a, b in zip(left, right, strict=True))


def test_a_run_taken_up_again_goes_on_with_the_same_batches() -> None:
    whole = Recipe().stream(0, 9)
    for stop in (1, 4, 8):
        again = Recipe().stream(0, 9 - stop, whole[stop - 1][0])
        for (_, left), (_, right) in zip(whole[stop:], again, strict=True):
            assert all(equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_together_see_every_sample_of_an_epoch_once(world: int) -> None:
    rows = Recipe().builder.rows(0)
    ranks = [Recipe(rank, world).stream(0, -(-rows // BATCH) + 1) for rank in range(world)]
    seen = [tuple(s) for rank in ranks for _, batches in rank for b in batches for s in b.samples.tolist()]
    assert len(set(seen)) == len(seen)
    assert sorted(sample for epoch, sample in seen if epoch == 0) == list(range(rows))
