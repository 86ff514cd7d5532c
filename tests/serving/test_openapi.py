"""`/openapi.json` and `/docs`: the document is valid, names every path, its examples succeed, and what the
server returns has the schemas that it states."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from starlette.testclient import TestClient

from albertine import save
from albertine.model.model import Model
from albertine.serving.app import PAGE, paths
from albertine.serving.page import HEADERS
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.inference.exports import PIECES, encoder
from tests.serving.served import client_of

Clients = Callable[[str], TestClient]
HEADS = ("embed", "fill-mask", "single", "score", "nli", "tag", "answer", "choose", "relate")


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a model with a head of sentence order."""
    folder = tmp_path_factory.mktemp("served") / "order"
    save(Model(encoder(1), {"mlm", "sop", "pooler"}, seed=2).eval(), WordPieceTokenizer(PIECES), folder)
    with client_of(folder) as found:
        yield found


@pytest.fixture(scope="module")
def document(client: Clients) -> dict[str, Any]:
    found = client("embed").get("/openapi.json")
    assert found.headers["content-type"] == "application/json"
    document: dict[str, Any] = found.json()
    return document


def validator(document: dict[str, Any], place: list[str]) -> Draft202012Validator:
    """Of the schema at a place of the document, a response given by its name first."""
    schema: Any = document
    for part in place:
        schema = schema[part]
        if isinstance(schema, dict) and schema.get("$ref", "").startswith("#/components/responses/"):
            schema = document["components"]["responses"][schema["$ref"].rpartition("/")[2]]
    text = json.dumps(schema).replace("#/components/", "urn:document#/components/")
    registry = Registry().with_resource("urn:document", _resource(document))
    return Draft202012Validator(json.loads(text), registry=registry)


def _resource(document: dict[str, Any]) -> Resource[Any]:
    return Resource.from_contents({"$schema": Draft202012Validator.META_SCHEMA["$id"], **document})


def test_it_is_an_openapi_document(document: dict[str, Any]) -> None:
    spec = pytest.importorskip("openapi_spec_validator")
    spec.validate(document)
    with pytest.raises(spec.validation.exceptions.OpenAPIValidationError):
        spec.validate({**document, "paths": {"embed": {}}})  # the validator itself


def test_every_path_is_in_it(client: Clients, document: dict[str, Any]) -> None:
    """Catches: a route that was added and is not described; a method that is not served."""
    table: Any = client("embed").app.routes  # type: ignore[attr-defined]
    served = {route.path.replace("{name:path}", "{name}"): route.methods - {"HEAD"} for route in table}
    stated = {path: {name.upper() for name in item} for path, item in document["paths"].items()}
    assert stated == served
    assert {*paths(), "/v1/models/{name:path}".replace("{name:path}", "{name}")} == stated.keys()


def examples(document: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        (path, one["value"])
        for path, item in document["paths"].items()
        if "post" in item
        for one in item["post"]["requestBody"]["content"]["application/json"]["examples"].values()
    ]


def test_every_example_succeeds(client: Clients, order: TestClient, document: dict[str, Any]) -> None:
    """Of each a model answers, and all responses, errors too, are what the document states. Catches: an
    example of another version; a field of a response that is not in its schema."""
    found = examples(document)
    assert {path for path, _ in found} == {p for p, item in document["paths"].items() if "post" in item}
    for path, body in found:
        own = ["paths", path, "post"]
        request = validator(document, [*own, "requestBody", "content", "application/json", "schema"])
        request.validate(body)
        statuses = set()
        for http in (*map(client, HEADS), order):
            answer = http.post(path, json=body)
            statuses.add(answer.status_code)
            place = [*own, "responses", str(answer.status_code), "content", "application/json", "schema"]
            validator(document, place).validate(answer.json())
        assert 200 in statuses, (path, body)


def test_a_response_of_another_shape_is_not_valid(document: dict[str, Any]) -> None:
    place = ["paths", "/embed", "post", "responses", "200", "content", "application/json", "schema"]
    validator(document, place).validate([[0.5]])
    assert list(validator(document, place).iter_errors([0.5]))
    place = ["paths", "/embed_sparse", *place[2:]]
    assert list(validator(document, place).iter_errors([[{"index": 1, "value": 0.5, "text": "a"}]]))


def test_what_is_read_without_a_body(client: Clients, document: dict[str, Any]) -> None:
    for head in ("embed", "fill-mask"):
        for path, item in document["paths"].items():
            if "get" not in item:
                continue
            answer = client(head).get(path.replace("{name}", head))
            [media] = item["get"]["responses"]["200"]["content"]
            assert answer.status_code == 200 and media == answer.headers["content-type"].split(";")[0]
            if media == "application/json":
                place = ["paths", path, "get", "responses", "200", "content", media, "schema"]
                validator(document, place).validate(answer.json())
    missing = client("embed").get("/v1/models/other")
    place = ["paths", "/v1/models/{name}", "get", "responses", "404", "content", "application/json", "schema"]
    validator(document, place).validate(missing.json())


class Links(HTMLParser):
    """What a page loads and links to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()
        self.scripts = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [given[name] or "" for name in ("href", "src") if name in given]
        self.ids |= {given["id"] or ""} if "id" in given else set()
        self.scripts += tag == "script" or any(name.startswith("on") for name in given)


def test_the_page_of_routes(client: Clients, document: dict[str, Any]) -> None:
    """Catches: a resource from elsewhere; a link to nothing; a route that is not on it; a script, or a style
    in an attribute, which the policy forbids."""
    answer = client("embed").get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]
    page = Links(answer.text)
    assert not page.scripts and "style=" not in answer.text
    for link in page.found:
        if link.startswith("#"):
            assert link[1:] in page.ids
        elif not link.startswith("data:"):
            assert client("embed").get("/" + link.removeprefix("./")).status_code == 200, link
    for path, item in document["paths"].items():
        if not path.startswith("/page/"):
            for method in item:
                assert f"{method.upper()} {path}" in answer.text


def test_examples_on_the_page_are_commands(client: Clients, document: dict[str, Any]) -> None:
    """Those of the document, in quotes of a shell."""
    import html
    import shlex

    shown = re.findall(r"<pre>(curl .*?)</pre>", client("embed").get("/docs").text)
    commands = [shlex.split(html.unescape(one)) for one in shown if " -X PUT " not in one]
    sent = [(one[1].removeprefix("http://127.0.0.1:8080"), json.loads(one[3])) for one in commands]
    assert sorted(map(str, sent)) == sorted(map(str, examples(document)))


def test_it_is_stored_by_browsers(client: Clients) -> None:
    for path in ("/docs", "/openapi.json"):
        tag = client("embed").get(path).headers["etag"]
        assert client("embed").get(path, headers={"if-none-match": tag}).status_code == 304
        assert path in PAGE
