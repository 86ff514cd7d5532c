"""A server without threads, on a clock of its own: a worker, a queue, and in place of a model one whose
passes of n tokens take a + c·n seconds, in layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from albertine.core.between_layers import between_layers, calling_between_layers
from albertine.serving.engine import Engine
from albertine.serving.queue import AGING, Item, Overload, TokenQueue
from albertine.serving.worker import Worker
from tests.serving.test_engine import Notes
from tests.serving.test_queue import Clock

Arrival = tuple[float, int]
"""When a request comes, and its tokens."""


class Simulated:
    """
    Attributes:
        items: that were not refused, in the order of arrival. finished: by item when its answer came.
        steps: tokens of every step. work: tokens computed, layer by layer.

    Args:
        a, c: seconds of a pass, and for each of its tokens.
    """

    def __init__(self, a: float, c: float, layers: int = 12, budget: int = 256, aging: float = AGING) -> None:
        self.clock = Clock()
        self.worker = Worker(self.clock)
        self.queue = TokenQueue(10**9, 10**9, self.clock, changed=self.worker.changed, aging=aging)
        for tokens in (budget, budget // 2) * 20:
            self.queue.worked(tokens, a + c * tokens)
        self.engine = Engine(self._answer, self.queue, budget, Notes(), self.clock)
        self.worker.add(self.engine)
        self._a, self._c, self._layers = a, c, layers
        self._coming: Iterator[Arrival] = iter(())
        self._next: Arrival | None = None
        self.items: list[Item] = []
        self.finished: dict[Item, float] = {}
        self.steps: list[int] = []
        self.work = 0
        self.arrived: Callable[[Item], None] = lambda item: None

    def run(self, coming: Sequence[Arrival], deadline: float = 1e9) -> None:
        """Let requests come, and answer all."""
        self._coming = iter(coming)
        self._next = next(self._coming, None)
        self._deadline = deadline
        while True:
            self._arrive()
            if not self.worker.run_step():
                if self._next is None:
                    return
                self.clock.now = max(self.clock.now, self._next[0])

    def _arrive(self) -> None:
        while self._next is not None and self._next[0] <= self.clock.now:
            when, tokens = self._next
            item = Item("k", [tokens], tokens, when + self._deadline)
            item.future.add_done_callback(lambda _, item=item: self._finish(item))  # type: ignore[misc]
            self._next = next(self._coming, None)
            try:
                self.queue.put([item])
            except Overload:
                continue
            self.items.append(item)
            self.arrived(item)

    def _finish(self, item: Item) -> None:
        assert item not in self.finished
        self.finished[item] = self.clock.now

    def _answer(self, kind: Any, questions: Sequence[int]) -> Sequence[int]:
        tokens = sum(questions)
        self.steps.append(tokens)
        call = between_layers()
        for layer in range(self._layers):
            if layer and call is not None:
                with calling_between_layers(None):
                    call(layer, self._layers)
            self.clock.now += (self._a + self._c * tokens) / self._layers
            self.work += tokens
            self._arrive()
        return questions

    def latencies(self) -> np.ndarray:
        """Seconds from arrival to answer, in the order of arrival."""
        return np.array([self.finished[item] - item.entered for item in self.items])


def mixed_load(count: int, a: float, c: float, share: float, seed: int = 0) -> list[Arrival]:
    """Poisson arrivals of texts, 95 % of log-normal length (median 32), 5 % of 512 tokens, at a share of what
    can be computed in full passes of 256 tokens."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.exp(rng.normal(np.log(32), 0.7, count)), 4, 512).astype(int)
    lengths[rng.random(count) < 0.05] = 512
    gap = lengths.mean() * (c + a / 256) / share
    times = np.cumsum(rng.exponential(gap, count))
    return list(zip(times.tolist(), lengths.tolist(), strict=True))
