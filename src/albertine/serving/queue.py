"""The queue of items to compute, bounded by tokens and by the number of questions, each with a deadline.

It depends on no web framework and no model runtime, and the clock is an argument. `take` chooses items of one
kind for the thread that computes, in this order:

1. The oldest items, if some would miss their deadlines otherwise: the work of all up to one of them,
   `SLACK` times, takes longer than its deadline is away.
2. Of clients with waiting items, one that has had the fewest tokens (start-time fair queueing; Goyal, Vin and
   Cheng 1996).
3. Of its items, the one with the smallest key: seconds of work, plus `AGING` for every second of the time at
   which it came. So the shortest is first, and none waits for ever: as time passes, all keys of waiting items
   stay, and those of new ones grow.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from threading import Condition
from typing import Any

FORGET = 0.9
"""Decay of earlier steps in what was measured of them, for each step."""

LEAST = 2
"""Tokens of an empty text: the special ones."""
AGING = 0.2
"""Seconds of work that a second of waiting outweighs. Infinite: items are taken in the order in which they
came."""
SLACK = 1.25
"""Times the forecast that work may take."""
CLIENTS = 10_000
"""Clients whose tokens are remembered."""


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


class StepTimes:
    """What steps take, a + c·tokens seconds: least squares over moving sums of those that were computed. A
    larger step than any of them is taken for one of the largest size, since what the forecast gives up is
    never measured.

    Attributes:
        pace: seconds of a token among others, with its share of `a`; 0 before the first step.
    """

    def __init__(self) -> None:
        self._steps = self._n = self._nn = self._t = self._nt = 0.0
        self.pace = self._a = self._c = 0.0
        self._largest = 0

    def add(self, tokens: int, seconds: float) -> None:
        """A step that was computed."""
        self._largest = max(self._largest, tokens)
        self._steps = FORGET * self._steps + 1
        self._n = FORGET * self._n + tokens
        self._nn = FORGET * self._nn + tokens**2
        self._t = FORGET * self._t + seconds
        self._nt = FORGET * self._nt + tokens * seconds
        # Of sums, not a mean of paces: a short text costs more time a token than a long one.
        self.pace = self._c = self._t / self._n
        spread = self._steps * self._nn - self._n**2
        if spread > 1e-6 * self._n**2:  # else all steps were of one size
            slope = (self._steps * self._nt - self._n * self._t) / spread
            self._c = min(max(slope, 0.0), self.pace)
        self._a = (self._t - self._c * self._n) / self._steps

    def of_step(self, tokens: int) -> float:
        """Seconds of a step."""
        return self._a + self._c * min(tokens, self._largest)

    def within(self, seconds: float) -> float:
        """The most tokens of a step that takes so many seconds."""
        if seconds < self._a:
            return 0.0
        return (seconds - self._a) / self._c if self._c else math.inf


@dataclass(eq=False)
class Item:
    """Questions of one request that wait for their answers and are computed in one step.

    Attributes:
        kind: items of equal kind can be computed together. questions: in the form of their kind.
        tokens: of all of them. deadline: on the queue's clock.
        client: who sent it, for fair shares.
        future: of the answers. Cancelled, the item leaves the queue at once and is never computed.
        abandoned: set when nobody waits for the answers of an item that is being computed.
        entered: when it was put in the queue. key: its place in the order, smallest first; then a number.
    """

    kind: Hashable
    questions: Sequence[Any]
    tokens: int
    deadline: float
    client: Hashable = None
    future: Future[Any] = field(default_factory=Future)
    abandoned: bool = False
    entered: float = 0.0
    key: tuple[float, float] = (0.0, 0)


class TokenQueue:
    """Items that wait, from many threads to one that computes.

    Args:
        most_tokens, most_questions: what may wait. clock: seconds that only grow.
        dropped: called with an item that leaves without being computed, and why: `cancelled` or `deadline`.
        changed: notified when items come and when the queue is closed; the queues of one thread share it.
        aging: as `AGING`.
    """

    def __init__(
        self,
        most_tokens: int,
        most_questions: int,
        clock: Callable[[], float] = time.monotonic,
        dropped: Callable[[Item, str], None] = lambda item, reason: None,
        changed: Condition | None = None,
        aging: float = AGING,
    ) -> None:
        self.most_tokens, self.most_questions = most_tokens, most_questions
        self._clock, self._dropped = clock, dropped
        self._waiting: dict[Item, None] = {}  # oldest first, and quick to leave from anywhere
        self._ordered: list[Item] = []  # by their keys
        self._numbers, self._aging = count(), aging
        self._clients: Counter[Hashable] = Counter()  # how many of their items wait
        self._served: dict[Hashable, float] = {}
        """Tokens of each client, on a scale where one that has not sent anything does not fall behind."""
        self._least_served = 0.0
        self._busy_until = -math.inf
        """When what was taken will be done, by the forecast."""
        self._tokens, self._questions, self._closed = 0, 0, False
        self._paces = StepTimes()
        self._changed = changed or Condition()
        self.beside: Callable[[], Iterable[TokenQueue]] = tuple
        """The other queues of its thread, which has equal time for each."""

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

    def seconds(self, tokens: int) -> float:
        """How long so many tokens take among others, by what was measured; 0 before anything was."""
        return tokens * self._paces.pace

    def step_seconds(self, tokens: int) -> float:
        """How long a step of so many tokens takes."""
        return self._paces.of_step(tokens)

    def tokens_within(self, seconds: float) -> float:
        """The most tokens of a step that takes so many seconds."""
        return self._paces.within(seconds)

    def forecast(self) -> float:
        """How long the waiting work takes, as `seconds`."""
        return self.seconds(self._tokens)

    def worked(self, tokens: int, seconds: float) -> None:
        """Learn from a step that was computed."""
        self._paces.add(tokens, seconds)

    def gave_up(self, seconds: float) -> None:
        """A step was not computed to its end, which would have taken so many seconds."""
        self._busy_until -= max(0.0, seconds)

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
                    self._enter(item)
                self._tokens += tokens
                self._questions += questions
                self._changed.notify()
        self._tell_late(late)
        if error is not None:
            raise error
        for item in items:  # not under the lock: one that is cancelled already calls back here
            item.future.add_done_callback(lambda done, item=item: self._on_done(item))  # type: ignore[misc]

    def key_of(self, work: float, entered: float) -> float:
        """The key of so many seconds of work that came at a time."""
        return entered if self._aging == math.inf else work + self._aging * entered

    def precedes(self, key: float) -> bool:
        """Whether the first item has a smaller key."""
        with self._changed:
            head = self._head()
            return head is not None and head.key[0] < key

    def take(
        self,
        budget: float,
        before: float = math.inf,
        worthwhile: Callable[[Sequence[Item]], bool] = lambda items: True,
    ) -> list[Item]:
        """The first item, and the next ones of its kind that together cost no more than the budget (tokens).
        They count as running from now on.

        Args:
            before: only items with smaller keys; then the first too costs no more than the budget, else it is
                taken whatever it costs. worthwhile: whether to take what was chosen.

        Returns:
            None of them cancelled or late; empty if there was nothing.
        """
        with self._changed:
            late = self._leave_late()
            chosen = self._next(budget, before)
            if not worthwhile(chosen):
                chosen = []
            self._serve(chosen)
            for item in chosen:
                self._leave(item)
        self._tell_late(late)
        running = []
        for item in chosen:
            if item.future.set_running_or_notify_cancel():
                running.append(item)
            else:
                self._dropped(item, "cancelled")
        self._busy_until = max(self._busy_until, self._clock()) if before < math.inf else self._clock()
        self._busy_until += self.step_seconds(sum(item.tokens for item in running))
        return running

    def close(self) -> None:
        """Take nothing in any more; what waits can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _enter(self, item: Item) -> None:
        item.entered = self._clock()
        item.key = (self.key_of(self.seconds(item.tokens), item.entered), next(self._numbers))
        self._waiting[item] = None
        insort(self._ordered, item, key=_key)
        if not self._clients[item.client]:  # no credit for the time in which it sent nothing
            self._served[item.client] = max(self._served.get(item.client, 0.0), self._least_served)
        self._clients[item.client] += 1

    def _error_of(self, count: int, tokens: int, deadline: float) -> Overload | None:
        ahead = self.forecast() + max(self._busy_until - self._clock(), 0.0)
        ahead += sum(min(ahead + self.seconds(tokens), other.forecast()) for other in self.beside())
        full = self._tokens + tokens > self.most_tokens or self._questions + count > self.most_questions
        # Of what comes alone it is no use to come again later.
        hopeless = ahead > 0 and self._clock() + SLACK * (ahead + self.seconds(tokens)) > deadline
        if not (full or hopeless or self._closed):
            return None
        return Overload("queue_full" if full else "forecast", min(60, max(1, math.ceil(ahead))))

    def _serve(self, chosen: Sequence[Item]) -> None:
        if chosen:
            self._least_served = self._served[chosen[0].client]
        for item in chosen:
            self._served[item.client] += item.tokens
        if len(self._served) > CLIENTS:
            self._served = {client: self._served[client] for client in self._clients}

    def _head(self) -> Item | None:
        if not self._ordered:
            return None
        if self._pressed():
            return next(iter(self._waiting))
        if len(self._clients) == 1:
            return self._ordered[0]
        client = min(self._clients, key=self._served.__getitem__)
        return next(item for item in self._ordered if item.client == client)

    def _pressed(self) -> bool:
        """Whether deadlines would be missed if the oldest item waited on."""
        now = self._clock()
        if SLACK * self.forecast() <= next(iter(self._waiting)).deadline - now:  # as nearly always
            return False
        work = 0.0
        for item in self._waiting:
            work += SLACK * self.seconds(item.tokens)
            if work > item.deadline - now:
                return True
        return False

    def _next(self, budget: float, before: float) -> list[Item]:
        head = self._head()
        if head is None or (before < math.inf and not (head.key[0] < before and head.tokens <= budget)):
            return []
        chosen, spent, soonest = [head], head.tokens, head.deadline
        for item in self._waiting if self._pressed() else self._ordered:
            if spent >= budget or item.key[0] >= before:
                break
            larger = spent + item.tokens
            deadline = min(soonest, item.deadline)
            fits = larger <= budget and self._clock() + self.step_seconds(larger) <= deadline
            if item is not head and item.kind == head.kind and fits:
                chosen.append(item)
                spent, soonest = larger, deadline
        return chosen

    def _leave(self, item: Item) -> bool:
        if item not in self._waiting:
            return False
        del self._waiting[item]
        del self._ordered[bisect_left(self._ordered, item.key, key=_key)]
        self._clients[item.client] -= 1
        if not self._clients[item.client]:
            del self._clients[item.client]
        self._tokens -= item.tokens
        self._questions -= len(item.questions)
        return True

    def _leave_late(self) -> list[Item]:
        now = self._clock()
        late = [item for item in self._waiting if item.deadline <= now + self.step_seconds(item.tokens)]
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


def _key(item: Item) -> tuple[float, float]:
    return item.key
