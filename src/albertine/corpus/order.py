"""The order of samples: a keyed permutation per epoch, and a cursor of two numbers.

The order is a function of (seed, epoch), the same for any number of processes, so a run resumes exactly from
the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from albertine.core.randomness import permutation
from albertine.errors import CorpusError, SettingsError

Row = tuple[int, int]
"""(epoch, sample of that epoch)"""


@dataclass(frozen=True, order=True)
class Cursor:
    """Position of a run: `offset` samples of `epoch` are used."""

    epoch: int = 0
    offset: int = 0


def epoch_order(rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The samples of an epoch in order, int64 (rows,)."""
    return permutation(rows, seed, "order", epoch)


def global_batches(
    rows_of_epoch: Callable[[int], int], batch_size: int, seed: int, cursor: Cursor | None = None
) -> Iterator[tuple[Cursor, list[Row]]]:
    """Endless global batches from `cursor` on.

    The last batch of an epoch is filled from the next epoch, so every batch has `batch_size` rows and every
    epoch has each of its rows exactly once.

    Args:
        rows_of_epoch: number of samples of an epoch.
        cursor: as yielded before; default: the start.

    Yields:
        The cursor after the batch, and the rows of the batch.

    Raises:
        CorpusError: an epoch without samples, or a cursor beyond its epoch.
    """
    if batch_size < 1:
        raise SettingsError(f"a batch needs at least one sample, not {batch_size}")
    here = cursor or Cursor()
    epoch, offset = here.epoch, here.offset
    order = _order(rows_of_epoch, seed, epoch)
    if not 0 <= offset <= len(order):
        raise CorpusError(
            f"the run stands at sample {offset} of epoch {epoch}, which has {len(order)}",
            remedy="The corpus or the objective changed since the run began; start a new run",
        )
    while True:
        rows: list[Row] = []
        while len(rows) < batch_size:
            if offset == len(order):
                epoch, offset = epoch + 1, 0
                order = _order(rows_of_epoch, seed, epoch)
            taken = order[offset : offset + batch_size - len(rows)].tolist()
            rows += [(epoch, row) for row in taken]
            offset += len(taken)
        yield Cursor(epoch, offset), rows


def _order(rows_of_epoch: Callable[[int], int], seed: int, epoch: int) -> NDArray[np.int64]:
    rows = rows_of_epoch(epoch)
    if rows < 1:
        raise CorpusError(
            "the corpus is too small for a single sample",
            remedy="Use more text, shorter sequences, or an objective without sentence pairs",
        )
    return epoch_order(rows, seed, epoch)
