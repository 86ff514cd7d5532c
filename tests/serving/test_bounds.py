"""Limits of one request: small bodies that would expand to large ones, many empty texts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from albertine.inference.option_rows import characters_of
from albertine.serving import service as services
from albertine.serving.limits import ServingLimits
from albertine.serving.model_tasks import BatchKey, ServedModel
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.inference.exports import LONG
from tests.serving.served import client_of
from tests.serving.test_routes import post

Clients = Callable[[str], TestClient]
Folders = Callable[[str], Path]
PASSAGE = "the old man " * 3000


def refused(client: TestClient, path: str, body: Any) -> Any:
    """The error for an expansion that is too large."""
    error = post(client, path, body, 422)
    assert error["code"] == "batch_too_large" and "characters (a passage for each option" in error["error"]
    return error["details"]["limit"]


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("choose", "/choose", {"passage": PASSAGE, "options": ["who"] * 4000}),
        ("choose", "/choose", {"passage": "who", "question": PASSAGE, "options": ["who"] * 4000}),
        ("choose", "/choose", {"passage": "_ " * 20_000, "options": ["who " * 10_000, "a"]}),
        ("choose", "/", {"passage": "#idiom# " * 20_000, "options": ["who " * 10_000, "a"]}),
        ("choose", "/choose", {"options": [""] * 200_000}),
        ("score", "/rerank", {"query": PASSAGE, "texts": ["who"] * 4000}),
        ("score", "/rerank", {"query": PASSAGE, "documents": ["who"] * 4000}),
    ],
    ids=lambda one: str(one)[:40],
)
@pytest.mark.parametrize("truncate", [False, True])
def test_a_text_that_is_laid_out_many_times_is_counted_as_often(
    client: Clients, monkeypatch: pytest.MonkeyPatch, name: str, path: str, body: Any, truncate: bool
) -> None:
    """Catches: a bound that the first request passes by; a passage counted once; gaps and rows that count
    nothing; an error after all was encoded."""
    http, seen = client(name), list[Any]()
    service = http.service  # type: ignore[attr-defined]
    monkeypatch.setattr(service.model, "lengths", lambda *given: seen.append(given))
    assert refused(http, path, {**body, "truncate": truncate}) == ServingLimits().body_bytes
    assert not seen and not service.tokenizing


def test_what_a_body_holds_may_be_laid_out_once(folder: Folders) -> None:
    """Catches: a long text that is refused, where it is to be cut, because few tokens may wait."""
    limits = ServingLimits(queue_tokens=32, body_bytes=20_000)
    with client_of(folder("embed"), limits) as http:
        assert post(http, "/embed", {"inputs": "who " * 4900, "truncate": True})
    with client_of(folder("choose"), ServingLimits(queue_tokens=100)) as http:
        body = {"passage": PASSAGE, "question": "who", "truncate": True}
        assert len(post(http, "/choose", {**body, "options": ["man", "house"]})) == 2
    with client_of(folder("choose"), ServingLimits(queue_tokens=100, body_bytes=len(PASSAGE) + 200)) as http:
        assert refused(http, "/choose", {**body, "options": ["man", "house"]}) == len(PASSAGE) + 200


@pytest.mark.parametrize(
    ("passage", "question", "options"),
    [
        ("the old man", "who was _ or ____ ?", ["a house", "it"]),
        ("the _ man, my_file and __①__", "", ["old", "never bad", ""]),
        ("the #idiom# man #idiom#_", "", ["old", "never bad"]),
        ("the old man", "", ["was", "said"]),
    ],
)
def test_what_is_counted_is_what_is_read(
    client: Clients, monkeypatch: pytest.MonkeyPatch, passage: str, question: str, options: Sequence[str]
) -> None:
    """At least what is given to the tokenizer, and of a passage whose tokens all options share the copies."""
    model = client("choose").service.model  # type: ignore[attr-defined]
    given: list[str] = []
    encode = WordPieceTokenizer.encode
    monkeypatch.setattr(WordPieceTokenizer, "encode", lambda self, x: given.append(x) or encode(self, x))
    model.lengths(BatchKey("choose"), [(passage, question, tuple(options))])
    counted = characters_of(passage, question, options)
    read = sum(map(len, given[1:])) + (0 if "_" in passage else len(options) * len(passage))
    assert read <= counted <= read + len(options) * 30


def test_a_long_line_in_a_name_is_read_once(client: Clients) -> None:
    """Catches: a gap that is looked for from every underscore of a name to its end."""
    began = time.monotonic()
    body = {"passage": f"a{'_' * 20_000}a", "options": ["who", "man"], "truncate": True}
    assert len(post(client("choose"), "/choose", body)) == 2
    assert time.monotonic() - began < 3


def test_many_texts_are_not_cut_into_tokens(client: Clients, folder: Folders) -> None:
    """Catches: a number of texts that only costs where they have characters, and any number of tokens."""
    limit = client("embed").service.most_inputs  # type: ignore[attr-defined]
    body = post(client("embed"), "/tokenize", {"inputs": [""] * (limit + 1)}, 422)
    assert (body["code"], body["details"]) == ("batch_too_large", {"limit": limit})
    assert len(post(client("embed"), "/tokenize", {"inputs": [""] * limit})) == limit
    tokens = len(LONG.split())
    with client_of(folder("embed"), ServingLimits(queue_tokens=tokens)) as http:
        assert len(post(http, "/tokenize", {"inputs": LONG})[0]) == tokens + 2
        body = post(http, "/tokenize", {"inputs": ["who", LONG]}, 422)
        assert (body["code"], body["details"]) == ("batch_too_large", {"limit": tokens})


def test_many_texts_are_cut_by_another_thread(client: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: thousands of empty texts on the event loop."""
    service = client("embed").service  # type: ignore[attr-defined]
    costs: list[int] = []
    begin = service._begin
    monkeypatch.setattr(service, "_begin", lambda task, cost: costs.append(cost) or begin(task, cost))
    post(client("embed"), "/tokenize", {"inputs": [""] * 1000})
    post(client("embed"), "/tokenize", {"inputs": [""] * 10})
    assert len(costs) == 1 and costs[0] > services.INLINE


