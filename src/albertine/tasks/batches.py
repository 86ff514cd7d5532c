"""The stream of training batches of a task: epoch after epoch in keyed random order, from any point on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from albertine.core.randomness import permutation
from albertine.core.token_batches import batch_by_tokens
from albertine.tasks.encoded import Encoded
from albertine.tasks.settings import FinetuneSettings
from albertine.training.job import Cursor, Drawn
from albertine.training.step import MicroBatch


class TaskBatches:
    """The training batches of one process from any point on, epoch after epoch, without end.

    Yields (cursor after the batch, micro-batches of this process); the global batches depend on the seed
    alone.
    """

    def __init__(
        self, data: Encoded, settings: FinetuneSettings, cursor: Cursor | None, rank: int = 0, world: int = 1
    ) -> None:
        self.data, self.settings, self.rank, self.world = data, settings, rank, world
        self.epoch: int = cursor["epoch"] if cursor else 0
        self.at: int = cursor["at"] if cursor else 0

    def __iter__(self) -> Iterator[Drawn]:
        training, lengths = self.settings.training, self.data.lengths
        limit = int(lengths.sum()) if self.data.together else training.micro_batch_tokens
        epoch, at, taught = self.epoch, self.at, training.teacher is not None
        while True:
            order = permutation(len(lengths), self.settings.seed, "finetune", epoch)
            while at < len(order):
                chosen = order[at : at + training.batch_size]
                at += len(chosen)
                mine = chosen[self.rank :: self.world]
                groups = batch_by_tokens(mine.tolist(), lengths, limit)
                batches = [self.data.batch(g, seed=self.settings.seed, epoch=epoch) for g in groups]
                micro_batches: list[MicroBatch] = [replace(b, taught=True) if taught else b for b in batches]
                yield {"epoch": epoch, "at": at}, micro_batches
            epoch, at = epoch + 1, 0
