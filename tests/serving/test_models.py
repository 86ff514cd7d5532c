"""Several models in one server: which one answers, loading, replacing and unloading while it answers."""

from __future__ import annotations

import json
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from starlette.testclient import TestClient

from albertine.cli.app import run
from albertine.serving import models as models_module
from albertine.serving.golden import FILE, difference
from tests.serving.served import client_of

Folders = Callable[[str], Path]
ADMIN = b"of the administrator"
HEADERS = {"authorization": ADMIN.decode()}
ASKED = {"inputs": ["the old man"]}


@pytest.fixture
def http(folder: Folders) -> Iterator[TestClient]:
    """A client of a server of one model with vectors, `embed`, which may load others."""
    with client_of(folder("embed"), admin_token=ADMIN) as client:
        yield client


def load(http: TestClient, name: str, folder: Path) -> Any:
    return http.put(f"/v1/models/{name}", json={"model": str(folder)}, headers=HEADERS)


def vector(http: TestClient, path: str = "/embed", **more: Any) -> list[float]:
    found = http.post(path, json=ASKED | more)
    assert found.status_code == 200, found.text
    return list(found.json()[0])


@pytest.fixture
def other(folder: Folders, tmp_path: Path) -> Path:
    """`embed` with other weights."""
    copy = Path(shutil.copytree(folder("embed"), tmp_path / "other"))
    change(copy)
    return copy


def change(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({name: 1.2 * x for name, x in weights.items()}, folder / "model.safetensors")


def code(found: Any) -> tuple[int, str]:
    body = found.json()
    return found.status_code, (body["error"] if isinstance(body["error"], dict) else body)["code"]


def until(found: Callable[[], Any]) -> None:
    for _ in range(1000):
        if found():
            return
        time.sleep(0.01)
    raise AssertionError("it never came about")


def test_a_request_names_its_model(http: TestClient, folder: Folders, other: Path) -> None:
    """In its address or its body. Catches: an answer of the first model under the name of another."""
    entry = load(http, "classes", folder("single")).json()
    assert entry["id"] == "classes" and entry["tasks"][0] == "classify"
    assert [one["id"] for one in http.get("/v1/models").json()["data"]] == ["embed", "classes"]
    assert load(http, "other", other).status_code == 200
    first, second = vector(http), vector(http, "/models/other/embed")
    assert first == vector(http, model="embed") == vector(http, "/models/embed/embed", model="embed")
    assert second == vector(http, model="other") != first
    found = http.post("/v1/embeddings", json={"input": "the old man", "model": "classes"})
    assert found.json()["model"] == "classes" and found.headers["x-model-sha"] == entry["sha"]
    assert http.get("/models/classes/info").json()["model_id"] == "classes"
    assert http.get("/models/classes/analyze/model").json()["name"] == "classes"
    assert http.get("/models/classes/health").json() == {"status": "ready"}
    assert http.get("/models/classes/").text == http.get("/").text  # whose script asks what lies beside it
    for path in ("/models/classes", "/models/classes/", "/models/classes/predict"):
        assert "label" in http.post(path, json={"inputs": "the old man"}).text
    assert code(http.post("/predict", json={"inputs": "a"})) == (422, "not_for_this_model")


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/embed", {"model": "nobody"}, (404, "model_not_found")),
        ("/v1/embeddings", {"input": "a", "model": "nobody"}, (404, "model_not_found")),
        ("/rerank", {"query": "a", "documents": ["b"], "model": "nobody"}, (404, "model_not_found")),
        ("/models/nobody/embed", {}, (404, "model_not_found")),
        ("/models/embed/embed", {"model": "other"}, (422, "two_models")),
        ("/embed", {"model": 3}, (422, "invalid_type")),
        ("/models/embed/nowhere", {}, (404, "no_route")),
        ("/models/", {}, (404, "model_not_found")),
    ],
)
def test_a_wrong_name(http: TestClient, path: str, body: dict[str, Any], expected: tuple[int, str]) -> None:
    body = body if "input" in body or "query" in body else ASKED | body
    assert code(http.post(path, json=body)) == expected


def test_clients_are_distinguished_by_their_tokens(folder: Folders) -> None:
    """Where there are several: behind a proxy all have one address."""
    with client_of(folder("embed"), token=b"one\ntwo") as http:
        queue, clients = http.service.queue, list[Any]()  # type: ignore[attr-defined]
        put = queue.put
        queue.put = lambda items: clients.extend(item.client for item in items) or put(items)
        for token, status in (("one", 200), ("two", 200), ("three", 401)):
            found = http.post("/embed", json=ASKED, headers={"authorization": f"Bearer {token}"})
            assert found.status_code == status
        assert len(clients) == 2 and clients[0] != clients[1]


