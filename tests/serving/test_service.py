"""A service whose model is slow or wrong at chosen times: overload, deadlines, clients that leave,
poisoned items, draining, health."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.errors import DataError, NotFinite
from albertine.interop.huggingface.folders import save_model
from albertine.serving import json_output
from albertine.serving import service as services
from albertine.serving.app import application
from albertine.serving.json_output import as_json, in_parts
from albertine.serving.limits import ServingLimits
from albertine.serving.model_tasks import BatchKey
from albertine.tasks.encoded import EncodedExample
from tests.export import saved
from tests.inference.exports import SENTENCE, TEXTS
from tests.serving.served import ServiceInTest, service_of
from tests.serving.test_engine import answer_of, run

Folders = Callable[[str], Path]


class Gate:
    """Wraps the model: holds a step until it is opened, and records the questions."""

    def __init__(self, service: ServiceInTest) -> None:
        self._answer, self._tokenizer = service.engine._answer, service.model.predictor.tokenizer
        service.engine._answer = self
        self.open, self.reached = threading.Event(), threading.Event()
        self.questions: list[Any] = []
        self.poison: dict[Any, Exception | None] = {}

    def __call__(self, kind: Any, questions: Sequence[Any]) -> Sequence[Any]:
        self.reached.set()
        assert self.open.wait(10)
        texts = list(map(self._text, questions))
        for text in texts:
            if isinstance(error := self.poison.get(text), Exception):
                raise error
        self.questions += texts
        found = list(self._answer(kind, questions))
        return [x * np.nan if q in self.poison else x for q, x in zip(texts, found, strict=True)]

    def _text(self, question: Any) -> str:
        """The text of a question, of which the engine receives the tokens."""
        if isinstance(question, EncodedExample):
            return question.data.source_examples[question.number].text
        if isinstance(question, tuple):  # (tokens, ...) with masks
            return self._tokenizer.decode(question[0], skip_special=False)
        return question if isinstance(question, str) else self._tokenizer.decode(question)


@contextmanager
def running(
    folder: Path, limits: ServingLimits | None = None, **more: Any
) -> Iterator[tuple[ServiceInTest, Gate]]:
    service = service_of(folder, limits, **more)
    gate = Gate(service)
    service.models.start()
    try:
        yield service, gate
    finally:
        gate.open.set()
        service.models.stop(10.0)


class ClientRequest:
    """One request to an application without a network, whose client can leave."""

    def __init__(self, service: ServiceInTest, path: str, body: Any) -> None:
        self.left = asyncio.Event()
        self._body = [json.dumps(body).encode()]
        self.sent: list[Any] = []
        self.task = asyncio.ensure_future(
            application(service.models)(_scope(path), self._receive, self._send)
        )

    async def _receive(self) -> Any:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body."""
        await self.task
        headers = {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}
        return self.sent[0]["status"], headers, json.loads(self.sent[1]["body"])


def _scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("test", 80),
        "client": ("test", 1),
        "root_path": "",
    }


async def until(found: Callable[[], Any]) -> None:
    """Wait until something holds."""
    for _ in range(1000):
        if found():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came about")


async def plugged(service: ServiceInTest, gate: Gate) -> ClientRequest:
    """A request that holds the worker, so that what comes next meets in the queue."""
    plug = ClientRequest(service, "/embed", {"inputs": "who"})
    await until(gate.reached.is_set)
    return plug


def test_alone_and_in_company(folder: Folders) -> None:
    """The same texts in one request, in requests that meet in a step, and one by one. Catches: padding
    that is read; answers handed to others."""
    texts = [" ".join(SENTENCE.split()[i % 7 : i % 7 + i % 9 + 1]) for i in range(40)]

    async def scenario(service: ServiceInTest, gate: Gate) -> list[Any]:
        plug = await plugged(service, gate)
        several = [ClientRequest(service, "/embed", {"inputs": texts[i : i + 4]}) for i in range(0, 40, 4)]
        await until(lambda: service.queue.questions == 40)
        service.metrics.step = lambda kind, items, tokens, seconds: steps.append(items)  # type: ignore[method-assign]
        gate.open.set()
        await plug.answer()
        return [row for one in several for row in (await one.answer())[2]]

    steps: list[int] = []
    with running(folder("embed")) as (service, gate):
        mixed = asyncio.run(scenario(service, gate))
        alone = [service.model.predictor.embed([text], normalize=True)[0] for text in texts]
    assert sorted(steps) == [1, 40]
    np.testing.assert_allclose(mixed, alone, atol=1e-5)


