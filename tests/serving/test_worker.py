"""The thread that computes for several models, with functions in place of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from albertine.serving import worker as worker_module
from albertine.serving.engine import Engine
from albertine.serving.queue import Item, TokenQueue
from albertine.serving.worker import Worker
from tests.serving.test_engine import Notes
from tests.serving.test_queue import Clock

Compute = Callable[[Any, Sequence[Any]], Sequence[Any]]


def engine_of(worker: Worker, compute: Compute, clock: Any, questions: int) -> tuple[Engine, list[Item]]:
    """An engine whose steps have one question each, with so many waiting."""
    queue = TokenQueue(10_000, 1000, clock, changed=worker.changed)
    engine = Engine(compute, queue, 1, Notes(), clock)
    items = [Item("k", [i], 1, float("inf")) for i in range(questions)]
    if items:
        queue.put(items)
    worker.add(engine)
    return engine, items


def test_models_with_work_get_equal_time() -> None:
    """Catches: turns by number of steps, which favour the model with the longer ones."""
    clock, log = Clock(), []
    worker = Worker(clock)

    def taking(name: str, seconds: float) -> Compute:
        def compute(kind: Any, questions: Sequence[Any]) -> Sequence[Any]:
            clock.now += seconds
            log.append((name, seconds))
            return questions

        return compute

    for name, seconds in (("quick", 1.0), ("slow", 4.0), ("middle", 2.0)):
        engine_of(worker, taking(name, seconds), clock, 400)
    worker.start()
    assert worker.stop(10.0)
    spent, until = dict.fromkeys(("quick", "slow", "middle"), 0.0), 300.0
    for name, seconds in log:
        if sum(spent.values()) >= until:
            break
        spent[name] += seconds
    assert all(seconds == pytest.approx(until / 3, rel=0.1) for seconds in spent.values())


def test_an_idle_model_has_no_credit() -> None:
    """Catches: a model that was idle for an hour and then has the worker to itself for an hour."""
    clock, log = Clock(), []
    worker = Worker(clock)
    late, _ = engine_of(worker, lambda kind, questions: questions, clock, 0)

    def busy(kind: Any, questions: Sequence[Any]) -> Sequence[Any]:
        clock.now += 1.0
        log.append("busy")
        if questions == [99]:
            late.queue.put([Item("k", [i], 1, float("inf")) for i in range(50)])
        return questions

    def also(kind: Any, questions: Sequence[Any]) -> Sequence[Any]:
        clock.now += 1.0
        log.append("late")
        return questions

    late._answer = also
    _, items = engine_of(worker, busy, clock, 200)
    worker.start()
    items[-1].future.result(10.0)
    assert worker.stop(10.0)
    assert log[100:140].count("late") == pytest.approx(20, abs=1)


def test_memory_is_trimmed_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a heap that grows by fragments for as long as a server is busy."""
    clock, calls = Clock(), []
    monkeypatch.setattr(worker_module, "trim_memory", lambda: calls.append(clock.now))
    worker = Worker(clock)

    def compute(kind: Any, questions: Sequence[Any]) -> Sequence[Any]:
        clock.now += 1.0
        return questions

    engine_of(worker, compute, clock, 100)
    worker.start()
    assert worker.stop(10.0)
    assert len(calls) == 100 // (worker_module.TRIM + 1)


def test_the_thread_ends_with_its_queues() -> None:
    """Catches: work that is left behind when the server ends."""
    worker = Worker()
    every = [engine_of(worker, lambda kind, questions: questions, Clock(), 20)[1] for _ in range(2)]
    worker.start()
    assert worker.stop(5.0) and all(item.future.done() for items in every for item in items)


def test_a_removed_model_answers_what_it_has() -> None:
    worker = Worker()
    engine, items = engine_of(worker, lambda kind, questions: questions, Clock(), 20)
    engine_of(worker, lambda kind, questions: questions, Clock(), 0)
    worker.start()
    assert worker.remove(engine, 5.0) and all(item.future.done() for item in items)
    assert worker.running and worker.stop(5.0)
