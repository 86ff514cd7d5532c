"""`/embed_all`, `/embed_sparse` and `/decode`: shapes of text-embeddings-inference, numbers of the model, of
transformers and of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient
from transformers import AutoModel, AutoTokenizer

from albertine import load
from albertine.serving import token_routes, token_tasks
from albertine.serving.limits import ServingLimits
from tests.inference.exports import LONG, TEXTS
from tests.serving.served import client_of
from tests.serving.test_routes import post

Clients = Callable[[str], TestClient]
Folders = Callable[[str], Path]
FITTING = TEXTS[:3]


def test_a_vector_for_each_token(client: Clients, folder: Folders) -> None:
    """Catches: padding among the tokens; special tokens left out; pooled or normalized vectors."""
    model, tokenizer = (
        AutoModel.from_pretrained(folder("embed")),
        AutoTokenizer.from_pretrained(folder("embed")),
    )
    found = post(client("embed"), "/embed_all", {"inputs": FITTING})
    for text, own in zip(FITTING, found, strict=True):
        with torch.inference_mode():
            [wanted] = model(**tokenizer(text, return_tensors="pt")).last_hidden_state.numpy()
        np.testing.assert_allclose(own, wanted, atol=1e-5)
    assert post(client("embed"), "/embed_all", {"inputs": FITTING[0]}) == found[:1]
    tokens = client("embed").post("/embed_all", json={"inputs": FITTING}).headers["x-compute-tokens"]
    assert int(tokens) == sum(map(len, found))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sparse_vectors_are_those_of_sentence_transformers(client: Clients, folder: Folders) -> None:
    """SPLADE. Catches: a maximum over padding; log(1 + x) of negative logits; special tokens left out; zeros
    returned."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    parts = [MLMTransformer(str(folder("fill-mask"))), SpladePooling("max")]
    wanted = SparseEncoder(modules=parts, device="cpu").encode(FITTING, convert_to_sparse_tensor=False)
    found = post(client("fill-mask"), "/embed_sparse", {"inputs": FITTING})
    assert wanted.shape == (3, 23) and (wanted == 0).any()
    for own, row in zip(found, np.asarray(wanted), strict=True):
        assert [one["index"] for one in own] == np.nonzero(row)[0].tolist()
        assert [one["value"] for one in own] == pytest.approx(row[row != 0].tolist(), abs=1e-5)
    # Each alone, as the thread of the model may split a request.
    assert [
        one["index"] for one in post(client("fill-mask"), "/embed_sparse", {"inputs": FITTING[1]})[0]
    ] == [one["index"] for one in found[1]]


@pytest.mark.parametrize(
    ("name", "path", "limit"), [("embed", "/embed_all", 16), ("fill-mask", "/embed_sparse", 40)]
)
def test_too_long_texts(client: Clients, name: str, path: str, limit: int) -> None:
    """Catches: a silent cut; the wrong end that is cut; a server that cuts by itself and is not heeded."""
    http, words = client(name), LONG.split()
    refused = post(http, path, {"inputs": ["who", LONG]}, 422)
    assert (refused["code"], refused["details"]["index"], refused["details"]["limit"]) == (
        "input_too_long",
        1,
        limit,
    )
    for side, kept in (("left", words[2 - limit :]), ("right", words[: limit - 2])):
        found = http.post(path, json={"inputs": [LONG], "truncate": True, "truncation_direction": side})
        wanted = post(http, path, {"inputs": " ".join(kept)})
        assert found.headers["x-truncated-inputs"] == "1" and found.headers["x-compute-tokens"] == str(limit)
        np.testing.assert_allclose(_numbers(found.json()), _numbers(wanted), atol=1e-5)


def _numbers(found: Any) -> Any:
    return [one["value"] for one in found[0]] if isinstance(found[0][0], dict) else found


def test_a_server_that_cuts_by_itself_cuts_here_too(folder: Folders) -> None:
    with client_of(folder("embed"), ServingLimits(auto_truncate=True)) as http:
        assert len(post(http, "/embed_all", {"inputs": LONG})[0]) == 16


