"""The order of training examples."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from albertine.tasks.encoded import Encoded
from albertine.tasks.finetune import TaskBatches


def test_every_epoch_and_every_seed_has_an_order_of_its_own() -> None:
    count = 40
    data = Encoded(
        tuple(range(count)),
        [np.array([number], dtype=np.int32) for number in range(count)],
        [np.zeros(1, dtype=np.int8)] * count,
        np.arange(count + 1),
        list(np.zeros((count, 1))),
        0,
    )

    def orders(seed: int) -> list[tuple[int, ...]]:
        """Of two epochs."""
        training = SimpleNamespace(batch_size=count, micro_batch_tokens=count, teacher=None)
        settings: Any = SimpleNamespace(training=training, seed=seed)
        drawn = zip(range(2), TaskBatches(data, settings, None), strict=False)
        return [tuple(b.packed.input_ids.tolist()) for _, (_, batches) in drawn for b in batches]  # type: ignore[attr-defined]

    found = orders(1) + orders(2)
    assert len(set(found)) == len(found) == 4
    assert all(sorted(order) == list(range(count)) for order in found)
