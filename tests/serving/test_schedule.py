"""Queue, engine and worker together, with a simulated model: what is computed between the layers of what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.serving.queue import Item
from tests.serving.simulated import Arrival, Simulated, mixed_load

A, C = 0.009, 0.00054
"""Of ALBERT-base in float32 on two cores with AMX: 17 tokens cost as much as a pass (serving.md 5)."""


def test_a_short_text_does_not_wait_for_a_long_pass() -> None:
    """S21. Catches: a short text that is answered after the long one, or whose first layer is more than one
    layer of the long one away."""
    made = Simulated(A, C, budget=8192)
    made.run([(0.0, 6000), (0.4, 20)])
    long, short = made.latencies()
    layer = (A + 6000 * C) / 12
    assert short <= layer + A + 20 * C + 1e-9 and short < long
    assert long == pytest.approx(A + 6000 * C + A + 20 * C)  # delayed by the other alone


def test_the_mix_of_lengths() -> None:
    """S24 and S25. Catches: an order in which long texts pay for short ones."""
    load = mixed_load(4000, A, C, 0.7, seed=1)
    found, before = Simulated(A, C), Simulated(A, C, aging=float("inf"))
    found.run(load)
    before.run(load)
    mine, theirs = found.latencies(), before.latencies()
    short = np.array([tokens <= 64 for _, tokens in load])
    longest = np.array([tokens == 512 for _, tokens in load])

    def ratio(which: np.ndarray, share: float) -> float:
        return float(np.quantile(mine[which], share) / np.quantile(theirs[which], share))

    everything = np.ones(len(load), dtype=bool)
    assert ratio(short, 0.99) <= 0.5
    assert ratio(everything, 0.99) <= 1.2
    assert ratio(everything, 0.5) <= 0.6
    assert ratio(longest, 0.99) <= 2.2


def test_a_step_that_nobody_waits_for_ends_at_the_next_layer() -> None:
    """S22. Catches: a pass that is computed to its end for a client that has left."""
    made = Simulated(A, C, budget=8192)

    def leave(item: Item) -> None:
        if item.tokens == 20:
            made.items[0].abandoned = True

    made.arrived = leave
    made.run([(0.0, 6000), (0.4, 20)])
    assert made.work == 6000 * 2 + 20 * 12  # two layers, then the short text, then nothing
    assert made.items[0].future.exception(0) is not None and made.items[1].future.result(0)


def test_late_steps_are_ended() -> None:
    """S23. Ten times as much work as can be done. Catches: late answers, work for answers that are late."""
    load = mixed_load(2000, A, C, 10.0)
    made = Simulated(A, C)
    made.run(load, deadline=0.5)
    answered = [item for item in made.items if item.future.exception(0) is None]
    assert answered and all(made.finished[item] - item.entered <= 0.5 for item in answered)
    useful = 12 * sum(item.tokens for item in answered)
    assert made.work - useful <= 0.05 * made.work


LOADS = st.lists(st.tuples(st.floats(0.0, 2.0), st.integers(1, 600)), min_size=1, max_size=25)


@settings(max_examples=150)
@given(LOADS, st.sampled_from([64, 256, 1024]))
def test_every_request_ends_once_and_in_a_bounded_time(load: list[Arrival], budget: int) -> None:
    """S44. Catches: an item that is lost or computed twice, a budget that is exceeded, starvation, an order
    that depends on anything but the load."""
    load = sorted(load)
    made, again = (Simulated(A, C, budget=budget) for _ in range(2))
    made.run(load)
    again.run(load)
    assert len(made.finished) == len(load) and made.work == 12 * sum(tokens for _, tokens in load)
    assert all(tokens <= budget or tokens in {n for _, n in load} for tokens in made.steps)
    everything = sum(A + C * tokens for _, tokens in load)
    assert made.latencies().max() <= everything + 1e-6  # the worker is never idle while something waits
    assert np.array_equal(made.latencies(), again.latencies()) and made.steps == again.steps
