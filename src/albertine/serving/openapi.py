"""The OpenAPI document of the routes, from their schemas.

Source: OpenAPI Specification 3.1.1, whose schemas are those of JSON Schema 2020-12, which pydantic writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from albertine import __version__
from albertine.serving import operations, responses
from albertine.serving.operations import Form
from albertine.tasks.http.errors import TYPES

Json = dict[str, Any]
REFERENCE = "#/components/schemas/{model}"
STATUSES = {
    400: "not JSON, compressed, or of an unclear length",
    401: "no valid token",
    403: "a page of another site, or an unknown host",
    404: "no such route, or no such model",
    409: "the model is being loaded or unloaded",
    408: "the request did not arrive in time",
    413: "more bytes than the server reads",
    422: "not valid: the code says why, such as input_too_long or not_for_this_model",
    429: "too much waits; Retry-After says when to come again",
    500: "the model gave no finite numbers, or the server failed",
    503: "the server starts or ends, or the model does not answer",
    504: "the answer did not come in time",
    507: "the model does not fit in the memory of the server",
}
"""What the statuses of errors mean; each is in `errors.TYPES`."""
ROOT = "The output of the model's head, as clients of Hugging Face request it"
"""Summary of `POST /`, which has many forms."""
OF_READING = (401, 403, 404, 503)
"""Those of requests without a body."""
OF_CHANGES = (409, 507)
"""Those of loading and unloading alone."""
NAME: Json = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
TOKENS = {
    "x-request-id": "the client's name of the request, or a new one",
    "x-compute-tokens": "tokens computed, special tokens included",
    "x-truncated-inputs": "inputs that were truncated",
    "x-queue-time": "milliseconds in the queue",
    "x-inference-time": "milliseconds of the model",
    "x-total-time": "milliseconds of the request",
    "x-model-sha": "digest of the model",
}
"""Headers of answers of the model."""


@cache
def document(page_files: Sequence[tuple[str, str]] = ()) -> Json:
    """The document.

    Args:
        page_files: paths and media types of further static files.
    """
    posted, got = operations.posted(), dict(operations.GOT)
    got |= {path: Form("A file of the page.", media=media) for path, media in page_files}
    schemas = _Schemas(_types(posted, got))
    paths: dict[str, Json] = {}
    for path, forms in posted.items():
        paths.setdefault(path, {})["post"] = _post(path, forms, schemas)
    for path, form in got.items():
        paths.setdefault(path, {})["get"] = _get(path, form, schemas)
    for (path, method), form in operations.CHANGED.items():
        paths[path][method] = _change(path, method, form, schemas)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Albertine",
            "version": __version__,
            "summary": "Predictions of a shared text encoder.",
            "description": "Which routes the model has a head for is at `/info`; the others answer 422 "
            "`not_for_this_model`. Where the server has several models, a request is for the first, or for "
            "the one that a field `model` of the body names, or the address: `/models/NAME/embed`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "."}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.named,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "required where the server has one",
                }
            },
            "responses": {
                f"{kind.__name__}{status}": {
                    "description": meaning,
                    "content": {"application/json": {"schema": schemas(kind)}},
                }
                for kind in (responses.Error, responses.OpenAiError)
                for status, meaning in STATUSES.items()
            },
            "headers": {
                name: {"description": meaning, "schema": {"type": "string"}}
                for name, meaning in TOKENS.items()
            },
        },
    }


class _Schemas:
    """JSON schemas of types, with those of classes by name.

    Attributes:
        named: by the name of the class.
    """

    def __init__(self, types: Iterable[Any]) -> None:
        adapters = {repr(one): TypeAdapter(one) for one in types}
        found, rest = TypeAdapter.json_schemas(
            [(name, "validation", adapter) for name, adapter in adapters.items()], ref_template=REFERENCE
        )
        self._found = {name: schema for (name, _), schema in found.items()}
        self.named: Json = rest["$defs"]

    def __call__(self, one: Any) -> Json:
        return self._found[repr(one)]


def _types(posted: Mapping[str, Sequence[Form]], got: Mapping[str, Form]) -> Iterator[Any]:
    yield from (responses.Error, responses.OpenAiError)
    changed = operations.CHANGED.values()
    for form in (*(form for forms in posted.values() for form in forms), *got.values(), *changed):
        yield form.response
        if form.body is not None:
            yield form.body


def _post(path: str, forms: Sequence[Form], schemas: _Schemas) -> Json:
    content: Json = {"schema": _any_of([schemas(form.body) for form in forms])}
    examples = {
        f"example{number}": {"summary": form.summary.rstrip("."), "value": dict(form.example)}
        for number, form in enumerate(forms, 1)
        if form.example
    }
    if examples:
        content["examples"] = examples
    return {
        "operationId": "post" + _name(path),
        "summary": ROOT if path == "/" else _joined(form.summary for form in forms),
        **_described(forms),
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {
            "200": {
                "description": "the answer",
                "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in TOKENS},
                "content": {
                    "application/json": {"schema": _any_of([schemas(form.response) for form in forms])}
                },
            },
            **_errors(path, [one for one in STATUSES if one not in OF_CHANGES]),
        },
    }


def _get(path: str, form: Form, schemas: _Schemas) -> Json:
    schema = schemas(form.response) if form.media == "application/json" else {"type": "string"}
    found: Json = {
        "operationId": "get" + _name(path),
        "summary": form.summary.rstrip("."),
        **_described([form]),
        "responses": {
            "200": {"description": "the answer", "content": {form.media: {"schema": schema}}},
            **_errors(path, OF_READING),
        },
    }
    if "{name}" in path:
        found["parameters"] = [NAME]
    return found


def _change(path: str, method: str, form: Form, schemas: _Schemas) -> Json:
    """A `PUT` or `DELETE` of a model."""
    found: Json = {
        "operationId": method + _name(path),
        "summary": form.summary.rstrip("."),
        **_described([form]),
        "parameters": [NAME],
        "responses": {
            "200": {
                "description": "the answer",
                "content": {"application/json": {"schema": schemas(form.response)}},
            },
            **_errors(path, (*OF_READING, *OF_CHANGES, *((400, 413, 422) if form.body else ()))),
        },
    }
    if form.body is not None:
        content = {"schema": schemas(form.body), "example": dict(form.example)}
        found["requestBody"] = {"required": True, "content": {"application/json": content}}
    return found


def _described(forms: Sequence[Form]) -> Json:
    needs = _joined(form.needs for form in forms)
    clients = _joined(form.clients for form in forms)
    parts = [f"Needs {needs}." if needs else "", f"Clients: {clients}." if clients else ""]
    text = " ".join(part for part in parts if part)
    return {"description": text} if text else {}


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(part.rstrip(".") for part in dict.fromkeys(parts) if part)


def _any_of(given: Sequence[Json]) -> Json:
    different = [one for i, one in enumerate(given) if one not in given[:i]]
    return different[0] if len(different) == 1 else {"anyOf": different}


def _errors(path: str, statuses: Iterable[int]) -> Json:
    kind = responses.OpenAiError if path.startswith("/v1/") else responses.Error
    return {
        str(status): {"$ref": f"#/components/responses/{kind.__name__}{status}"}
        for status in statuses
        if status in TYPES
    }


def _name(path: str) -> str:
    words = path.replace("{", " ").replace("}", " ")
    for mark in "/_-.":
        words = words.replace(mark, " ")
    return "".join(word.capitalize() for word in words.split()) or "Root"