def test_overload_is_refused_quickly(folder: Folders) -> None:
    """Catches: a request that waits for room; tokens counted before they are measured; a 503."""

    async def scenario(service: ServiceInTest, gate: Gate) -> None:
        first = await plugged(service, gate)
        waiting = [ClientRequest(service, "/embed", {"inputs": TEXTS[0]}) for _ in range(4)]
        await until(lambda: service.queue.tokens == 20)
        began = time.monotonic()
        refused = [
            await ClientRequest(service, path, {"inputs": TEXTS[0]}).answer() for path in ("/", "/embed") * 10
        ]
        assert (
            time.monotonic() - began < 5
        )  # a request that waits for room does so for good: the model is held
        for status, headers, body in refused:
            assert status == 429 and body["code"] == "queue_full" and body["error_type"] == "Overloaded"
            assert 1 <= int(headers["retry-after"]) <= 60 and headers["x-should-retry"] == "true"
        gate.open.set()
        assert {(await one.answer())[0] for one in (first, *waiting)} == {200}
        assert (await ClientRequest(service, "/embed", {"inputs": "who"}).answer())[0] == 200

    with running(folder("embed"), ServingLimits(queue_tokens=20)) as (service, gate):
        asyncio.run(scenario(service, gate))
        assert b'reason="queue_full"} 20.0' in service.models.metrics.text()[0]


def test_a_request_of_a_client_that_left_is_not_computed(folder: Folders) -> None:
    """Catches: work for clients that are gone; room that they keep."""

    async def scenario(service: ServiceInTest, gate: Gate) -> None:
        first = await plugged(service, gate)
        gone = [ClientRequest(service, "/embed", {"inputs": ["a house", "bad"]}) for _ in range(9)]
        stays = ClientRequest(service, "/embed", {"inputs": "man"})
        await until(lambda: service.queue.questions == 19)
        for one in gone:
            one.left.set()
        await until(lambda: service.queue.questions == 1)
        gate.open.set()
        assert (await first.answer())[0] == (await stays.answer())[0] == 200
        for one in gone:
            assert (await one.answer())[0] == 499  # which no socket carries any more

    with running(folder("embed")) as (service, gate):
        asyncio.run(scenario(service, gate))
    assert gate.questions == ["who", "man"]


