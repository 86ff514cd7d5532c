"""What the server adds to the model: latency of one text, and texts a second, beside `Predictor` itself.

    python -m benchmarks.serving --save

Starts `albertine serve` on this machine and sends requests over kept connections: one client with one text at
a time, several clients with one text each, one client and some with 32 texts a call. In turns with it,
`Predictor.embed` here computes the same texts. The clients share the processors with the server, which others
need not do.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from albertine.bench.machine import describe, save_result
from benchmarks.markdown import newest, table

MODEL = "albertine-mini-en"
TEXT = "The committee said on Friday that prices would go on rising for most of the coming year, if slowly."
TOGETHER, FEW = 32, 4


@contextmanager
def served(model: str, *options: str) -> Iterator[tuple[str, int]]:
    """The address of a server of a model, and the number of its process."""
    line = [sys.executable, "-m", "albertine", "serve", model, "--port", "0", *options]
    own = {key: value for key, value in os.environ.items() if key != "ALBERTINE_TOKEN"}
    server = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=own)
    assert server.stderr is not None
    started = server.stderr.readline()
    if " answers at " not in started:
        raise SystemExit(started + server.stderr.read())
    # Its log has a line for every request, which must go somewhere, or the server waits for its reader.
    threading.Thread(target=server.stderr.read, daemon=True).start()
    try:
        yield urlsplit(started.split(" answers at ")[1].split(";")[0]).netloc, server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


class Client:
    """One connection that is kept."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(address, timeout=60)

    def embed(self, texts: Sequence[str]) -> Any:
        body = json.dumps({"input": list(texts), "encoding_format": "base64"})
        self._connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        found = json.loads(answer.read())
        if answer.status != 200:
            raise SystemExit(found)
        return found


def repeated(call: Callable[[], Any], seconds: float) -> list[float]:
    """Milliseconds of every call within some seconds."""
    found = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        call()
        found.append(1000 * (time.perf_counter() - begin))
    return found


def at_once(address: str, clients: int, texts: Sequence[str], seconds: float) -> float:
    """Calls a second of some clients together."""
    found: list[list[float]] = []
    several = [Client(address) for _ in range(clients)]
    threads = [
        threading.Thread(target=lambda c=one: found.append(repeated(lambda: c.embed(texts), seconds)))  # type: ignore[misc]
        for one in several
    ]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(map(len, found)) / (time.perf_counter() - begin)


def measured(model: str, clients: int, rounds: int, seconds: float) -> dict[str, Any]:
    """All figures, each the median over rounds in which both sides have their turn."""
    from albertine.tasks.predictor import Predictor

    predictor, many = Predictor(model), [TEXT] * TOGETHER
    numbers: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        numbers.setdefault(name, []).append(value)

    with served(model) as (address, _):
        client = Client(address)
        for texts in ([TEXT], many):  # kernels and tables are made by the first calls
            client.embed(texts)
            predictor.embed(texts, normalize=True)
        for _ in range(rounds):
            here = repeated(lambda: predictor.embed([TEXT], normalize=True), seconds)
            there = repeated(lambda: client.embed([TEXT]), seconds)
            note("one text here, ms", statistics.median(here))
            note("one text served, ms", statistics.median(there))
            note("one text served, 99th of a hundred, ms", statistics.quantiles(there, n=100)[98])
            note("requests a second, one client", 1000 / statistics.mean(there))
            note(f"requests a second, {clients} clients", at_once(address, clients, [TEXT], seconds))
            together = repeated(lambda: predictor.embed(many, normalize=True), seconds)
            note(f"texts a second here, {TOGETHER} a call", 1000 * TOGETHER / statistics.mean(together))
            calls = repeated(lambda: client.embed(many), seconds)
            note(f"texts a second served, {TOGETHER} a call", 1000 * TOGETHER / statistics.mean(calls))
            note(f"the same, {FEW} clients", TOGETHER * at_once(address, FEW, many, seconds))
    return {name: statistics.median(values) for name, values in numbers.items()}


def section(hardware: Path) -> Iterator[str]:
    """What was measured, for docs/results."""
    if (found := newest(hardware, "serving")) is None:
        return
    settings = found["settings"]
    yield f"## Serving\n\n`python -m benchmarks.serving --save`, {found['date']}: {settings['model']}, a "
    yield f"sentence of {len(TEXT.split())} words, beside `Predictor.embed` in turns. Clients share the "
    yield f"processors with the server. Medians of {settings['rounds']} rounds.\n\n"
    rows = [[name, f"{value:,.1f}"] for name, value in found["figures"].items()]
    yield table(["measured", ""], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--save", action="store_true", help="as a dated file of this hardware")
    given = parser.parse_args()
    found = measured(given.model, given.clients, given.rounds, given.seconds)
    for name, value in found.items():
        print(f"{name:45} {value:10,.2f}")
    if given.save:
        record = {"machine": describe(), "settings": vars(given), "text": TEXT, "figures": found}
        print(save_result("serving", record))


if __name__ == "__main__":
    main()