def test_large_responses_are_refused(client: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: gigabytes of JSON for a request of two megabytes."""
    monkeypatch.setattr(token_tasks, "NUMBERS", 32 * 8)
    assert len(post(client("embed"), "/embed_all", {"inputs": FITTING[0]})[0]) == 5
    refused = post(client("embed"), "/embed_all", {"inputs": [FITTING[0]] * 2}, 422)
    assert refused["code"] == "batch_too_large" and refused["details"] == {"tokens": 10, "limit": 8}
    monkeypatch.setattr(token_tasks, "WEIGHTS", 23 * 2)
    post(client("fill-mask"), "/embed_sparse", {"inputs": FITTING[:2]})
    refused = post(client("fill-mask"), "/embed_sparse", {"inputs": FITTING}, 422)
    assert refused["code"] == "batch_too_large" and refused["details"]["limit"] == 2
    monkeypatch.setattr(token_routes, "LARGEST", 5)
    refused = post(client("fill-mask"), "/embed_sparse", {"inputs": "who"}, 422)
    assert refused["code"] == "batch_too_large" and refused["details"]["limit"] == 5


def test_numbers_that_are_not_finite_are_an_error(folder: Folders) -> None:
    """Catches: a NaN that no comparison with zero finds, and that is left out of a sparse vector."""
    for name, path in (("fill-mask", "/embed_sparse"), ("embed", "/embed_all")):
        with client_of(folder(name)) as http:
            model = http.service.model.predictor.model  # type: ignore[attr-defined]
            word = model.encoder.embeddings.word.weight
            number = http.service.model.predictor.tokenizer.encode("who")[0]  # type: ignore[attr-defined]
            kept = word[number].clone()
            with torch.no_grad():
                word[number] = float("nan")
            assert post(http, path, {"inputs": "who"}, 500)["code"] == "non_finite_output"
            with torch.no_grad():
                word[number] = kept
            assert post(http, path, {"inputs": "who"})


@pytest.mark.parametrize("special", [True, False])
def test_decode(client: Clients, folder: Folders, special: bool) -> None:
    """Catches: one text for several lists; special tokens that stay; ids of another vocabulary that pass."""
    tokenizer = AutoTokenizer.from_pretrained(folder("embed"))
    ids = [tokenizer(text)["input_ids"] for text in FITTING]
    wanted = [tokenizer.decode(row, skip_special_tokens=special) for row in ids]
    found = post(client("embed"), "/decode", {"ids": ids, "skip_special_tokens": special})
    assert [text.split() for text in found] == [text.split() for text in wanted]
    assert post(client("embed"), "/decode", {"ids": ids[0], "skip_special_tokens": special}) == found[:1]
    refused = post(client("embed"), "/decode", {"ids": [ids[0], [3, 23]]}, 422)
    assert refused["code"] == "unknown_token" and refused["details"]["index"] == 1


def test_what_is_encoded_is_decoded(client: Clients) -> None:
    rows = post(client("embed"), "/tokenize", {"inputs": FITTING, "add_special_tokens": False})
    ids = [[one["id"] for one in row] for row in rows]
    texts = post(client("embed"), "/decode", {"ids": ids})
    assert (
        post(client("embed"), "/tokenize", {"inputs": texts, "add_special_tokens": False})
        and [
            [one["id"] for one in row]
            for row in post(client("embed"), "/tokenize", {"inputs": texts, "add_special_tokens": False})
        ]
        == ids
    )


def test_a_tuned_model_gives_token_vectors_of_its_encoder(client: Clients, folder: Folders) -> None:
    model = load(folder("single"))
    tokenizer = AutoTokenizer.from_pretrained(folder("single"))
    with torch.inference_mode():
        [wanted] = model(**tokenizer("who", return_tensors="pt")).last_hidden_state.numpy()
    [found] = post(client("single"), "/embed_all", {"inputs": "who"})
    np.testing.assert_allclose(found, wanted, atol=1e-5)
