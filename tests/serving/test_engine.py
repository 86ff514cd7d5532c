"""The thread that runs the model, with functions in place of a model."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pytest

from albertine.errors import DataError, NotFinite
from albertine.inference.spans import LikelySpans
from albertine.serving.engine import Engine, finite, traceback_without_text
from albertine.serving.queue import Item, TokenQueue, TooLate
from tests.serving.test_queue import Clock


class Notes:
    """Counts the notifications of an engine."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.reasons: list[str] = []

    def step(self, kind: Hashable, items: int, tokens: int, seconds: float) -> None:
        self.steps.append(items)

    def failed(self, reason: str, count: int = 1) -> None:
        self.reasons.append(reason)


def run(questions: Sequence[Any], compute: Any, clock: Any = None) -> tuple[list[Item], Notes, Engine]:
    """Put questions into a queue, and let an engine do all of it."""
    notes, clock = Notes(), clock or Clock()
    queue = TokenQueue(10_000, 1000, clock)
    engine = Engine(compute, queue, 1000, notes, clock)
    items = [Item("k", [question], 1, 50.0) for question in questions]
    queue.put(items)
    compute_all(engine)
    return items, notes, engine


def compute_all(engine: Engine) -> None:
    step = engine.take()
    assert step is not None
    engine.compute(step)


def answer_of(item: Item) -> Any:
    (found,) = item.future.result(0).values
    return found


def test_one_call_for_all_and_each_its_own_answer() -> None:
    """Catches: a call for every item; answers in another order."""
    calls = []

    def compute(kind: Any, questions: Sequence[int]) -> list[int]:
        calls.append(len(questions))
        return [2 * q for q in questions]

    items, notes, _ = run(range(5), compute)
    assert calls == [5] and notes.steps == [5]
    assert [answer_of(item) for item in items] == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("error", [ValueError("no"), DataError("no"), MemoryError()])
def test_only_the_poisoned_item_fails(error: Exception) -> None:
    """Catches: a step that fails as a whole; an error that ends the thread."""

    def compute(kind: Any, questions: Sequence[int]) -> list[int]:
        if 37 in questions:
            raise error
        return list(questions)

    items, notes, _ = run(range(64), compute)
    answers = [answer_of(item) for item in items]
    assert answers == [error if i == 37 else i for i in range(64)]
    assert ("exception" in notes.reasons) == (not isinstance(error, DataError))


def test_a_poisoned_question_fails_alone_in_a_request_of_several() -> None:
    def compute(kind: Any, questions: Sequence[int]) -> list[float]:
        return [1 / q for q in questions]

    queue = TokenQueue(10_000, 1000, Clock())
    item, other = Item("k", [1, 2, 0, 4], 4, 50.0), Item("k", [8], 1, 50.0)
    queue.put([item, other])
    compute_all(Engine(compute, queue, 1000, Notes(), Clock()))
    one, half, error, quarter = item.future.result(0).values
    assert (one, half, quarter) == (1, 0.5, 0.25) and isinstance(error, ZeroDivisionError)
    assert answer_of(other) == 0.125


def test_a_missing_answer_is_an_error_and_not_another_ones_answer() -> None:
    items, _, _ = run([1, 2], lambda kind, questions: questions[:1] if len(questions) > 1 else questions)
    assert [answer_of(item) for item in items] == [1, 2]  # computed again, one by one


def test_not_finite_is_of_one_item() -> None:
    """Catches: NaN as an answer; an error of its neighbours."""
    answers = [np.ones(2), np.array([1, np.nan]), np.ones(2)]
    items, notes, engine = run([0, 1, 2], lambda kind, questions: [answers[q] for q in questions])
    first, second, third = map(answer_of, items)
    assert first is answers[0] and isinstance(second, NotFinite) and third is answers[2]
    assert engine.not_finite == 1 and notes.reasons == ["non_finite_output"]


@pytest.mark.parametrize(
    "answer",
    [
        np.float32("inf"),
        float("nan"),
        {"a": [float("inf")]},
        (1, [np.array([np.nan])]),
        LikelySpans({(0, 1): float("nan")}),
    ],
    ids=str,
)
def test_where_a_number_may_hide(answer: Any) -> None:
    assert not finite(answer)
    assert finite({"a": [1.0, "x", None], "b": LikelySpans({(0, 1): 0.5})})


def test_an_answer_after_the_deadline_is_none() -> None:
    clock = Clock()

    def compute(kind: Any, questions: Sequence[int]) -> Sequence[int]:
        clock.now = 51.0
        return questions

    items, _, _ = run([1], compute, clock)
    assert isinstance(items[0].future.exception(0), TooLate)


def test_an_error_is_logged_without_its_message() -> None:
    """Catches: a log line with what a client sent."""
    try:
        raise ValueError("a secret text")
    except ValueError as error:
        logged = traceback_without_text(error)
    assert "secret" not in logged and "ValueError" in logged and "line" in logged


def test_the_queue_learns_its_pace_from_every_step() -> None:
    clock = Clock()
    queue = TokenQueue(10_000, 1000, clock)

    def compute(kind: Any, questions: Sequence[int]) -> Sequence[int]:
        clock.now += 2.0
        return questions

    engine = Engine(compute, queue, 1000, Notes(), clock)
    queue.put([Item("k", [i], 5, 50.0) for i in range(4)])
    compute_all(engine)
    queue.put([Item("k", [9], 30, 50.0)])
    assert queue.forecast() == pytest.approx(3.0)  # 20 tokens took 2 s
