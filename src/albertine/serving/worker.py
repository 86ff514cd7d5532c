"""The thread that computes for all models of a server, a step of one model at a time.

One thread, as several would compete for the processors. Models whose queues are not empty get equal shares of
its time (start-time fair queueing; Goyal, Vin and Cheng 1996, with seconds as the costs).

Between two layers of a step it computes items that have come meanwhile, if they precede the rest of the step
in the order of the queue (`albertine.serving.queue`: shortest first, with aging) and take less than half of
its time. So a short text does not wait for a long pass. The pass keeps its states meanwhile, and goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from albertine.core.between_layers import calling_between_layers
from albertine.core.memory import trim_memory
from albertine.serving.engine import Abandoned, Engine, Step
from albertine.serving.queue import SLACK

PATIENCE = 0.5
"""Seconds after which a thread without work looks again whether it is to end."""
TRIM = 20.0
"""Seconds between two calls of `trim_memory`, without which a busy server grows for minutes."""
NESTED = 4
"""Steps that may wait for shorter ones, each with the states of its texts in memory."""


class Worker:
    """A thread, and the engines for which it computes.

    Attributes:
        changed: the condition that the queues of its engines share.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.changed = threading.Condition()
        self._clock = clock
        self._engines: dict[Engine, float] = {}
        """With the seconds of each on a scale where an idle one does not fall behind."""
        self._busy: set[Engine] = set()
        self._time, self._closed = 0.0, False
        self._waiting: list[tuple[Step, float]] = []
        """Steps that wait for another one, the first first, and the seconds that the rest of each takes."""
        # A daemon: a step that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="albertine engine", daemon=True)

    def add(self, engine: Engine) -> None:
        """Compute for this engine too, from now on. Its queue has the condition `changed`."""
        with self.changed:
            self._engines.setdefault(engine, self._time)
            engine.queue.beside = lambda: [one.queue for one in self._engines if one is not engine]
            self.changed.notify()

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float) -> bool:
        """Finish what waits, and take nothing more; whether that was done within so many seconds."""
        with self.changed:
            self._closed = True
            for engine in self._engines:
                engine.queue.close()
        self._thread.join(patience)
        return not self._thread.is_alive()

    def remove(self, engine: Engine, patience: float) -> bool:
        """Finish what waits for this engine, and take nothing more; whether that was done within so many
        seconds."""
        with self.changed:
            engine.queue.close()
            return self.changed.wait_for(lambda: engine not in self._engines, patience)

    @property
    def running(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def run_step(self) -> bool:
        """Compute one step, if there is work; whether there was. By its thread, or instead of it."""
        with self.changed:
            engine = self._next()
        if engine is None:
            return False
        if (step := engine.take()) is not None:
            self._compute(engine, step)
        return True

    def _run(self) -> None:
        trimmed = self._clock()
        while True:
            if self.run_step():
                if (now := self._clock()) > trimmed + TRIM:
                    trim_memory()
                    trimmed = now
                continue
            with self.changed:
                if self._closed and not self._engines:
                    return
                if not any(len(engine.queue) for engine in self._engines):
                    self.changed.wait(PATIENCE)

    def _compute(self, engine: Engine, step: Step) -> None:
        began = step.began = self._clock()
        with calling_between_layers(partial(self._between_layers, step)):
            engine.compute(step)
        took = self._clock() - began
        with self.changed:
            self._engines[engine] += took - step.paused

    def _between_layers(self, step: Step, done: int, layers: int) -> None:
        """Before the next layer of a step compute shorter ones that have come.

        Raises:
            Abandoned: nobody waits for the answers of this one any more.
        """
        began = self._clock()
        # A step may be several passes: its rest is no more than the forecast has left.
        spent = began - step.began - step.paused
        left = max(0.0, min(step.seconds * (1 - done / layers), step.seconds - spent))
        if not step.wanted(began + left / SLACK):
            raise Abandoned
        left = left or spent * (layers - done) / done  # it takes longer than the forecast
        if len(self._waiting) == NESTED:
            return
        key = step.key(left)
        with self.changed:
            others = [one for one in self._engines if one.queue.precedes(key)]
        for engine in others:
            self._waiting.append((step, left))
            try:
                if (other := engine.take_before(self._waiting)) is not None:
                    self._compute(engine, other)
            finally:
                self._waiting.pop()
        step.paused += self._clock() - began

    def _next(self) -> Engine | None:
        """The engine with work that has had the least time. Engines that are done are removed."""
        for engine in [one for one in self._engines if one.queue.closed and not len(one.queue)]:
            del self._engines[engine]
            self._busy.discard(engine)
            self.changed.notify_all()
        busy = [engine for engine in self._engines if len(engine.queue)]
        for engine in busy:
            if engine not in self._busy:  # no credit for the time in which it had no work
                self._engines[engine] = max(self._engines[engine], self._time)
        self._busy = set(busy)
        if not busy:
            return None
        chosen = min(busy, key=self._engines.__getitem__)
        self._time = self._engines[chosen]
        return chosen
