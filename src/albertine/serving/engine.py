"""One model's part of the computation: a batch from its queue in one call, and the answers delivered.

It depends on the queue and one function, not on models. `albertine.serving.worker` calls it.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from albertine.errors import AlbertineError, NotFinite
from albertine.serving.queue import Item, TokenQueue, TooLate

log = logging.getLogger("albertine.serving")

AnswerFunction = Callable[[Any, Sequence[Any]], Sequence[Any]]
"""(kind, questions) → their answers, in order."""


class Result(NamedTuple):
    """The answers to the questions of an item, and the seconds that it waited and was computed. Instead of
    the answer to a question that failed stands its exception."""

    values: list[Any]
    waited: float
    computed: float


class Abandoned(Exception):
    """Nobody waits for the answers of a step any more."""


class Step:
    """Items that are being computed.

    Attributes:
        seconds: that they take by the queue's forecast. key: of the first that came, without its work.
        began: when it was begun, on the clock.
        paused: seconds in which other steps were computed between its layers.
    """

    def __init__(self, items: Sequence[Item], queue: TokenQueue) -> None:
        self.items, self._queue, self.paused, self.began = items, queue, 0.0, 0.0
        self.seconds = queue.step_seconds(sum(item.tokens for item in items))
        self._entered = min(item.entered for item in items)

    def key(self, left: float) -> float:
        """Its place in the order of the queue with so many seconds of work left."""
        return self._queue.key_of(left, self._entered)

    def wanted(self, end: float) -> bool:
        """Whether somebody waits for an answer that comes at a time."""
        return any(not item.abandoned and end <= item.deadline for item in self.items)

    def in_time(self, end: float) -> bool:
        """Whether everybody who waits has the answers at a time."""
        return all(item.abandoned or end <= item.deadline for item in self.items)


class Observer(Protocol):
    """Receives the counts of the engine, for metrics."""

    def step(self, kind: Hashable, items: int, tokens: int, seconds: float) -> None: ...

    def failed(self, reason: str, count: int = 1) -> None: ...


class Engine:
    """Computes what a queue holds, batch by batch.

    Attributes:
        last_step: when a question was answered last, on the clock; before, when the model was tried.
        not_finite: how many answers were not finite.

    Args:
        answer: the only function that uses the model. budget: tokens of a step.
    """

    def __init__(
        self,
        answer: AnswerFunction,
        queue: TokenQueue,
        budget: int,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._answer, self.queue, self.budget, self._observer = answer, queue, budget, observer
        self._clock = clock
        self.last_step, self.not_finite = clock(), 0

    def take(self) -> Step | None:
        """The next items of the queue, as `TokenQueue.take` chooses them; None: there are none."""
        items = self.queue.take(self.budget)
        return Step(items, self.queue) if items else None

    def take_before(self, waiting: Sequence[tuple[Step, float]]) -> Step | None:
        """Items to compute before the rest of the last of some steps: they precede it in the order of the
        queue, take less than half of its time, save more waiting than they cause, and make no step late.

        Args:
            waiting: steps, each computed between the layers of the one before, and the seconds of their
                rests.
        """
        now = self._clock()
        step, left = waiting[-1]
        delayed = sum(len(one.items) for one, _ in waiting)

        def worthwhile(items: Sequence[Item]) -> bool:
            seconds = self.queue.step_seconds(sum(item.tokens for item in items))
            if seconds > left / 2 or len(items) * left <= delayed * seconds:
                return False
            end = now + seconds
            for one, rest in reversed(waiting):
                end += rest
                if not one.in_time(end):
                    return False
            return True

        budget = min(self.budget, self.queue.tokens_within(left / 2))
        items = self.queue.take(budget, step.key(left), worthwhile)
        return Step(items, self.queue) if items else None

    def compute(self, step: Step) -> None:
        """Compute the items of a step, which are of one kind, in one call."""
        try:
            self._compute(step)
        except Exception as error:  # a bug: the thread must go on with other requests
            log.error("the engine failed: %s", traceback_without_text(error))
            for item in step.items:
                if not item.future.done():
                    item.future.set_exception(error)

    def _compute(self, step: Step) -> None:
        began, items = self._clock(), step.items
        questions = [question for item in items for question in item.questions]
        try:
            answers = iter(self._answers(items[0].kind, questions))
        except Abandoned:
            for item in items:
                self._observer.failed("cancelled" if item.abandoned else "deadline", len(item.questions))
                item.future.set_exception(TooLate())
            self.queue.gave_up(step.seconds - (self._clock() - began - step.paused))
            return
        seconds = self._clock() - began - step.paused
        tokens = sum(item.tokens for item in items)
        self.queue.worked(tokens, seconds)
        self._observer.step(items[0].kind, len(questions), tokens, seconds)
        for item in items:
            self._deliver(item, list(islice(answers, len(item.questions))), began, seconds)

    def _answers(self, kind: Hashable, questions: Sequence[Any]) -> list[Any]:
        """The answers to questions. If the call fails, each half alone, so that only the cause fails: its
        exception stands instead of an answer."""
        try:
            answers = list(self._answer(kind, questions))
            if len(answers) != len(questions):
                raise RuntimeError("the answers are not as many as the questions")
            return answers
        except Abandoned:
            raise
        except Exception as error:
            if len(questions) == 1:
                return [error]
            middle = len(questions) // 2
            return self._answers(kind, questions[:middle]) + self._answers(kind, questions[middle:])

    def _deliver(self, item: Item, answers: list[Any], began: float, seconds: float) -> None:
        now = self._clock()
        values = list(map(self._checked, answers))
        if not all(isinstance(value, Exception) for value in values):
            self.last_step = now
        if now > item.deadline:
            self._observer.failed("deadline", len(item.questions))
            item.future.set_exception(TooLate())
        else:
            item.future.set_result(Result(values, began - item.entered, seconds))

    def _checked(self, answer: Any) -> Any:
        """An answer, or the exception in its place, which is counted."""
        if not isinstance(answer, Exception) and not finite(answer):
            answer = NotFinite("gave numbers that are not finite", remedy=None)
        if isinstance(answer, NotFinite):
            self.not_finite += 1
            self._observer.failed("non_finite_output")
        elif isinstance(answer, Exception) and not isinstance(answer, AlbertineError):
            self._observer.failed("exception")
            log.error("a step failed: %s", traceback_without_text(answer))
        return answer


def finite(answer: Any) -> bool:
    """Whether every number in an answer is finite."""
    if isinstance(answer, np.ndarray | np.generic):
        return bool(np.isfinite(answer).all())
    if isinstance(answer, float):
        return answer - answer == 0.0
    if isinstance(answer, Mapping):
        return all(map(finite, answer.values()))
    if isinstance(answer, list | tuple):
        return all(map(finite, answer))
    if hasattr(answer, "__dict__"):
        return finite(vars(answer))
    return True


def traceback_without_text(error: BaseException) -> str:
    """The kind of an error and where it arose. Its message, which may quote what a client
    sent, is left out."""
    places = traceback.extract_tb(error.__traceback__)[-4:]
    where = " < ".join(f"{frame.name}, line {frame.lineno}" for frame in reversed(places))
    return f"{type(error).__name__} in {where}" if where else type(error).__name__
