"""Models on Ray Serve: a replica answers as `albertine serve`; on a cluster, killed replicas come back and no
request is lost."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from pydantic import ValidationError
from starlette.testclient import TestClient

from albertine.errors import AlbertineError, MissingExtra, ModelError
from albertine.export.export_model import export
from albertine.inference.embedding import normalize_rows
from albertine.serving.ray_serve import TOKEN, Replica, ReplicaSettings, deployment, replica
from albertine.tasks.predictor import Predictor
from tests.inference.exports import LONG, TEXTS

Folders = Callable[[str], Path]


@contextmanager
def replica_of(folder: Path, **settings: Any) -> Iterator[TestClient]:
    """A client of one replica, in this process."""
    app = replica(folder, folder.name, ReplicaSettings(**({"precision": "float32"} | settings)))
    with TestClient(app, "http://localhost") as client:
        yield client
    assert app.state.models.stop(10.0)


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("embed", "/embed", {"inputs": TEXTS[:3]}),
        ("embed", "/v1/embeddings", {"input": "who"}),
        ("single", "/", {"inputs": "the old man"}),
        ("single", "/predict", {"inputs": LONG}),
        ("single", "/embed", {"inputs": 3}),
        ("single", "/nowhere", {}),
    ],
)
def test_a_replica_answers_as_the_server_does(
    name: str, path: str, body: Any, folder: Folders, client: Callable[[str], TestClient]
) -> None:
    expected = client(name).post(path, json=body, headers={"x-request-id": "a"})
    with replica_of(folder(name)) as other:
        found = other.post(path, json=body, headers={"x-request-id": "a"})
        assert other.get("/health").json() == {"status": "ready"}
    assert (found.status_code, found.json()) == (expected.status_code, expected.json())
    # Ray Serve adds the header without looking whether it is there.
    assert set(found.headers) == set(expected.headers) - {"x-request-id"}


def test_settings_of_a_replica(folder: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a token of the variable that is not required, options that are not passed on."""
    (tmp_path / "token").write_text("secret\n")
    body, sent = {"inputs": "who"}, {"authorization": "Bearer secret"}
    with replica_of(folder("single"), token_file=tmp_path / "token", auto_truncate=True) as client:
        assert client.post("/predict", json=body).status_code == 401
        assert client.post("/predict", json=body, headers=sent).status_code == 200
        assert client.post("/predict", json={"inputs": LONG}, headers=sent).status_code == 200
    monkeypatch.setenv(TOKEN, "other")
    with replica_of(folder("single"), body_bytes=64) as client:
        assert client.post("/predict", json=body, headers=sent).status_code == 401
        sent["authorization"] = "Bearer other"
        assert client.post("/predict", json={"inputs": 20 * "who "}, headers=sent).status_code == 413
    monkeypatch.delenv(TOKEN)
    with replica_of(folder("single"), allowed_hosts=["encoder.example.org"]) as client:
        for host, status in (("encoder.example.org", 200), ("other.example.org", 403)):
            assert client.post("/predict", json=body, headers={"host": host}).status_code == status
    for wrong in ({"precison": "float32"}, {"precision": "float31"}, {"queue_tokens": 0}):
        with pytest.raises(ValidationError):
            ReplicaSettings(**wrong)
    with pytest.raises(AlbertineError, match="is no name of a host"):
        ReplicaSettings(allowed_hosts=["http://a"]).limits()


def test_the_health_of_a_replica_is_that_of_the_engine(folder: Folders) -> None:
    one = Replica()
    one.app = app = replica(folder("single"), "single", ReplicaSettings())
    asyncio.run(one.check_health())
    app.state.models.draining = True
    with pytest.raises(ModelError, match="single: does not answer"):
        asyncio.run(one.check_health())
    assert app.state.models.stop(10.0)