def test_labels_to_ignore_are_looked_up(folder: Folders) -> None:
    """Catches: a list that is searched for every entity, on the event loop."""

    class Many(ServedModel):
        def answer(self, kind: BatchKey, questions: Sequence[Any]) -> Sequence[Any]:
            return [([("x", 0, 1)] * 3000, None)] * len(questions)

    with client_of(folder("tag"), model=Many) as client:
        body = {"inputs": "who", "parameters": {"ignore_labels": [""] * 400_000}}
        began = time.monotonic()
        assert len(post(client, "/", body)) == 3000
        assert time.monotonic() - began < 4


def test_targets_are_bounded_and_cut_by_another_thread(
    client: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = client("fill-mask")
    service, costs = http.service, list[int]()  # type: ignore[attr-defined]
    begin = service._begin

    def noted(task: Any, cost: int) -> Any:
        costs.append(cost)
        return begin(task, cost)

    monkeypatch.setattr(service, "_begin", noted)

    def reply(targets: list[str]) -> Any:
        return post(http, "/", {"inputs": "the [MASK] man", "parameters": {"targets": targets}}, 422)

    assert reply(["man"] * 1001)["details"]["field"] == "parameters.targets"
    assert reply(["who " * 2000])["code"] == "unknown_target" and costs == [8000]


@pytest.mark.parametrize(("tokens", "cut"), [(128, False), (129, True), (200, True)])
def test_the_bound_of_a_question_is_that_of_its_rows_also_in_long_ones(
    client: Clients, tokens: int, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a length that is looked at where the question was cut to its bound already."""
    model = client("choose").service.model  # type: ignore[attr-defined]
    monkeypatch.setattr(type(model.task("choose")), "limit", 512)
    question = "who " * (tokens - 1)
    [length] = model.lengths(BatchKey("choose"), [("the man", question, ("was", "who"))])
    assert length.cut is cut
    if cut:
        assert (length.length, length.limit) == (tokens, 128)


def test_a_long_text_delays_no_other_request(folder: Folders) -> None:
    """Catches: one request that takes all the room and all the threads in which texts are tokenised."""
    release, begun = threading.Event(), threading.Event()
    with client_of(folder("embed")) as client:
        model = client.service.model  # type: ignore[attr-defined]
        count = model.tokens

        def blocked(text: str) -> int:
            if len(text) > 1_000_000:
                begun.set()
                assert release.wait(20)
            return int(count(text))

        model.tokens = blocked
        found: list[Any] = []
        long = threading.Thread(
            target=lambda: found.append(client.post("/tokenize", json={"inputs": "!" * 2_000_000}))
        )
        long.start()
        try:
            assert begun.wait(10)
            for size in (10, 3000, 60_000):
                assert len(post(client, "/tokenize", {"inputs": "who " * (size // 4)})[0]) == size // 4 + 2
        finally:
            release.set()
            long.join(20)
        [answer] = found
        assert (answer.status_code, answer.json()["code"]) == (422, "batch_too_large")


@pytest.mark.parametrize("direction", ["left", "right"])
@pytest.mark.parametrize(("name", "path"), [("embed", "/embed"), ("single", "/predict")])
def test_what_is_cut_off_is_not_computed_with(folder: Folders, name: str, path: str, direction: str) -> None:
    """Catches: a text of a megabyte that the engine tokenises while all other requests wait."""
    seen: list[str] = []

    class Noting(ServedModel):
        def answer(self, kind: BatchKey, questions: Sequence[Any]) -> Sequence[Any]:
            seen.extend(one if isinstance(one, str) else one[0] for one in questions)
            return super().answer(kind, questions)

    with client_of(folder(name), model=Noting) as client:
        model = client.service.model  # type: ignore[attr-defined]
        limit = model.task(model.tasks[0]).limit
        seen.clear()  # of the short texts that are tried at the start
        words = [("who", "man", "old")[i * i % 3] for i in range(250_000)]
        part = words[-(limit - 2) :] if direction == "left" else words[: limit - 2]
        cut = {"truncate": True, "truncation_direction": direction}
        whole = post(client, path, {"inputs": " ".join(words), **cut})
        assert len(seen) == 1 and len(seen[0]) < 50_000
        expected = post(client, path, {"inputs": " ".join(part), **cut})
        assert str(whole) == str(expected)
