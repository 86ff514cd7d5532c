"""The queue alone, on a clock of its own."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.serving import queue as queue_file
from albertine.serving.queue import AGING, Item, Overload, TokenQueue, TooLate
from tests.test_architecture import imports

SIZES = {"many": 10, "few": 10, "large": 50}
"""Tokens of the items of clients."""


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def item(tokens: int = 1, kind: str = "a", deadline: float = 100.0) -> Item:
    return Item(kind, [None], tokens, deadline)


def test_only_the_standard_library_is_known_here() -> None:
    """So that it works with another engine, or none. Catches: `import torch` for a type, a web
    framework's exceptions."""
    found = {
        name.partition(".")[0] for _, name in imports(ast.parse(Path(queue_file.__file__).read_text("utf-8")))
    }
    assert found <= sys.stdlib_module_names


def test_one_kind_up_to_the_budget_and_the_oldest_always() -> None:
    """Catches: kinds mixed in a step; a budget that is exceeded; an item beyond the budget that never
    runs."""
    queue = TokenQueue(1000, 100, Clock())
    big, other, small, second = item(500), item(5, "b"), item(5), item(5)
    queue.put([big, other, small, second])
    assert queue.take(10) == [big]
    assert queue.take(10) == [other]
    assert queue.take(10) == [small, second]
    assert queue.take(10) == [] and queue.tokens == 0


def paced(clock: Clock, aging: float = AGING) -> TokenQueue:
    """A queue where a token takes .01 s."""
    queue = TokenQueue(100_000, 1000, clock, aging=aging)
    queue.worked(1000, 10.0)
    return queue


def test_the_shortest_is_first_and_none_waits_for_ever() -> None:
    """Catches: a short text behind a long one; a long one behind short ones without end."""
    clock = Clock()
    queue, long, short = paced(clock), item(500, deadline=1e6), item(5, deadline=1e6)
    queue.put([long, short])
    assert queue.take(10) == [short] and queue.take(10) == [long]
    queue.put([long := item(500, deadline=1e6)])
    waited = 0
    while True:  # work arrives as fast as it is done
        queue.put([item(5, deadline=1e6)])
        [taken] = queue.take(5)
        if taken is long:
            break
        clock.now += 0.05
        waited += 1
    assert waited == pytest.approx(500 * 0.01 / AGING / 0.05, rel=0.1)  # its work, 5 s, by .1 s a second


def test_without_limit_to_aging_the_order_is_that_of_arrival() -> None:
    queue = paced(Clock(), aging=float("inf"))
    every = [item(n) for n in (50, 3, 700, 1)]
    queue.put(every)
    assert [queue.take(1)[0] for _ in every] == every


def test_the_oldest_is_first_when_its_deadline_is_near() -> None:
    clock = Clock()
    queue, long = paced(clock), item(500, deadline=20.0)  # 5 s of work
    queue.put([long])
    clock.now = 13.6  # 6.4 s are left
    queue.put([item(5)])
    assert queue.take(5) != [long]
    clock.now = 13.8
    queue.put([item(5)])
    assert queue.take(5) == [long]


def test_the_oldest_is_first_when_many_deadlines_are_near() -> None:
    """Catches: items that can each be computed in time, and not all of them."""
    clock = Clock()
    queue, oldest = paced(clock, 0.01), [item(20, deadline=4.0) for _ in range(10)]  # .2 s each
    queue.put(oldest)
    clock.now = 1.4  # 2.6 s are left, and 10 items take 2 s
    queue.put([item(5, deadline=5.4)])
    assert queue.take(5) != oldest[:1]
    clock.now = 1.6
    queue.put([item(5, deadline=5.6)])
    assert queue.take(5) == oldest[:1]


