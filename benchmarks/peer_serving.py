"""Texts a second of `albertine serve` beside Infinity, with the same weights and clients.

    python -m benchmarks.peer_serving --infinity VENV/bin/infinity_emb --save

Infinity is not part of the environment (`infinity-emb` needs transformers 4): install it into one of its own,
with `infinity-emb[server,torch]`. Both servers are started with a model folder of random weights in the
layout of transformers, compute in float32 (Infinity with `--no-bettertransformer`), and get the same texts
from the same clients in turns, over `/v1/embeddings` and `/embeddings`. Vectors of both must agree (cosine of
.9999).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import albertine
from albertine.bench.machine import describe, save_result
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.text.documents import read_documents
from benchmarks.markdown import newest, table
from benchmarks.open_loop import LONG, lengths_of

TOKENIZER = "albertine-mini-en"
SHAPES = {"16 clients, one text each": (16, 1), "4 clients, 32 texts each": (4, 32)}


def texts_of(number: int) -> list[str]:
    """Texts of the demo corpus whose lengths in tokens are those of `open_loop`."""
    tokenizer = albertine.load_tokenizer(TOKENIZER)
    paths = [Path(__file__).parent.parent / "data/demo/english.tar.xz"]
    words = [w for document in read_documents(paths) for text in document.paragraphs for w in text.split()]
    found, at = [], 0
    for length in lengths_of(number, np.random.default_rng(0)):
        part = " ".join(words[at : at + length])
        found.append(tokenizer.head(part, min(int(length), LONG) - 2))
        at = (at + int(length)) % (len(words) - LONG)
    return found


@contextmanager
def server(line: Sequence[str], port: int) -> Iterator[None]:
    """A server, once it answers."""
    own = {k: v for k, v in os.environ.items() if k != "ALBERTINE_TOKEN"}
    own |= {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, env=own)
        try:
            end = time.monotonic() + 180
            while process.poll() is None and time.monotonic() < end:
                try:
                    HTTPConnection("127.0.0.1", port, timeout=1).connect()
                    break
                except OSError:
                    time.sleep(0.5)
            else:
                log.seek(0)
                raise SystemExit(f"{line[0]} does not answer:\n{log.read()[-2000:]}")
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def vectors(connection: HTTPConnection, path: str, texts: Sequence[str]) -> Any:
    """The vectors of a request, (texts, H)."""
    body = json.dumps({"model": "model", "input": list(texts)})
    connection.request("POST", path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    if answer.status != 200:
        raise RuntimeError(found)
    return np.array([one["embedding"] for one in found["data"]], dtype=np.float32)


def rate(port: int, path: str, clients: int, size: int, texts: Sequence[str], seconds: float) -> float:
    """Texts a second of some clients together, each with requests of `size` texts without pause."""
    numbers, done, end = count(), list[int](), time.monotonic() + seconds
    lock = threading.Lock()

    def client() -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=120)
        while time.monotonic() < end:
            with lock:
                at = next(numbers) * size % (len(texts) - size)
            vectors(connection, path, texts[at : at + size])
            done.append(size)

    begin = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        for client_done in [pool.submit(client) for _ in range(clients)]:
            client_done.result()  # raises what a client has met
    return sum(done) / (time.monotonic() - begin)


def measured(given: argparse.Namespace) -> dict[str, float]:
    """Medians over rounds, and of the ratios of rounds."""
    texts = texts_of(1024)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        tokenizer = albertine.load_tokenizer(TOKENIZER)
        config = replace(preset(given.model), vocab_size=tokenizer.vocab_size)
        albertine.save(Model(config, {"pooler", "mlm"}, seed=0).eval(), tokenizer, folder)
        ours = [sys.executable, "-m", "albertine", "serve", str(folder), "--port", "7996"]
        ours += ["--precision", "float32", "--auto-truncate"]
        theirs = [given.infinity, "v2", "--model-id", str(folder), "--served-model-name", "model"]
        theirs += ["--port", "7997", "--device", "cpu", "--dtype", "float32", "--no-bettertransformer"]
        places = {"Albertine": (7996, "/v1/embeddings"), "Infinity": (7997, "/embeddings")}
        found: dict[str, list[float]] = {}
        with server(ours, 7996), server(theirs, 7997):
            both = [
                vectors(HTTPConnection("127.0.0.1", port), path, texts[:8]) for port, path in places.values()
            ]
            a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in both)
            if (worst := float((a * b).sum(1).min())) < 0.9999:
                raise SystemExit(f"the vectors of both servers differ: cosine {worst:.5f}")
            for _ in range(given.rounds):
                for shape, (clients, size) in SHAPES.items():
                    rates = {
                        name: rate(port, path, clients, size, texts, given.seconds)
                        for name, (port, path) in places.items()
                    }
                    for name, value in rates.items():
                        found.setdefault(f"{shape}: {name}, texts/s", []).append(value)
                    found.setdefault(f"{shape}: ratio", []).append(rates["Albertine"] / rates["Infinity"])
    return {name: statistics.median(values) for name, values in found.items()}


def section(hardware: Path) -> Iterator[str]:
    """What was measured, for docs/results."""
    if (found := newest(hardware, "peer-serving")) is None:
        return
    settings = found["settings"]
    yield "## Serving beside Infinity\n\n`python -m benchmarks.peer_serving --infinity … --save`, "
    yield f"{found['date']}: "
    yield f"{settings['model']} in float32, {found['infinity']}, texts of 4 to 512 tokens (median 32), "
    yield f"medians of {settings['rounds']} rounds.\n\n"
    yield table(["measured", ""], [[name, f"{value:,.2f}"] for name, value in found["figures"].items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--infinity", required=True, help="its executable")
    parser.add_argument("--model", default="albert-base-v2", help="a preset; its weights are random")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--save", action="store_true", help="as a dated file of this hardware")
    given = parser.parse_args()
    python = Path(given.infinity).with_name("python")
    packages = ("infinity-emb", "transformers", "torch")
    code = f"from importlib.metadata import version; print(*((n, version(n)) for n in {packages}))"
    which = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    found = measured(given)
    for name, value in found.items():
        print(f"{name:45} {value:10,.2f}")
    if given.save:
        settings = {name: value for name, value in vars(given).items() if name != "infinity"}
        record = {"machine": describe(), "settings": settings, "infinity": which, "figures": found}
        print(save_result("peer-serving", record))


if __name__ == "__main__":
    main()
