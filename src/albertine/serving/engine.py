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


class Observer(Protocol):
    """Receives the counts of the engine, for metrics."""

    def step(self, kind: Hashable, items: int, tokens: int, seconds: float) -> None: ...

    def failed(self, reason: str) -> None: ...


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

    def step(self) -> None:
        """Compute the next items of the queue, if there are any, in one call."""
        items = self.queue.take(self.budget)
        try:
            self._compute(items) if items else None
        except Exception as error:  # a bug: the thread must go on with other requests
            log.error("the engine failed: %s", traceback_without_text(error))
            for item in items:
                if not item.future.done():
                    item.future.set_exception(error)

    def _compute(self, items: Sequence[Item]) -> None:
        began = self._clock()
        questions = [question for item in items for question in item.questions]
        answers = iter(self._answers(items[0].kind, questions))
        seconds = self._clock() - began
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
            self._observer.failed("deadline")
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