def test_clients_get_equal_shares() -> None:
    """Catches: one client with many requests that keeps others waiting, or is kept waiting by them; credit
    for a time in which a client sent nothing."""
    queue = paced(Clock())
    of = {name: [Item("a", [None], tokens, 1e6, name) for _ in range(100)] for name, tokens in SIZES.items()}
    queue.put(of["many"])
    for _ in range(50):
        queue.take(10)
    queue.put([*of["few"], *of["large"]])
    taken: Counter[Any] = Counter()
    while sum(taken.values()) < 600:
        [one] = queue.take(1)
        taken[one.client] += one.tokens
    assert all(count == pytest.approx(200, abs=50) for count in taken.values())


def test_only_what_precedes_is_taken_between_layers() -> None:
    queue = paced(Clock())
    short, middle, long = item(5), item(50), item(500)
    queue.put([short, middle, long])
    assert queue.precedes(queue.key_of(1.0, 0.0)) and not queue.precedes(0.01)
    assert queue.take(100, queue.key_of(1.0, 0.0), lambda items: len(items) > 2) == []
    assert queue.take(4, before=queue.key_of(1.0, 0.0)) == []
    assert queue.take(100, before=queue.key_of(1.0, 0.0)) == [short, middle]
    assert queue.take(1000, before=queue.key_of(1.0, 0.0)) == []
    assert queue.take(10) == [long]


def test_what_does_not_fit_is_passed_over_and_comes_first_next_time() -> None:
    """Catches: a queue that stops at the first item that does not fit."""
    queue = TokenQueue(1000, 100, Clock())
    first, long, short = item(6), item(8), item(4)
    queue.put([first, long, short])
    assert queue.take(10) == [first, short]
    assert queue.take(10) == [long]


def test_all_or_none() -> None:
    """Catches: items of a refused request that stay in the queue."""
    queue = TokenQueue(10, 3, Clock())
    queue.put([item(5)])
    with pytest.raises(Overload) as full:
        queue.put([item(3), item(3)])
    assert full.value.reason == "queue_full" and full.value.retry_after >= 1
    assert queue.tokens == 5 and len(queue) == 1
    queue.put([item(1), item(1)])
    with pytest.raises(Overload):
        queue.put([item(1)])
    with pytest.raises(Overload):
        queue.check(1, 100.0)


def test_cancelled_gives_its_room_back_at_once() -> None:
    """Catches: cancelled items that keep others out until their turn comes; and that are computed."""
    gone = []
    queue = TokenQueue(10, 10, Clock(), dropped=lambda item, reason: gone.append(reason))
    mine, other = item(6), item(4)
    queue.put([mine, other])
    mine.future.cancel()
    assert queue.tokens == 4
    queue.put([item(6)])
    assert mine not in queue.take(100) and gone == ["cancelled"]


def test_late_items_are_refused_and_never_taken() -> None:
    """Catches: an expired item that is computed; `<` in place of `<=` at the deadline."""
    clock, gone = Clock(), []
    queue = TokenQueue(10, 10, clock, dropped=lambda item, reason: gone.append(reason))
    late, fresh = item(5, deadline=1.0), item(5, deadline=3.0)
    queue.put([late, fresh])
    clock.now = 1.0
    assert queue.take(100) == [fresh]
    with pytest.raises(TooLate):
        late.future.result(timeout=0)
    assert gone == ["deadline"]


def test_room_of_the_late_is_given_to_the_new() -> None:
    """Catches: a full queue of expired items that refuses what could be answered."""
    clock = Clock()
    queue = TokenQueue(10, 10, clock)
    queue.put([item(10, deadline=1.0)])
    clock.now = 2.0
    queue.put([item(10)])
    assert queue.tokens == 10


def test_what_cannot_be_answered_in_time_is_refused_now() -> None:
    """Catches: a 504 later in place of a 429 now; a pace that short steps decide."""
    clock = Clock()
    queue = TokenQueue(10_000, 100, clock)
    queue.worked(1000, 10.0)
    queue.worked(2, 1.0)  # one short text, dear for its tokens
    queue.put([item(1000)])
    assert 9.0 < queue.forecast() < 13.0
    with pytest.raises(Overload) as hopeless:
        queue.put([item(1, deadline=5.0)])
    assert hopeless.value.reason == "forecast" and 9 <= hopeless.value.retry_after <= 13
    queue.put([item(1, deadline=20.0)])