def test_names_are_not_listed_without_the_token(folder: Folders) -> None:
    with client_of(folder("embed"), token=b"of clients") as http:
        for path in ("/models/x/", "/models/x/health/live"):
            found = http.get(path)
            assert found.status_code == 404 and "embed" not in found.text
        found = http.get("/models/x/info", headers={"authorization": "of clients"})
        assert found.status_code == 404 and "`embed`" in found.text


def test_the_page_of_a_model_has_its_slash(http: TestClient) -> None:
    """Its scripts have relative addresses."""
    found = http.get("/models/embed", follow_redirects=False)
    assert (found.status_code, found.headers["location"]) == (307, "embed/")


def test_only_the_administrator_changes_models(folder: Folders) -> None:
    """Catches: the token of clients, with which every folder of the server could be read."""
    body = {"model": str(folder("single"))}
    with client_of(folder("embed"), token=b"of clients", admin_token=ADMIN) as http:
        for token in ({}, {"authorization": "Bearer of clients"}, {"authorization": "wrong"}):
            for found in (
                http.put("/v1/models/new", json=body, headers=token),
                http.delete("/v1/models/embed", headers=token),
            ):
                assert code(found) == (401, "unauthorized")
        assert code(http.post("/embed", json=ASKED, headers=HEADERS)) == (401, "unauthorized")
        assert load(http, "new", folder("single")).status_code == 200
    with client_of(folder("embed")) as http:
        assert code(http.put("/v1/models/new", json=body)) == (403, "no_admin_token")
        assert code(http.delete("/v1/models/embed")) == (403, "no_admin_token")


def test_a_model_is_replaced_under_load(http: TestClient, other: Path) -> None:
    """Catches: requests that fail in between; answers of the new weights under the old digest."""
    models = http.models  # type: ignore[attr-defined]
    before = models.find("embed")
    old, seen, stop = vector(http), [], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            found = http.post("/embed", json=ASKED)
            seen.append((found.status_code, found.headers.get("x-model-sha"), found.json()[0]))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: len(seen) > 5)
    entry = load(http, "embed", other).json()
    count = len(seen)
    until(lambda: len(seen) > count + 5)
    stop.set()
    for thread in threads:
        thread.join()
    new = vector(http)
    assert {status for status, _, _ in seen} == {200} and old != new
    assert all(np.allclose(found, old if sha == before.sha else new, atol=1e-5) for _, sha, found in seen)
    assert {sha for _, sha, _ in seen} == {before.sha, entry["sha"]}
    until(lambda: before.queue.closed)  # the old one ends after its last request
    info = [
        line for line in http.get("/metrics").text.splitlines() if line.startswith("albertine_model_info")
    ]
    assert len(info) == 1 and entry["sha"] in info[0]


def damaged(folder: Path, copy: Path) -> Path:
    shutil.copytree(folder, copy)
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return copy


