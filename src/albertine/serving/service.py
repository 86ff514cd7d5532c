"""A served model without its routes: its queue, and the threads that tokenise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Event, Lock
from typing import Any, Protocol, TypeVar

from albertine.core.token_batches import batch_by_tokens
from albertine.errors import AlbertineError
from albertine.serving.engine import Engine, Result
from albertine.serving.error_responses import http_error_of
from albertine.serving.limits import ServingLimits
from albertine.serving.metrics import ModelMetrics, ServerMetrics
from albertine.serving.model_tasks import BatchKey, ServedModel, ability
from albertine.serving.queue import AGING, LEAST, Item, Overload, TokenQueue, TooLate
from albertine.serving.worker import Worker
from albertine.tasks.http.base import InputLength
from albertine.tasks.http.errors import HttpError, invalid

T = TypeVar("T")
TOKENIZING = 2
"""Threads that tokenise texts of usual length. Long ones have a thread of their own, and room of their own to
wait in, so that they hold no others up."""
LONG = 65_536
"""Characters of a request that is long, and of what is tokenised before it is checked whether its client is
still there."""
CHARACTERS = 8
"""That may wait to be measured, for each token that may wait. One request alone may have as many, or all that
a body holds: more it has only where a text is laid out several times."""
INLINE = 2000
"""Characters below which the way to another thread takes longer than the tokenizer."""
FRESH = 10.0
"""Seconds after a successful step during which the model counts as ready."""
PROBE = 5.0
"""Seconds that a synthetic question may take."""
SOON = 0.01
"""Seconds after which it is watched whether the client of a request has left."""
GRACE = 1.0
"""Seconds after a deadline in which the engine itself reports that it passed."""


class Usage(Protocol):
    """The costs of a request."""

    tokens: int
    truncated: int
    tokenizing: float
    waited: float
    computed: float


async def in_time(futures: Sequence[Future[Any]], gone: Callable[[], Any], seconds: float) -> None:
    """Wait until all futures of other threads are done, at least one. What is not is cancelled.

    The loop is woken once, where `asyncio.wrap_future` would wake it for each of them, and what an answer
    within `SOON` does not need is not started: either took longer than a small model.

    Raises:
        HttpError: the client has left, or so many seconds are over.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[str] = loop.create_future()
    left = iter(range(len(futures) - 1, -1, -1))  # `next` is one step for all threads
    watching: list[asyncio.Future[Any]] = []

    def end(why: str) -> None:
        if not ended.done():
            ended.set_result(why)

    def one_done(_: Future[Any]) -> None:
        if next(left) == 0:
            with suppress(RuntimeError):  # the loop has ended, and nothing waits
                loop.call_soon_threadsafe(end, "done")

    def watch() -> None:
        watching.append(asyncio.ensure_future(gone()))
        watching[0].add_done_callback(lambda _: end("left"))

    timers = loop.call_later(SOON, watch), loop.call_later(max(seconds, 0.0), end, "late")
    for future in futures:
        future.add_done_callback(one_done)
    try:
        why = await ended
    finally:
        for timer in timers:
            timer.cancel()
        for watcher in watching:
            watcher.cancel()
        for future in futures:
            future.cancel()
    if why == "left":
        raise HttpError(499, "client_left", "the client has left")
    if why == "late":
        raise http_error_of(TooLate(), 0)


class Abandoned(Exception):
    """The result of a thread that tokenises is no longer needed."""


