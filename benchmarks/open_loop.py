"""Latency of short and long texts under load, with and without steps between the layers of others.

    python -m benchmarks.open_loop --save

Requests come at times that were drawn before (Poisson), whether or not earlier ones have been answered, and
latency counts from these times. 95 % of the texts are short (log-normal, median 32 tokens), 5 % have 512.
They are put into the queue of the server's worker directly, without HTTP. The reference is the same worker
with items in the order of arrival, whose passes are not interrupted. Both get the same requests, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from albertine.bench.machine import describe, save_result
from albertine.core.batch import pack
from albertine.core.number_formats import InferencePrecision
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.serving.engine import Engine
from albertine.serving.queue import AGING, Item, TokenQueue
from albertine.serving.worker import Worker
from benchmarks.markdown import newest, table

SHORT, LONG = 64, 512
LATE = 0.005
"""Seconds by which requests may be put in too late (99 %), or a round does not count."""
ORDERS = {"between layers": AGING, "whole passes": float("inf")}


class Uncounted:
    """In place of metrics."""

    def step(self, kind: Any, items: int, tokens: int, seconds: float) -> None:
        pass

    def failed(self, reason: str, count: int = 1) -> None:
        raise SystemExit(f"a request failed: {reason}")


class Server:
    """A worker with one model.

    Args:
        budget: tokens of a step. aging: of its queue.
    """

    def __init__(self, model: Model, budget: int, aging: float) -> None:
        self.worker = Worker()
        self.queue = TokenQueue(10**9, 10**9, changed=self.worker.changed, aging=aging)
        self._model = model
        self.worker.add(Engine(self.answer, self.queue, budget, Uncounted()))

    def answer(self, kind: Any, rows: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        packed = pack(rows)
        with torch.inference_mode():
            found = self._model.encoder(packed, rows=packed.first_tokens).last_hidden.float()
        return list(found.numpy())


def lengths_of(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    found = np.clip(np.exp(rng.normal(np.log(32), 0.7, count)), 4, LONG).astype(np.int64)
    found[rng.random(count) < 0.05] = LONG
    return found


def capacity(model: Model, budget: int, seconds: float) -> float:
    """Tokens a second in steps of the whole budget."""
    server, rng = Server(model, budget, AGING), np.random.default_rng(0)
    paces: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(paces) < 3:
        rows, size = [], 0
        for length in lengths_of(1000, rng):
            if size + length <= budget:
                rows.append(rng.integers(5, 1000, length))
                size += int(length)
        began = time.monotonic()
        server.answer(None, rows)
        paces.append(size / (time.monotonic() - began))
    return statistics.median(paces)


def latencies(
    model: Model, budget: int, aging: float, times: NDArray[np.float64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.float64], float]:
    """Seconds from the intended time of every request to its answer, and by how much requests were put in too
    late (99 %)."""
    server, rng = Server(model, budget, aging), np.random.default_rng(1)
    rows = [rng.integers(5, 1000, length) for length in lengths]
    for size in (budget, budget // 2, 32) * 3:  # what steps take is known to a server that has been running
        began = time.monotonic()
        server.answer(None, [rng.integers(5, 1000, min(size, LONG))] * max(size // LONG, 1))
        server.queue.worked(max(size // LONG, 1) * min(size, LONG), time.monotonic() - began)
    server.worker.start()
    done = np.zeros(len(times))
    lag = np.zeros(len(times))
    left, everything = threading.Semaphore(0), len(times)
    begin = time.monotonic() + 0.1
    for i, (when, row) in enumerate(zip(begin + times, rows, strict=True)):
        time.sleep(max(when - time.monotonic(), 0.0))
        lag[i] = time.monotonic() - when

        def answered(future: Any, i: int = i) -> None:
            future.result()
            done[i] = time.monotonic()
            left.release()

        item = Item("embed", [row], len(row), when + 1000)
        item.future.add_done_callback(answered)
        server.queue.put([item])
    for _ in range(everything):
        left.acquire()
    server.worker.stop(10.0)
    return done - begin - times, float(np.quantile(lag, 0.99))


def measured(given: argparse.Namespace) -> dict[str, float]:
    model = Model(preset(given.model), set(), seed=0).eval()
    model.encoder.precision = given.precision
    rate = capacity(model, given.budget, 5.0)
    found: dict[str, list[float]] = {}
    for number in range(given.rounds):
        rng = np.random.default_rng(number)
        lengths = lengths_of(given.requests, rng)
        gaps = rng.exponential(lengths.mean() / (given.load * rate), given.requests)
        times = np.cumsum(gaps)
        short = lengths <= SHORT
        for name, aging in ORDERS.items():
            seconds, lag = latencies(model, given.budget, aging, times, lengths)
            if lag > LATE:
                raise SystemExit(f"requests came {1000 * lag:.1f} ms too late: the machine is not quiet")
            for what, which, share in (
                ("short, p99", short, 0.99),
                ("all, p50", slice(None), 0.5),
                ("all, p99", slice(None), 0.99),
                ("512 tokens, p99", lengths == LONG, 0.99),
            ):
                found.setdefault(f"{name}: {what}, ms", []).append(1000 * np.quantile(seconds[which], share))
    figures = {name: statistics.median(values) for name, values in found.items()}
    for name in [one.partition(": ")[2] for one in figures if one.startswith("between layers")]:
        figures[f"ratio: {name.removesuffix(', ms')}"] = statistics.median(
            a / b
            for a, b in zip(found[f"between layers: {name}"], found[f"whole passes: {name}"], strict=True)
        )
    return {"capacity, tokens/s": rate, **figures}


def section(hardware: Path) -> Iterator[str]:
    """What was measured, for docs/results."""
    if (found := newest(hardware, "open-loop")) is None:
        return
    settings = found["settings"]
    yield f"## Latency under load\n\n`python -m benchmarks.open_loop --save`, {found['date']}: "
    yield f"{settings['model']} in {settings['precision']}, {settings['requests']:,} requests at "
    yield f"{settings['load']:.0%} load in each of {settings['rounds']} rounds.\n\n"
    yield table(["measured", ""], [[name, f"{value:,.2f}"] for name, value in found["figures"].items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="albert-base-v2", help="a preset; its weights are random")
    parser.add_argument("--precision", default="float32", choices=get_args(InferencePrecision))
    parser.add_argument("--budget", type=int, default=256, help="tokens of a step")
    parser.add_argument("--load", type=float, default=0.7, help="share of what full steps compute")
    parser.add_argument("--requests", type=int, default=1000, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="as a dated file of this hardware")
    given = parser.parse_args()
    found = measured(given)
    for name, value in found.items():
        print(f"{name:35} {value:12,.2f}")
    if given.save:
        print(save_result("open-loop", {"machine": describe(), "settings": vars(given), "figures": found}))


if __name__ == "__main__":
    main()
