"""The HTTP interface: routes and methods, what each takes, the shape of what it answers, errors, metrics."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.contracts.products import Products
from tests.contracts.snapshots import shape_of
from tests.inference.exports import tuned
from tests.serving.served import client_of

TEXT, PAIR = "the old man", ["the old man", "a house"]
CUT = {"truncate": True, "truncation_direction": "left"}
POSTED: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "embed": [
        ("/", {"inputs": TEXT}),
        ("/", {"inputs": {"source_sentence": TEXT, "sentences": PAIR}, "parameters": CUT}),
        ("/embed", {"inputs": PAIR, "normalize": False, "dimensions": 4, **CUT}),
        ("/embed", {"inputs": TEXT, "prompt_name": None, "encoding_format": "float"}),
        ("/similarity", {"inputs": {"source_sentence": TEXT, "sentences": PAIR}, "parameters": CUT}),
        ("/rerank", {"query": TEXT, "texts": PAIR, "raw_scores": True, "return_text": True, **CUT}),
        ("/rerank", {"query": TEXT, "documents": PAIR, "top_n": 1, "return_documents": True, "model": "m"}),
        ("/tokenize", {"inputs": PAIR, "add_special_tokens": True, "prompt_name": None}),
        ("/embed_all", {"inputs": PAIR, "prompt_name": None, **CUT}),
        ("/decode", {"ids": [2, 5, 3], "skip_special_tokens": False}),
        ("/decode", {"ids": [[2, 5, 3], [5]]}),
        ("/embeddings", {"input": TEXT, "dimensions": 4, "user": "any other field", **CUT}),
        ("/v1/embeddings", {"input": PAIR, "model": "embed", "encoding_format": "float"}),
        ("/v1/embeddings", {"input": TEXT, "encoding_format": "base64"}),
    ],
    "single": [
        ("/", {"inputs": TEXT, "parameters": {"top_k": 2, "function_to_apply": "softmax", **CUT}}),
        ("/", {"inputs": {"text": PAIR[0], "text_pair": PAIR[1]}}),
        ("/predict", {"inputs": TEXT, "raw_scores": True, **CUT}),
        ("/predict", {"inputs": [PAIR, [TEXT]]}),
    ],
    "score": [("/predict", {"inputs": PAIR}), ("/rerank", {"query": TEXT, "texts": PAIR})],
    "nli": [
        ("/", {"inputs": TEXT, "parameters": {"candidate_labels": PAIR, "multi_label": True}}),
        (
            "/zero-shot",
            {
                "inputs": [TEXT],
                "parameters": {"candidate_labels": PAIR, "hypothesis_template": "{} .", "truncate": True},
            },
        ),
    ],
    "tag": [
        (
            "/",
            {
                "inputs": TEXT,
                "parameters": {"aggregation_strategy": "simple", "ignore_labels": [], "stride": None, **CUT},
            },
        )
    ],
    "answer": [
        ("/", {"inputs": {"question": "who ?", "context": TEXT}}),
        (
            "/",
            {
                "inputs": [{"question": "who ?", "context": TEXT}],
                "parameters": {"top_k": 2, "handle_impossible_answer": False, "align_to_words": True},
            },
        ),
    ],
    "choose": [("/choose", {"question": "who", "passage": TEXT, "options": PAIR, **CUT})],
    "relate": [("/relate", {"inputs": [TEXT], **CUT})],
    "fill-mask": [
        ("/", {"inputs": "the [MASK] man", "parameters": {"top_k": 2, **CUT}}),
        ("/", {"inputs": "the [MASK] man", "parameters": {"targets": ["old", "house"]}}),
        ("/embed_sparse", {"inputs": TEXT, **CUT}),
    ],
}
"""By head of a model requests that use every field of every route."""
HEALTH = ("/health", "/health/live", "/health/ready")
GOT = ("/", "/info", "/analyze/model", *HEALTH, "/v1/models", "/v1/models/embed")
WRONG: list[tuple[str, str, Any]] = [
    ("POST", "/embed", {"inputs": TEXT, "no_such_field": 1}),
    ("POST", "/embed", {}),
    ("POST", "/embed", {"inputs": 1}),
    ("POST", "/embed", {"inputs": []}),
    ("POST", "/embed", {"inputs": "the " * 30, "truncate": False}),
    ("POST", "/embed", {"inputs": TEXT, "dimensions": 1000}),
    ("POST", "/predict", {"inputs": TEXT}),
    ("POST", "/sentence-order", {"first": TEXT, "second": TEXT}),
    ("POST", "/v1/embeddings", {"input": TEXT, "model": "other"}),
    ("POST", "/v1/embeddings", {"input": [1, 2]}),
    ("GET", "/v1/models/other", None),
    ("GET", "/embed", None),
    ("POST", "/no-such-route", {}),
]
"""Requests to a model of vectors that are refused."""


def contract(products: Products) -> dict[str, Any]:
    """Routes, answers by head and request, refusals, and the families at /metrics."""
    found: dict[str, Any] = {"answers": {}}
    for head, requests in POSTED.items():
        folder = tuned(head, products.folder / "served" / head)
        with client_of(folder) as client:
            found["answers"][head] = [
                {"route": route, "body": body, **_answer(client, "POST", route, body)}
                for route, body in requests
            ]
            if head == "embed":
                found["routes"] = _routes(client)
                found["got"] = {route: _answer(client, "GET", route) for route in GOT}
                found["refused"] = [_refused(client, *request) for request in WRONG]
                found["headers"] = _headers(client)
                found["metrics"] = _families(client)
    with client_of(products.folder / "served" / "embed", token=b"secret") as client:
        found["without token"] = {
            route: client.get(route).status_code for route in ("/info", "/health", "/health/live", "/metrics")
        }
    return found


def _routes(client: TestClient) -> dict[str, list[str]]:
    routes: Any = client.app.routes  # type: ignore[attr-defined]
    return {route.path: sorted(route.methods) for route in sorted(routes, key=lambda route: route.path)}


def _answer(client: TestClient, method: str, route: str, body: Any = None) -> dict[str, Any]:
    found = client.request(method, route, json=body)
    kind = found.headers["content-type"].partition(";")[0]
    shape = shape_of(found.json()) if kind == "application/json" else "text"
    return {"status": found.status_code, "type": kind, "answer": shape}


def _refused(client: TestClient, method: str, route: str, body: Any) -> dict[str, Any]:
    found = client.request(method, route, json=body)
    content = found.json()
    error = content["error"] if isinstance(content["error"], dict) else content
    return {
        "request": [method, route, body],
        "status": found.status_code,
        "code": error["code"],
        "type": error.get("type", content.get("error_type")),
        "shape": shape_of(content),
    }


def _headers(client: TestClient) -> list[str]:
    found = client.post("/embed", json={"inputs": TEXT, "dimensions": 4})
    return sorted(name for name in found.headers if name.startswith("x-"))


def _families(client: TestClient) -> dict[str, Any]:
    """By name of a family its type and the names of its labels."""
    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        if family.name.endswith("_created"):  # as the installed version of prometheus_client has it
            continue
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        found[family.name] = {"type": family.type, "labels": labels}
    return found