def test_a_deadline_holds_for_every_cause(folder: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a client that waits for a hanging step; an expired item that is computed."""
    monkeypatch.setattr(services, "GRACE", 0.1)

    async def scenario(service: ServiceInTest, gate: Gate) -> None:
        hanging = await plugged(service, gate)
        waiting = ClientRequest(service, "/embed", {"inputs": "man"})
        for one in (hanging, waiting):
            status, headers, body = await one.answer()
            assert status == 504 and body["code"] == "deadline" and headers["x-should-retry"] == "false"

    with running(folder("embed"), ServingLimits(deadline_seconds=0.2)) as (service, gate):
        asyncio.run(scenario(service, gate))
    assert gate.questions == ["who"]


def test_measuring_ends_with_its_client_and_its_deadline(folder: Folders) -> None:
    """Catches: lengths measured for clients that are gone, for ever, or of any number of texts."""

    async def scenario(service: ServiceInTest) -> None:
        began = time.monotonic()
        late = [
            ClientRequest(service, path, {"inputs": "who " * 700})
            for path in ("/embed", "/tokenize", "/embed")
        ]
        await until(lambda: len(measured) == services.TOKENIZING)
        leaving = ClientRequest(service, "/embed", {"inputs": "man " * 700})
        await asyncio.sleep(0.02)
        status, headers, body = await ClientRequest(service, "/tokenize", {"inputs": "man " * 700}).answer()
        assert (status, body["code"], headers["retry-after"]) == (429, "queue_full", "1")
        leaving.left.set()
        assert (await leaving.answer())[0] == 499
        again = ClientRequest(service, "/embed", {"inputs": "man " * 700})  # in the room that was given back
        for one in late:
            status, _, body = await one.answer()
            assert (status, body["code"]) == (504, "deadline")
        assert time.monotonic() - began < 0.4 + services.GRACE
        again.left.set()
        await again.task

    measured: list[Any] = []
    release = threading.Event()

    def blocked(*given: Any) -> Any:
        measured.append(given)
        assert release.wait(10)

    with running(folder("embed"), ServingLimits(queue_tokens=1402, deadline_seconds=0.4)) as (service, _):
        service.model.lengths = blocked  # type: ignore[method-assign]
        service.model.tokens = blocked  # type: ignore[method-assign]
        asyncio.run(scenario(service))
        release.set()
        asyncio.run(until(lambda: not service.tokenizing))
    assert len(measured) == services.TOKENIZING


def test_one_poisoned_item_among_many(folder: Folders, caplog: pytest.LogCaptureFixture) -> None:
    """Catches: a step that fails for all; NaN in JSON; a text in the log."""
    caplog.set_level(logging.INFO)

    async def scenario(service: ServiceInTest, gate: Gate) -> None:
        await plugged(service, gate)
        clients = {
            word: ClientRequest(service, "/embed", {"inputs": ["a", word]}) for word in SENTENCE.split()
        }
        await until(lambda: service.queue.questions == 2 * len(clients))
        gate.open.set()
        wanted = {
            "house": (500, "internal", {"index": 1}),
            "never": (500, "non_finite_output", {"index": 1}),
            "bad": (422, "not_answerable", {"index": 1}),
        }
        for word, one in clients.items():
            status, headers, body = await one.answer()
            if word not in wanted:
                assert status == 200, (word, body)
                continue
            assert (status, body["code"], body["details"]) == wanted[word]
            assert status == 422 or headers["x-should-retry"] == "false"

    with running(folder("embed")) as (service, gate):
        gate.poison = {"house": ValueError("house of secrets"), "never": None, "bad": DataError("no")}
        asyncio.run(scenario(service, gate))
        assert service.engine.not_finite == 1
        assert asyncio.run(_health(service))[1] == {"status": "degraded"}
    assert "ValueError" in caplog.text and "secrets" not in caplog.text and "house" not in caplog.text


@pytest.mark.parametrize("task", ["embed", "fill-mask"])
def test_a_text_that_overflows_is_computed_once_with_its_neighbours(tmp_path: Path, task: str) -> None:
    """Catches: a step that is run again for each of its items because of one."""
    base = saved.model(max_position_embeddings=64)
    with torch.no_grad():
        base.encoder.embeddings.position.weight[20:] = 3e38  # type: ignore[union-attr]
    save_model(base, saved.tokenizer(), tmp_path / "model")
    model = service_of(tmp_path / "model").model
    good, bad = "the old man [MASK].", "the old man [MASK]." + " said the old man" * 6
    texts = [good, bad, good, good]
    questions = [(text, 3, None) for text in texts] if task == "fill-mask" else texts
    items, notes, engine = run(questions, lambda _, batch: model.answer(BatchKey(task), batch))
    failed = [isinstance(answer_of(item), NotFinite) for item in items]
    assert failed == [False, True, False, False]
    assert notes.steps == [4] and notes.reasons == ["non_finite_output"] and engine.not_finite == 1


async def _health(service: ServiceInTest, path: str = "/health") -> tuple[int, Any]:
    sent: list[Any] = []
    running: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)
        running.append(service.models.running)

    before = service.models.running
    await application(service.models)({**_scope(path), "method": "GET"}, receive, send)
    assert set(running) == {before}  # a server whose health is requested all the time can stop
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_ready_is_a_real_answer(folder: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a health check that always passes, or passes once the worker has ever worked."""
    monkeypatch.setattr(services, "PROBE", 0.3)
    with running(folder("embed")) as (service, gate):
        service.engine.last_step -= 11
        assert asyncio.run(_health(service, "/health/ready"))[0] == 503  # its worker hangs
        gate.open.set()
        assert asyncio.run(_health(service, "/health/ready")) == (200, {"status": "ready"})
        gate.open.clear()
        assert asyncio.run(_health(service, "/health/ready"))[0] == 200  # of the last ten seconds
        service.engine.last_step -= 11
        assert asyncio.run(_health(service, "/health/ready"))[0] == 503


def test_draining_finishes_and_refuses(folder: Folders) -> None:
    """Catches: work taken in while the server ends; an answer that is dropped; a health that stays."""

    async def scenario(service: ServiceInTest, gate: Gate) -> None:
        running = await plugged(service, gate)
        service.models.draining = True
        status, headers, body = await ClientRequest(service, "/v1/embeddings", {"input": "man"}).answer()
        assert status == 503 and body["error"]["code"] == "draining" and "retry-after" in headers
        assert headers["connection"] == "close"  # or the client's next request meets a closed socket
        assert (await _health(service))[1]["code"] == "draining"
        gate.open.set()
        assert (await running.answer())[0] == 200
        assert service.models.running == 0

    with running(folder("embed")) as (service, gate):
        asyncio.run(scenario(service, gate))


def test_a_text_without_a_mask_costs_its_neighbours_nothing(folder: Folders) -> None:
    """Catches: a mask that is only looked for in the step, which then fails and is computed again one by
    one."""

    async def scenario(service: ServiceInTest, gate: Gate) -> None:
        gate.open.set()
        good = ClientRequest(service, "/", {"inputs": ["[MASK] man", "a [MASK]"], "parameters": {}})
        bad = ClientRequest(service, "/", {"inputs": ["a [MASK]", "man"], "parameters": {}})
        assert (await good.answer())[0] == 200 and (await bad.answer())[0] == 422

    with running(folder("fill-mask")) as (service, gate):
        asyncio.run(scenario(service, gate))
    assert [text.split() for text in gate.questions] == [["[MASK]", "man"], ["a", "[MASK]"]]


def test_logs_hold_no_text(folder: Folders, caplog: pytest.LogCaptureFixture) -> None:
    """Catches: a path, a query, an id or an error that is logged as it came."""
    caplog.set_level(logging.DEBUG)

    async def scenario(service: ServiceInTest) -> None:
        for path, body in (
            ("/embed", {"inputs": "zebra"}),
            ("/embed", {"inputs": ["zebra " * 50]}),
            ("/zebra", {}),
            ("/embed", {"zebra": 1}),
            ("/v1/embeddings", {"input": "a", "model": "zebra"}),
        ):
            await ClientRequest(service, path, body).answer()

    with running(folder("embed")) as (service, gate):
        gate.open.set()
        asyncio.run(scenario(service))
    lines = [record.getMessage() for record in caplog.records if record.name == "albertine.serving"]
    assert len(lines) == 5 and "zebra" not in "".join(lines)
    assert "POST /embed 200" in lines[0] and "tokens=3" in lines[0] and "POST (unknown) 404" in lines[2]


@pytest.mark.parametrize("name", ["crf", "relate"])
def test_nan_behind_a_search_is_the_servers_fault_too(folder: Folders, name: str) -> None:
    """Of the best tags, and of what is above a threshold, nothing shows it any more."""

    async def scenario(service: ServiceInTest) -> Any:
        return await ClientRequest(service, "/", {"inputs": "the old man"}).answer()

    with running(folder(name)) as (service, gate):
        gate.open.set()
        model: Any = service.model.predictor.tuned
        if name == "crf":
            tags = len(service.model.predictor.family.labels)
            model.forward = lambda packed: torch.full((packed.num_tokens, tags), float("nan"))
        else:
            model.subjects = lambda x: torch.full((len(x), 2), float("nan"))
        status, _, body = asyncio.run(scenario(service))
        assert (status, body["code"]) == (500, "non_finite_output")


def test_a_head_that_gives_nan_is_the_servers_fault(folder: Folders) -> None:
    async def scenario(service: ServiceInTest) -> Any:
        return await ClientRequest(service, "/predict", {"inputs": "who"}).answer()

    with running(folder("single")) as (service, gate):
        gate.open.set()
        model: Any = service.model.predictor.tuned
        model.forward = lambda packed: torch.full((len(packed.lengths), 3), float("nan"))
        status, headers, body = asyncio.run(scenario(service))
        assert (status, body["code"], headers["x-should-retry"]) == (500, "non_finite_output", "false")
        assert service.engine.not_finite == 1


def test_a_large_answer_does_not_hold_up_the_loop(folder: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def recorded(found: Any) -> bytes:
        written = as_json(found)
        calls.append((threading.get_ident(), len(written)))
        return written

    async def scenario(service: ServiceInTest) -> int:
        client = ClientRequest(service, "/embed", {"inputs": ["who"] * 4000})
        await client.task
        assert client.sent[0]["status"] == 200
        return len(client.sent[1]["body"])

    with running(folder("embed")) as (service, gate):
        gate.open.set()
        vector = np.random.default_rng(0).random(64, dtype=np.float32)
        service.engine._answer = lambda kind, questions: [vector] * len(questions)
        monkeypatch.setattr(json_output, "as_json", recorded)
        size = asyncio.run(scenario(service))
    # a call holds the lock of the interpreter until it ends: many short ones, in another thread
    assert calls and max(written for _, written in calls) < size / 50
    assert threading.get_ident() not in {thread for thread, _ in calls}


@pytest.mark.parametrize(
    "found",
    [
        {"data": [{"embedding": [0.5, 1.0], "é": None}] * 40, "usage": {"n": 3}},
        [[{"a": 1}, {"b": [2]}], []],
        [[[1.0, 2.0], []], [[3.0]]],
        [],
        {},
        "text",
        [{"x": i} for i in range(33)],
    ],
)
def test_parts_are_the_whole(found: Any) -> None:
    assert in_parts(found) == as_json(found)