def test_the_model_is_found_in_the_folder_of_the_process(
    folder: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another node of a cluster, where the folder of an application has another path."""
    monkeypatch.chdir(folder("single").parent)
    app = replica(Path("/nowhere/single"), "single", ReplicaSettings())
    assert app.state.models.services[0].model.tasks[0] == "classify"
    assert app.state.models.stop(10.0)


def test_without_ray(folder: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"needs ray\[serve\].*pip install 'albertine\[ray-serve\]'"):
        deployment(folder("single"), "single", ReplicaSettings())


# ---- on a cluster


CLIENTS = 6
TRIES = 100
SERVE = "from ray.serve.scripts import cli; cli()"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of an application that `serve run config.yaml` runs on a cluster of this machine."""
    environment = {name: x for name, x in os.environ.items() if not name.startswith(("RAY_", TOKEN))}
    environment |= {"RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", SERVE, "run", "config.yaml", "--working-dir", "."]
    with (folder.parent / "log").open("w+") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        port = yaml.safe_load((folder / "config.yaml").read_text())["http_options"]["port"]
        address = f"http://127.0.0.1:{port}"
        try:
            until(lambda: process.poll() is not None or is_ready(address), 120)
            assert process.poll() is None, (folder.parent / "log").read_text()[-4000:]
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
            for number in replicas(folder.name):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)


def until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.1)


def is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as found:
            return bool(found.status == 200)
    except OSError:
        return False


def replicas(name: str) -> set[int]:
    """The processes of the replicas of an application: Ray names them so."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"ServeReplica:{name}:" in (entry / "cmdline").read_text():
                found.add(int(entry.name))
    return found


def is_replaced(name: str, number: int) -> bool:
    """Whether an application has two replicas again, none of which is that process."""
    found = replicas(name)
    return len(found) == 2 and number not in found


class Client(threading.Thread):
    """Sends texts one after another, each again where the server failed or the connection was cut.

    Attributes:
        answers: text and vector of every request. failures: tries that were not answered.
    """

    def __init__(self, address: str, first: int, stop: threading.Event) -> None:
        super().__init__()
        self.address, self.number, self.stop = address, first, stop
        self.answers: list[tuple[str, list[float]]] = []
        self.failures: list[str] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                text = TEXTS[self.number % 3]
                self.number += 1
                self.answers.append((text, self.answered(text)))
        except BaseException as error:
            self.error = error

    def answered(self, text: str) -> list[float]:
        """The vector of a text.

        Raises:
            HTTPError: a status below 500, after which no client tries again.
        """
        body = json.dumps({"inputs": text}).encode()
        for _ in range(TRIES):
            try:
                request = urllib.request.Request(f"{self.address}/embed", body)
                with urllib.request.urlopen(request, timeout=30) as found:
                    return list(json.load(found)[0])
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    raise
                self.failures.append(str(error.code))
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(type(error).__name__)
            time.sleep(0.1)
        raise AssertionError(f"{TRIES} tries without an answer: {self.failures[-3:]}")


@pytest.mark.matrix
def test_killed_replicas_come_back_and_no_request_is_lost(folder: Folders, tmp_path: Path) -> None:
    """First one of two is killed under load; once it is replaced, the other, so that what answers at the end
    are replicas that came back."""
    for module in ("ray", "fastapi"):
        pytest.importorskip(module, reason="ray[serve] is not installed")
    model, name = folder("embed"), f"killed-{os.getpid()}"
    output = export(model, tmp_path / name, ["ray-serve"]).folder
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = yaml.safe_load((output / "config.yaml").read_text())
    config["http_options"]["port"] = port
    config["applications"][0] |= {"name": name, "args": {"precision": "float32"}}
    config["applications"][0]["deployments"][0]["ray_actor_options"]["num_cpus"] = 0.5
    (output / "config.yaml").write_text(yaml.safe_dump(config))
    stop = threading.Event()
    with served(output) as address:
        first = replicas(name)
        assert len(first) == 2
        clients = [Client(address, number, stop) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            for number in sorted(first):
                time.sleep(2.0)
                os.kill(number, signal.SIGKILL)
                until(partial(is_replaced, name, number), 90)
            before = [len(client.answers) for client in clients]
            until(lambda: all(len(one.answers) > n for one, n in zip(clients, before, strict=True)), 60)
        finally:
            stop.set()
            for client in clients:
                client.join(120)
        assert not first & replicas(name)
    expected = dict(
        zip(TEXTS, normalize_rows(Predictor(model, precision="float32").embed(TEXTS)), strict=True)
    )
    for client in clients:
        assert client.error is None, client.error
        for text, vector in client.answers:
            np.testing.assert_allclose(vector, expected[text], atol=1e-5)
    assert sum(len(client.answers) for client in clients) > 50