def test_the_old_model_stays_where_the_new_one_is_wrong(
    http: TestClient, folder: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged one, one with other answers than its file says, and no model at all."""
    before = vector(http)
    assert code(load(http, "embed", damaged(folder("embed"), tmp_path / "damaged"))) == (
        422,
        "model_not_loaded",
    )
    assert code(load(http, "embed", tmp_path / "nowhere")) == (422, "model_not_loaded")
    copy = Path(shutil.copytree(folder("embed"), tmp_path / "copy"))
    assert run(["golden", str(copy)]) == 0
    assert "golden.json" in capsys.readouterr().out
    found = load(http, "embed", copy)
    assert found.status_code == 200, found.text
    golden = json.loads((copy / FILE).read_text(encoding="utf-8"))
    change(copy)
    found = load(http, "embed", copy)
    assert code(found) == (422, "model_not_loaded") and "the model answers otherwise" in found.text
    golden["answers"][0]["path"] = "/nowhere"
    (copy / FILE).write_text(json.dumps(golden), encoding="utf-8")
    assert "there is no such route" in load(http, "embed", copy).text
    (copy / FILE).write_text("[]", encoding="utf-8")
    assert "is no file of golden answers" in load(http, "embed", copy).text
    assert vector(http) == before
    assert len(http.get("/v1/models").json()["data"]) == 1


def test_a_model_is_unloaded(http: TestClient, folder: Folders) -> None:
    """Catches: a first model that cannot be unloaded; answers of another one under its name; counters of one
    that has gone."""
    assert load(http, "classes", folder("single")).status_code == 200
    assert http.delete("/v1/models/embed", headers=HEADERS).json()["deleted"] is True
    assert code(http.delete("/v1/models/embed", headers=HEADERS)) == (404, "model_not_found")
    assert code(http.post("/predict", json={"inputs": "a"})) == (503, "no_model")  # not another one's answer
    assert http.get("/models/classes/info").json()["model_id"] == "classes"
    assert 'model="embed"' not in http.get("/metrics").text
    assert http.delete("/v1/models/classes", headers=HEADERS).status_code == 200
    assert code(http.post("/embed", json=ASKED)) == (503, "no_model")
    assert code(http.get("/health")) == (503, "no_model")
    assert http.get("/health/live").status_code == 200
    assert load(http, "embed", folder("embed")).status_code == 200
    assert http.get("/health").status_code == 200 and vector(http)


def test_memory_of_an_unloaded_model_is_free(
    http: TestClient, folder: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a reference to a model that has ended."""
    monkeypatch.setattr(models_module, "RELEASE", 0.0)
    assert load(http, "classes", folder("single")).status_code == 200
    assert http.post("/models/classes/predict", json={"inputs": "a"}).status_code == 200
    service = http.models.find("classes")  # type: ignore[attr-defined]
    weights = weakref.ref(service.model.predictor.model.encoder.embeddings.word.weight)
    del service
    assert http.delete("/v1/models/classes", headers=HEADERS).status_code == 200
    until(lambda: weights() is None)


def test_one_change_of_a_name_at_a_time(
    http: TestClient, folder: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    made = models_module.ServedModel

    def held(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(10)
        return made(*given)

    monkeypatch.setattr(models_module, "ServedModel", held)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(load(http, "new", folder("single"))))
    thread.start()
    assert begun.wait(10)
    assert code(load(http, "new", folder("single"))) == (409, "model_changing")
    assert vector(http)  # others are answered meanwhile
    go_on.set()
    thread.join()
    assert found[0].status_code == 200


@pytest.mark.parametrize("name", ["with a space", "新", "a" * 65, "a/b"])
def test_a_name_stands_in_addresses(http: TestClient, folder: Folders, name: str) -> None:
    expected = 200 if name == "新" else 422
    assert load(http, name, folder("single")).status_code == expected


def test_memory_is_bounded(http: TestClient, folder: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the model is read, by its files, and after, by what the process takes."""
    models = http.models  # type: ignore[attr-defined]
    models._most = 2000
    sizes = iter([1000, 3000, 1000, 1000])
    monkeypatch.setattr(models_module, "resident_bytes", lambda: next(sizes) * 1_000_000)
    monkeypatch.setattr(models_module, "size_on_disk", lambda model: 1_500_000_000)
    assert code(load(http, "new", folder("single"))) == (507, "out_of_memory")
    monkeypatch.undo()
    sizes = iter([1000, 3000, 3000])
    monkeypatch.setattr(models_module, "resident_bytes", lambda: next(sizes) * 1_000_000)
    assert code(load(http, "new", folder("single"))) == (507, "out_of_memory")
    monkeypatch.undo()
    models._most = None
    assert load(http, "new", folder("single")).status_code == 200


def test_resident_memory_and_size_on_disk(folder: Folders) -> None:
    resident = models_module.resident_bytes()
    assert resident is None or 50_000_000 < resident < 100_000_000_000
    weights = (folder("single") / "model.safetensors").stat().st_size
    assert weights < models_module.size_on_disk(str(folder("single"))) < weights + 100_000


@pytest.mark.parametrize(
    ("found", "known", "place"),
    [
        ([1.0, 2.01], [1.0, 2.0], None),
        ([1.0, 2.5], [1.0, 2.0], "[1]"),
        ({"a": [{"b": 0.5}]}, {"a": [{"b": 0.6}]}, ".a[0].b"),
        ({"a": 1}, {"b": 1}, "its value"),
        ([1], [1, 2], "its value"),
        ("x", "y", "its value"),
        (1000.0, 1010.0, None),
        (1000, 1010, "its value"),
        (None, None, None),
        (True, False, "its value"),
        (float("nan"), 0.0, "its value"),
    ],
)
def test_where_answers_differ(found: Any, known: Any, place: str | None) -> None:
    assert difference(found, known, 0.02) == place
