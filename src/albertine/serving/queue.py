"""The queue of items to compute, bounded by tokens and by the number of questions, each with a deadline.

It depends on no web framework and no model runtime, and the clock is an argument. `take` chooses items of one
kind for the thread that computes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

FORGET = 0.9
"""Decay of earlier steps in the moving average of the measured speed, for each step."""

LEAST = 2
"""Tokens of an empty text: the special ones."""


class Overload(Exception):
    """There is no room, or work ahead would take longer than the deadline.

    Attributes:
        reason: `queue_full` or `forecast`. retry_after: seconds after which a retry may succeed.
    """

    def __init__(self, reason: str, retry_after: int) -> None:
        super().__init__(reason)
        self.reason, self.retry_after = reason, retry_after


class TooLate(Exception):
    """The deadline of an item passed before it was answered."""


@dataclass(eq=False)
class Item:
    """Questions of one request that wait for their answers and are computed in one step.

    Attributes:
        kind: items of equal kind can be computed together. questions: in the form of their kind.
        tokens: of all of them. deadline: on the queue's clock.
        future: of the answers. Cancelled, the item leaves the queue at once and is never computed.
        entered: when it was put in the queue.
    """

    kind: Hashable
    questions: Sequence[Any]
    tokens: int
    deadline: float
    future: Future[Any] = field(default_factory=Future)
    entered: float = 0.0


class TokenQueue:
    """Items in the order in which they came, from many threads to one that computes.

    Args:
        most_tokens, most_questions: what may wait. clock: seconds that only grow.
        dropped: called with an item that leaves without being computed, and why: `cancelled` or `deadline`.
        changed: notified when items come and when the queue is closed; the queues of one thread share it.
    """

    def __init__(
        self,
        most_tokens: int,
        most_questions: int,
        clock: Callable[[], float] = time.monotonic,
        dropped: Callable[[Item, str], None] = lambda item, reason: None,
        changed: Condition | None = None,
    ) -> None:
        self.most_tokens, self.most_questions = most_tokens, most_questions
        self._clock, self._dropped = clock, dropped
        self._waiting: dict[Item, None] = {}  # in order, and quick to leave from anywhere
        self._tokens, self._questions, self._closed = 0, 0, False
        self._spent, self._done = 0.0, 0.0
        self._changed = changed or Condition()

    @property
    def tokens(self) -> int:
        """Tokens of the waiting items."""
        return self._tokens

    @property
    def questions(self) -> int:
        """Number of the questions of the waiting items."""
        return self._questions

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        return self._closed

    def forecast(self) -> float:
        """Seconds that the waiting work will take at the measured pace; 0 before anything was measured."""
        return self._tokens * self._spent / self._done if self._done else 0.0

    def worked(self, tokens: int, seconds: float) -> None:
        """Learn the pace from a step that was computed."""
        # Sums, not a mean of paces: a short text costs more time a token than a long one.
        self._spent = FORGET * self._spent + seconds
        self._done = FORGET * self._done + tokens

    def check(self, count: int, deadline: float) -> None:
        """That so many questions may come, before it is known how many tokens they have. Raises as `put`."""
        with self._changed:
            error = self._error_of(count, LEAST * count, deadline)
        if error is not None:
            raise error

    def put(self, items: Sequence[Item]) -> None:
        """Let all of these items, at least one, wait, or none.

        Raises:
            Overload: they do not fit, the work before them takes longer than their deadlines allow, or the
                queue is closed.
        """
        with self._changed:
            late = self._leave_late()
            tokens = sum(item.tokens for item in items)
            questions = sum(len(item.questions) for item in items)
            error = self._error_of(questions, tokens, min(item.deadline for item in items))
            if error is None:
                for item in items:
                    item.entered = self._clock()
                    self._waiting[item] = None
                self._tokens += tokens
                self._questions += questions
                self._changed.notify()
        self._tell_late(late)
        if error is not None:
            raise error
        for item in items:  # not under the lock: one that is cancelled already calls back here
            item.future.add_done_callback(lambda done, item=item: self._on_done(item))  # type: ignore[misc]

    def take(self, budget: int) -> list[Item]:
        """The first item, and the next ones of its kind that together cost no more than the budget (tokens);
        the first is taken whatever it costs. They count as running from now on.

        Returns:
            None of them cancelled or late; empty if there was nothing.
        """
        with self._changed:
            late = self._leave_late()
            chosen = self._next(budget)
            for item in chosen:
                self._leave(item)
        self._tell_late(late)
        running = []
        for item in chosen:
            if item.future.set_running_or_notify_cancel():
                running.append(item)
            else:
                self._dropped(item, "cancelled")
        return running

    def close(self) -> None:
        """Take nothing in any more; what waits can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _error_of(self, count: int, tokens: int, deadline: float) -> Overload | None:
        ahead = self.forecast()
        full = self._tokens + tokens > self.most_tokens or self._questions + count > self.most_questions
        hopeless = self._clock() + ahead > deadline
        if not (full or hopeless or self._closed):
            return None
        return Overload("queue_full" if full else "forecast", min(60, max(1, math.ceil(ahead))))

    def _next(self, budget: int) -> list[Item]:
        chosen: list[Item] = []
        spent = 0
        # The oldest item is always among them, so that none waits for ever behind smaller or other ones.
        for item in self._waiting:
            fits = not chosen or (item.kind == chosen[0].kind and spent + item.tokens <= budget)
            if fits:
                chosen.append(item)
                spent += item.tokens
            if spent >= budget:
                break
        return chosen

    def _leave(self, item: Item) -> bool:
        if item not in self._waiting:
            return False
        del self._waiting[item]
        self._tokens -= item.tokens
        self._questions -= len(item.questions)
        return True

    def _leave_late(self) -> list[Item]:
        now = self._clock()
        late = [item for item in self._waiting if item.deadline <= now]
        for item in late:
            self._leave(item)
        return late

    def _tell_late(self, late: Sequence[Item]) -> None:
        for item in late:  # not under the lock: who waits for the future may call back here
            alive = item.future.set_running_or_notify_cancel()
            if alive:
                item.future.set_exception(TooLate())
            self._dropped(item, "deadline" if alive else "cancelled")

    def _on_done(self, item: Item) -> None:
        """A cancelled item gives its room back at once, not when its turn comes."""
        if not item.future.cancelled():
            return
        with self._changed:
            left = self._leave(item)
        if left:
            self._dropped(item, "cancelled")