def test_a_closed_queue_accepts_nothing_and_returns_the_rest() -> None:
    queue = TokenQueue(10, 10, Clock())
    queue.put([item()])
    queue.close()
    with pytest.raises(Overload):
        queue.put([item()])
    assert len(queue.take(10)) == 1


ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.lists(
                st.tuples(st.integers(1, 40), st.sampled_from("ab"), st.integers(1, 8)),
                min_size=1,
                max_size=4,
            ),
        ),
        st.tuples(st.just("take"), st.integers(1, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("wait"), st.integers(1, 3)),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(ACTIONS)
def test_every_item_ends_exactly_once(actions: list[tuple[str, object]]) -> None:
    """Whatever is put, taken, cancelled and late: no item is given twice or lost, limits hold, and the count
    of tokens is that of the items. Catches: a count that misses an item, or is lowered twice."""
    clock = Clock()
    dropped: list[Item] = []
    queue = TokenQueue(100, 10, clock, dropped=lambda item, _: dropped.append(item))
    known: list[Item] = []
    taken: list[Item] = []
    for what, how in actions:
        if what == "put":
            assert isinstance(how, list)
            items = [item(tokens, kind, clock.now + life) for tokens, kind, life in how]
            try:
                queue.put(items)
            except Overload:
                continue
            known += items
        elif what == "take":
            assert isinstance(how, int)
            waiting = [i for i in known if i not in taken and i not in dropped and i.deadline > clock.now]
            chosen = queue.take(how)
            assert len({i.kind for i in chosen}) <= 1
            assert len(chosen) <= 1 or sum(i.tokens for i in chosen) <= how
            assert bool(chosen) == bool(waiting) and (not chosen or chosen[0] is waiting[0])
            taken += chosen
        elif what == "cancel" and known:
            assert isinstance(how, int)
            known[how % len(known)].future.cancel()
        elif what == "wait":
            assert isinstance(how, int)
            clock.now += how
        rest = [i for i in known if i not in taken and i not in dropped]
        assert queue.tokens == sum(i.tokens for i in rest) <= 100 and len(queue) == len(rest) <= 10
    clock.now += 1000
    queue.take(1)
    assert len(taken) + len(dropped) == len(known) == len({*taken, *dropped})
    for one in dropped:
        with pytest.raises((TooLate, CancelledError)):
            one.future.result(timeout=0)


def test_a_larger_step_than_any_before_is_tried() -> None:
    """Catches: a forecast in proportion to the size, which drops a large item of an idle server before it is
    ever measured."""
    clock = Clock()
    queue = TokenQueue(100_000, 100, clock)
    for _ in range(20):
        queue.worked(4, 0.03)
    item = Item("a", ["x"], 4096, clock.now + 30)
    queue.put([item])
    assert queue.take(4096) == [item]
    queue.worked(4096, 5.0)
    assert queue.step_seconds(4096) > 1


def test_work_of_other_models_counts_in_the_forecast() -> None:
    """Catches: requests that are let in as if the thread were for their model alone, and then dropped."""
    clock = Clock()
    mine, other = TokenQueue(100_000, 100, clock), TokenQueue(100_000, 100, clock)
    for queue, beside in ((mine, other), (other, mine)):
        queue.worked(100, 1.0)
        queue.beside = lambda beside=beside: [beside]  # type: ignore[misc]
        queue.put([Item("a", ["x"], 1000, clock.now + 100)])
    with pytest.raises(Overload, match="forecast"):
        mine.put([Item("a", ["x"], 500, clock.now + 30)])
    mine.put([Item("a", ["x"], 500, clock.now + 60)])