class Service:
    """One model that is served.

    Attributes:
        running: requests that use it.

    Args:
        worker: computes for it once its engine was added. budget: tokens of a step. aging: of the queue.
    """

    def __init__(
        self,
        model: ServedModel,
        limits: ServingLimits,
        worker: Worker,
        metrics: ServerMetrics,
        *,
        budget: int | None = None,
        aging: float = AGING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model, self.limits, self.clock = model, limits, clock
        self.sha = model.predictor.fingerprint
        self.metrics = counts = ModelMetrics(metrics, model.name, (*model.tasks, *model.views))
        self.queue = TokenQueue(
            limits.queue_tokens,
            limits.queue_items,
            clock,
            # Not of `self`: a cycle would keep the memory of an unloaded model.
            lambda item, reason: counts.dropped(item.tokens, reason, len(item.questions)),
            worker.changed,
            aging,
        )
        self._worker = worker
        self.engine = Engine(
            model.answer,
            self.queue,
            budget or model.step_tokens,
            self.metrics,
            clock,  # type: ignore[arg-type]
        )
        self._pools = {
            False: ThreadPoolExecutor(TOKENIZING, "albertine lengths"),
            True: ThreadPoolExecutor(1, "albertine long lengths"),
        }
        """Thread pools for short (False) and long requests; so are the counts of characters."""
        self._characters, self._changing = {False: 0, True: 0}, Lock()
        self.running = 0

    def close(self) -> None:
        """Tokenise nothing more."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def stop(self, patience: float) -> bool:
        """Finish what waits, and take nothing more; whether that was done within so many seconds."""
        self.close()
        return self._worker.remove(self.engine, patience)

    @property
    def tokenizing(self) -> bool:
        """Whether texts are tokenised by threads, or wait for that."""
        with self._changing:
            return any(self._characters.values())

    def check_task(self, task: str) -> None:
        """
        Raises:
            HttpError: the model has no such task.
        """
        if task in self.model.tasks:
            return
        able = ", ".join(map(ability, self.model.tasks))
        raise invalid(
            "not_for_this_model",
            f"this model is not one that {ability(task)}; it {able}",
            wanted=task,
            able=list(self.model.tasks),
        )

    def check_view(self, name: str) -> None:
        """
        Raises:
            HttpError: the model does not have this view.
        """
        if (missing := self.model.views[name]) is not None:
            raise invalid("not_for_this_model", missing, wanted=name, able=list(self.model.tasks))

    @property
    def most_inputs(self) -> int:
        """Questions that one request may have."""
        return min(self.limits.queue_items, self.limits.queue_tokens // LEAST)

    def check_size(self, *, inputs: int = 0, characters: int = 0, tokens: int = 0) -> None:
        """
        Args:
            characters: to encode.

        Raises:
            HttpError: more than one request may have, however idle the server is.
        """
        most = max(CHARACTERS * self.limits.queue_tokens, self.limits.body_bytes)
        for count, what, limit in (
            (inputs, "inputs", self.most_inputs),
            (characters, "characters (a passage for each option, a query for each text)", most),
            (tokens, "tokens", self.limits.queue_tokens),
        ):
            if count > limit:
                raise invalid(
                    "batch_too_large",
                    f"{count:,} {what} at once, and the server takes in {limit:,}; send fewer",
                    limit=limit,
                )

    @property
    def deadline(self) -> float:
        """The deadline of a request that arrives now."""
        return self.clock() + self.limits.deadline_seconds

    async def run(
        self,
        task: Callable[[Callable[[], None]], T],
        characters: int,
        gone: Callable[[], Any],
        deadline: float,
    ) -> T:
        """Something that takes the tokenizer: if it is large by other threads, since it must not hold up the
        loop. It is not begun for a client that has left.

        Args:
            task: is given a function to call from time to time, which ends the task by an exception when
                its result is no longer needed.

        Raises:
            HttpError: no room to wait, or too late.
        """
        if characters < INLINE:
            return task(lambda: None)
        left = Event()

        def check() -> None:
            if left.is_set():
                raise Abandoned

        try:
            work = self._begin(lambda: task(check), characters)
        except Overload as error:
            raise self._overloaded(error, 1) from None
        try:
            await in_time([work], gone, deadline - self.clock())
        finally:
            left.set()
        return work.result()

    def _begin(self, task: Callable[[], T], characters: int) -> Future[T]:
        long = characters > LONG

        def end(_: Future[T]) -> None:
            with self._changing:
                self._characters[long] -= characters

        with self._changing:
            waiting = self._characters[long]
            if waiting and waiting + characters > CHARACTERS * self.limits.queue_tokens:
                raise Overload("queue_full", 1)
            self._characters[long] += characters
        work = self._pools[long].submit(task)
        work.add_done_callback(end)
        return work

    async def answer(
        self,
        key: BatchKey,
        questions: Sequence[Any],
        usage: Usage,
        gone: Callable[[], Any],
        *,
        truncate: bool | None,
        left: bool = False,
        client: Hashable = None,
    ) -> list[Any]:
        """The answers to all questions of a request.

        Args:
            gone: awaited until the client has left; then nothing of its questions is computed any more.
            truncate: whether too long ones are cut; None: as the server is configured. left: on which side.
            client: who sent them, for fair shares.

        Raises:
            HttpError: too long, too many, too late, no room, or an answer failed.
        """
        deadline = self.deadline
        # What never fits is refused for good; what does not fit now may come again.
        characters = self.model.characters(key, questions)
        self.check_size(inputs=len(questions), characters=characters)
        try:
            self.queue.check(len(questions), deadline)
        except Overload as error:
            raise self._overloaded(error, len(questions)) from None
        began = self.clock()
        lengths: list[InputLength] = await self.run(
            lambda check: self._lengths(key, questions, check), characters, gone, deadline
        )
        too_long = [i for i, one in enumerate(lengths) if one.cut]
        if too_long and not (self.limits.auto_truncate if truncate is None else truncate):
            one = lengths[too_long[0]]
            raise invalid(
                "input_too_long",
                f"input {too_long[0]} has {one.length} tokens, and the model reads {one.limit}; "
                "shorten it, or send truncate: true",
                index=too_long[0],
                tokens=one.length,
                limit=one.limit,
            )
        if too_long:
            uncut, cut = questions, self._cut_left if left else self._cut_right
            questions = await self.run(
                lambda check: cut(key, uncut, too_long, check), characters, gone, deadline
            )
        usage.tokenizing += self.clock() - began
        self.check_size(tokens=(tokens := sum(one.tokens for one in lengths)))
        self.model.task(key.task).check_lengths(lengths)
        items = self._items(key, questions, lengths, deadline, client)
        values = await self._answers(items, usage, gone)
        usage.tokens += tokens
        usage.truncated += len(too_long)
        self.metrics.truncated(sum(lengths[i].length - lengths[i].limit for i in too_long))
        return values

    def _items(
        self,
        key: BatchKey,
        questions: Sequence[Any],
        lengths: Sequence[InputLength],
        deadline: float,
        client: Hashable,
    ) -> list[Item]:
        """The questions of a request in items that a step computes, in their order."""
        items = []
        costs = [length.tokens for length in lengths]
        for chosen in batch_by_tokens(range(len(questions)), costs, self.engine.budget):
            prepared = [
                questions[i] if lengths[i].cut or lengths[i].encoded is None else lengths[i].encoded
                for i in chosen
            ]
            items.append(Item(key, prepared, sum(costs[i] for i in chosen), deadline, client))
        return items

    async def _answers(self, items: Sequence[Item], usage: Usage, gone: Callable[[], Any]) -> list[Any]:
        try:
            self.queue.put(items)
        except Overload as error:
            raise self._overloaded(error, sum(len(item.questions) for item in items)) from None
        try:
            await in_time([item.future for item in items], gone, items[0].deadline - self.clock() + GRACE)
        except BaseException:
            for item in items:  # those that are being computed cannot be cancelled
                item.abandoned = True
            raise
        values: list[Any] = []
        spans: list[tuple[float, float]] = []
        for item in items:
            if (failure := item.future.exception()) is not None:
                raise http_error_of(failure, len(values))
            found: Result = item.future.result()
            for index, value in enumerate(found.values, len(values)):
                if isinstance(value, Exception):
                    raise http_error_of(value, index)
            self.metrics.waited(found.waited)
            spans.append((found.waited, found.waited + found.computed))
            usage.waited = max(usage.waited, found.waited)
            values += found.values
        usage.computed += max(end for _, end in spans) - min(begin for begin, _ in spans)
        return values

    def _lengths(
        self, key: BatchKey, questions: Sequence[Any], check: Callable[[], None]
    ) -> list[InputLength]:
        """How long questions are.

        Raises:
            HttpError: the model cannot answer one of them; it is named.
        """
        found: list[InputLength] = []
        size = begin = 0
        try:
            for end, question in enumerate(questions, 1):
                size += self.model.characters(key, [question])
                if size >= LONG or end == len(questions):
                    found += self.model.lengths(key, questions[begin:end])
                    begin, size = end, 0
                    check()
            return found
        except AlbertineError:
            for index, question in enumerate(questions):
                try:
                    self.model.lengths(key, [question])
                except AlbertineError as error:
                    raise http_error_of(error, index) from None
            raise

    def _cut_right(
        self, key: BatchKey, questions: Sequence[Any], which: Sequence[int], check: Callable[[], None]
    ) -> list[Any]:
        """Questions as `HttpTask.cut_right` truncates them."""
        found = list(questions)
        for i in which:
            check()
            found[i] = self.model.task(key.task).cut_right(found[i])
        return found

    def _cut_left(
        self, key: BatchKey, questions: Sequence[Any], which: Sequence[int], check: Callable[[], None]
    ) -> list[Any]:
        """Questions as `HttpTask.cut_left` truncates them."""
        found, task = list(questions), self.model.task(key.task)
        for i in which:
            check()
            cut = task.cut_left(found[i], lambda text: self.model.end_that_fits(key, text))
            if cut is None:
                raise invalid(
                    "no_left_cut",
                    "only a single text can be truncated at its beginning, and not where the response has "
                    "places in it",
                    index=i,
                )
            found[i] = cut
        return found

    async def ready(self) -> bool:
        """Whether the model answers: lately it has, or does so now to a question of our own."""
        if self.clock() - self.engine.last_step < FRESH:
            return True
        key, question = self.model.probe
        item = Item(key, [question], 4, self.clock() + PROBE)
        try:
            self.queue.put([item])
            found: Result = await asyncio.wait_for(asyncio.wrap_future(item.future), PROBE)
        except Exception:
            return False
        return not isinstance(found.values[0], Exception)

    def _overloaded(self, error: Overload, count: int) -> HttpError:
        self.metrics.failed(error.reason, count)
        return http_error_of(error, 0)
