"""Figures of the server that have no benchmark of their own (docs/results/serving.md).

    python -m benchmarks.serving_checks --save

Packed against padded batches of 32 texts, at mixed and at equal lengths; what the queue and the worker add to
the model; two clients, of which one sends without pause; a request of a thousand texts; a server that idles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from albertine.bench.machine import describe, save_result
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.serving.queue import AGING, Item
from albertine.tasks.predictor import Predictor
from benchmarks.markdown import newest, table
from benchmarks.open_loop import Server, lengths_of
from benchmarks.peer_serving import texts_of
from benchmarks.serving import MODEL, served
from benchmarks.soak import resident

COUNT = 32
"""Texts of a padded batch."""
ONE, OTHER = "127.0.0.2", "127.0.0.3"
"""Addresses of two clients."""


def rows_of(lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    rng = np.random.default_rng(1)
    return [rng.integers(5, 1000, length) for length in lengths]


def padded(rows: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Rows of the length of the longest, all of which are computed."""
    longest = max(map(len, rows))
    return [np.pad(row, (0, longest - len(row))) for row in rows]


def seconds_of(call: Callable[[], Any]) -> float:
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def saturation(server: Server, lengths: Sequence[int], budget: int) -> float:
    """How many times as many texts a second batches by tokens compute as padded batches of 32, in order of
    arrival."""
    rows = rows_of(lengths)
    packs: list[list[NDArray[np.int64]]] = [[]]
    for row in rows:
        if packs[-1] and sum(map(len, packs[-1])) + len(row) > budget:
            packs.append([])
        packs[-1].append(row)
    pads = [padded(rows[i : i + COUNT]) for i in range(0, len(rows), COUNT)]
    ratios = []
    for _ in range(3):
        by_tokens = seconds_of(lambda: [server.answer(None, pack) for pack in packs])
        by_count = seconds_of(lambda: [server.answer(None, pad) for pad in pads])
        ratios.append(by_count / by_tokens)
    return statistics.median(ratios)


def overhead(model: Model, budget: int) -> float:
    """Share of the time of full steps that is not the model's."""
    spent = list[float]()

    class Timed(Server):
        def answer(self, kind: Any, rows: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
            begin = time.monotonic()
            found = super().answer(kind, rows)
            spent.append(time.monotonic() - begin)
            return found

    server = Timed(model, budget, float("inf"))  # whole steps: one within another would count twice
    lengths = [32] * (budget // 32) * 20
    left = threading.Semaphore(0)
    items = [Item("embed", [row], len(row), time.monotonic() + 1000) for row in rows_of(lengths)]
    for item in items:
        item.future.add_done_callback(lambda future: left.release())
        server.queue.put([item])
    begin = time.monotonic()
    server.worker.start()
    for _ in items:
        left.acquire()
    total = time.monotonic() - begin
    server.worker.stop(10.0)
    return 1 - sum(spent) / total


def embed(connection: HTTPConnection, texts: Sequence[str]) -> Any:
    connection.request("POST", "/embed", json.dumps({"inputs": list(texts)}))
    answer = connection.getresponse()
    found = json.loads(answer.read())
    if answer.status != 200:
        raise SystemExit(found)
    return found


def client(address: str, source: str) -> HTTPConnection:
    host, port = address.rsplit(":", 1)
    return HTTPConnection(host, int(port), timeout=120, source_address=(source, 0))


def fairness(address: str, texts: Sequence[str], seconds: float) -> dict[str, float]:
    """A client that sends many texts a call without pause, beside one that sends a text now and then."""
    many, one = list(texts)[:256], [texts[0]]
    patient = client(address, ONE)
    alone = [seconds_of(lambda: embed(patient, one)) for _ in range(50)]

    def greedy(until: float) -> int:
        connection, calls = client(address, OTHER), 0
        while time.monotonic() < until:
            embed(connection, many)
            calls += 1
        return calls

    solo = greedy(time.monotonic() + seconds) / seconds
    done = list[int]()
    until = time.monotonic() + seconds
    thread = threading.Thread(target=lambda: done.append(greedy(until)))
    thread.start()
    beside = []
    while time.monotonic() < until:
        beside.append(seconds_of(lambda: embed(patient, one)))
        time.sleep(0.2)
    thread.join()
    return {
        "fairness: one text alone, p99, ms": 1000 * float(np.quantile(alone, 0.99)),
        "fairness: one text beside 256 a call without pause, p99, ms": 1000
        * float(np.quantile(beside, 0.99)),
        "fairness: rate of the other client, of that alone": done[0] / seconds / solo,
    }


def thousand(address: str, pid: int, texts: Sequence[str]) -> dict[str, float]:
    """A request of a thousand texts: its order, and the memory that it takes."""
    many = [texts[i % len(texts)] for i in range(1000)]
    expected = Predictor(MODEL, precision="float32").embed(many)
    before, peak, ended = resident(pid), list[float](), threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            peak.append(resident(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    found = np.array(embed(client(address, ONE), many), dtype=np.float32)
    ended.set()
    thread.join()
    cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    return {
        "1,000 texts a call: lowest cosine with its own text": float(cosines.min()),
        "1,000 texts a call: memory above that before, MB": max(peak) - before,
    }


def idle(address: str, pid: int, texts: Sequence[str], seconds: float) -> dict[str, float]:
    """CPU time of a server without requests, and the first request after it."""
    connection = client(address, ONE)
    usual = statistics.median(seconds_of(lambda: embed(connection, texts[:1])) for _ in range(50))

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(seconds)
    share = (ticks() - before) / 100 / seconds
    first = seconds_of(lambda: embed(client(address, ONE), texts[:1]))
    return {"idle: share of a core": share, "idle: first request after it, of the usual time": first / usual}


def measured(given: argparse.Namespace) -> dict[str, float]:
    model = Model(preset(given.preset), set(), seed=0).eval()
    model.encoder.precision = "float32"
    server, rng = Server(model, given.budget, AGING), np.random.default_rng(0)
    with torch.inference_mode():
        found = {
            "packed to padded batches of 32, mixed lengths": saturation(
                server, lengths_of(192, rng).tolist(), given.budget
            ),
            "packed to padded batches of 32, all of 64 tokens": saturation(server, [64] * 192, COUNT * 64),
            "overhead of queue and worker": overhead(model, given.budget),
        }
    texts = texts_of(256)
    with served(MODEL, "--precision", "float32", "--auto-truncate") as (address, pid):
        embed(client(address, ONE), texts[:32])
        found |= fairness(address, texts, 20.0)
        found |= thousand(address, pid, texts)
        found |= idle(address, pid, texts, 60.0)
    return found


def section(hardware: Path) -> Iterator[str]:
    """What was measured, for docs/results."""
    if (found := newest(hardware, "serving-checks")) is None:
        return
    settings = found["settings"]
    yield "## Serving: further figures\n\n`python -m benchmarks.serving_checks --save`, "
    yield f"{found['date']}: batches and overhead of {settings['preset']} in float32, else of {MODEL}.\n\n"
    yield table(["measured", ""], [[name, f"{value:,.3f}"] for name, value in found["figures"].items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", default="albert-base-v2", help="its weights are random")
    parser.add_argument("--budget", type=int, default=2048, help="tokens of a step")
    parser.add_argument("--save", action="store_true", help="as a dated file of this hardware")
    given = parser.parse_args()
    found = measured(given)
    for name, value in found.items():
        print(f"{name:62} {value:10,.3f}")
    if given.save:
        print(
            save_result("serving-checks", {"machine": describe(), "settings": vars(given), "figures": found})
        )


if __name__ == "__main__":
    main()
