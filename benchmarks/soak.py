"""A server under half load for minutes, with clients that break off, read slowly or send bad requests.

    python -m benchmarks.soak --minutes 10 --save

Starts `albertine serve` and measures the time to its first right answer, and the texts a second that it can
give. Then requests come at half of that rate at times that were drawn before (Poisson). Most are `/embed`
of one to eight texts, whose answers are compared with those of `Predictor`; of the others some
close their connection before the answer, some read it slowly, and some have a body that must be refused.
Memory is that of the process (RSS), read every second: the medians of the second and of the last minute.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np

from albertine.bench.machine import describe, save_result
from albertine.core.memory import MEGABYTE, resident_bytes
from albertine.tasks.predictor import Predictor
from benchmarks.markdown import newest, table
from benchmarks.peer_serving import texts_of
from benchmarks.serving import served

MODEL = "albertine-mini-en"
BAD: tuple[tuple[bytes, int], ...] = (
    (b"{", 400),
    (b'{"inputs": 3}', 422),
    (b'{"inputs": []}', 422),
    (b"\xff\xfe", 400),
)
BREAKS_OFF, READS_SLOWLY, SENDS_NONSENSE = 0.05, 0.02, 0.05
"""Shares of requests."""


class Load:
    """Requests to one server, and what became of them.

    Attributes:
        outcomes: how many were right, broke off, were refused as they should; anything else is a fault.
    """

    def __init__(self, address: str, texts: list[str], vectors: Any) -> None:
        self._host, port = address.rsplit(":", 1)
        self._port, self._texts, self._vectors = int(port), texts, vectors
        self.outcomes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def send(self, number: int) -> None:
        """One request, drawn by its number."""
        drawn = random.Random(number)
        kind = drawn.random()
        try:
            if kind < BREAKS_OFF:
                found = self._break_off(drawn)
            elif kind < BREAKS_OFF + SENDS_NONSENSE:
                found = self._send_nonsense(drawn)
            else:
                found = self._embed(drawn, slowly=kind > 1 - READS_SLOWLY)
        except (OSError, HTTPException, ValueError, KeyError) as error:
            found = f"fault: {type(error).__name__} {error}"
        with self._lock:
            self.outcomes[found] += 1

    def _chosen(self, drawn: random.Random) -> list[int]:
        return [drawn.randrange(len(self._texts)) for _ in range(drawn.choice((1, 1, 1, 1, 2, 4, 8)))]

    def _embed(self, drawn: random.Random, *, slowly: bool) -> str:
        chosen = self._chosen(drawn) * (16 if slowly else 1)
        body = json.dumps({"inputs": [self._texts[i] for i in chosen], "normalize": False}).encode()
        if slowly:
            answer = self._read_slowly(body)
        else:
            connection = HTTPConnection(self._host, self._port, timeout=60)
            connection.request("POST", "/embed", body, {"content-type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            connection.close()
            if response.status != 200:
                return f"fault: status {response.status} {answer[:200]!r}"
        far = np.abs(np.array(json.loads(answer), dtype=np.float32) - self._vectors[chosen]).max()
        return "right" if far < 2e-4 else f"fault: wrong by {far:.2g}"

    def _raw(self, body: bytes, length: int | None = None) -> socket.socket:
        """A connection with a request.

        Args:
            length: of the body, as announced; None: that of `body`.
        """
        connection = socket.socket()
        connection.settimeout(60)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that the server waits for us
        connection.connect((self._host, self._port))
        head = f"POST /embed HTTP/1.1\r\nhost: {self._host}\r\nconnection: close\r\n"
        head += f"content-type: application/json\r\ncontent-length: {length or len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return connection

    def _read_slowly(self, body: bytes) -> bytes:
        with self._raw(body) as connection:
            parts = []
            while part := connection.recv(4096):
                parts.append(part)
                time.sleep(0.01)
        head, _, found = b"".join(parts).partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise ValueError(head.split(b"\r\n")[0])
        return found

    def _break_off(self, drawn: random.Random) -> str:
        body = json.dumps({"inputs": [self._texts[i] for i in self._chosen(drawn)]}).encode()
        sent = drawn.randrange(1, len(body)) if drawn.random() < 0.3 else len(body)
        with self._raw(body[:sent], len(body)):
            time.sleep(drawn.random() * 0.01)
        return "broke off"

    def _send_nonsense(self, drawn: random.Random) -> str:
        body, wanted = drawn.choice(BAD)
        connection = HTTPConnection(self._host, self._port, timeout=60)
        connection.request("POST", "/embed", body, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        connection.close()
        return "refused" if response.status == wanted else f"fault: {body!r} gives {response.status}"


def resident(pid: int) -> float:
    """Megabytes of a process (RSS)."""
    return (resident_bytes(pid) or 0) / MEGABYTE


def measured(model: str, minutes: float) -> dict[str, float]:
    texts = texts_of(256)
    vectors = Predictor(model, precision="float32").embed(texts, normalize=False)
    begin = time.monotonic()
    with served(model, "--precision", "float32", "--auto-truncate") as (address, pid):
        load = Load(address, texts, vectors)
        load.send(7)
        cold = time.monotonic() - begin
        if load.outcomes["right"] != 1:
            raise SystemExit(f"the first answer is not right: {dict(load.outcomes)}")
        began, count = time.monotonic(), 400
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(load.send, range(count)))
        capacity = count / (time.monotonic() - began)
        rng, end = np.random.default_rng(0), 60 * minutes
        times, when = [], 0.0
        while (when := when + rng.exponential(2 / capacity)) < end:
            times.append(when)
        begin = time.monotonic()
        memory: list[tuple[float, float]] = []
        with ThreadPoolExecutor(256) as pool:
            for number, when in enumerate(times):
                time.sleep(max(begin + when - time.monotonic(), 0.0))
                if when > len(memory):
                    memory.append((when, resident(pid)))
                pool.submit(load.send, count + number)
    minute = min(60.0, end / 3)
    second, last = (
        float(np.median([size for when, size in memory if first <= when < first + minute]))
        for first in (minute, end - minute)
    )
    faults = {name: n for name, n in load.outcomes.items() if name.startswith("fault")}
    for name, number in faults.items():
        print(f"{number} x {name}")
    total = sum(load.outcomes.values())
    if total != 1 + count + len(times):
        raise SystemExit(f"{1 + count + len(times) - total} requests have no outcome")
    return {
        "cold start to the first right answer, s": cold,
        "requests": total,
        "right": load.outcomes["right"],
        "broke off": load.outcomes["broke off"],
        "refused": load.outcomes["refused"],
        "faults": sum(faults.values()),
        "memory in the second minute, MB": second,
        "memory in the last minute, ratio": last / second,
    }


def section(hardware: Path) -> Iterator[str]:
    """What was measured, for docs/results."""
    if (found := newest(hardware, "soak")) is None:
        return
    settings = found["settings"]
    yield f"## Serving for minutes\n\n`python -m benchmarks.soak --minutes {settings['minutes']:g} --save`, "
    yield f"{found['date']}: {settings['model']} at half load, with clients that break off, read slowly or "
    yield "send bad requests; every answer is compared with that of `Predictor`.\n\n"
    yield table(["measured", ""], [[name, f"{value:,.2f}"] for name, value in found["figures"].items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--save", action="store_true", help="as a dated file of this hardware")
    given = parser.parse_args()
    found = measured(given.model, given.minutes)
    for name, value in found.items():
        print(f"{name:42} {value:12,.2f}")
    if given.save:
        print(save_result("soak", {"machine": describe(), "settings": vars(given), "figures": found}))
    if found["faults"]:
        raise SystemExit("there were faults")


if __name__ == "__main__":
    main()
