"""Routes of the views: numbers of `albertine.analysis`, limits, and models without what a view needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from albertine import Predictor, save
from albertine.analysis.attention import attention_of
from albertine.analysis.layers import layer_statistics
from albertine.analysis.lens import lens
from albertine.model.model import Model
from albertine.serving.limits import ServingLimits
from albertine.serving.views import GUESSES, PREDICTED, TEXTS, LayersView, LensView
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.inference.exports import PIECES, encoder
from tests.serving.served import client_of

Clients = Callable[[str], TestClient]
Folders = Callable[[str], Path]
TEXT = "the old man said that a house was good"


def post(client: TestClient, path: str, body: Any, status: int = 200) -> Any:
    found = client.post(path, json=body)
    assert found.status_code == status, found.text
    return found.json()


def test_analysis_of_texts(client: Clients, folder: Folders) -> None:
    """Catches: other numbers than those of Python; NaN, which JSON does not have."""
    model = Predictor(folder("fill-mask"), precision="float32")
    parts = model.model, model.tokenizer
    found = post(client("fill-mask"), "/analyze/lens", {"inputs": TEXT, "top_k": 2})
    wanted = lens(*parts, TEXT, top=2)
    assert found["depths"] == wanted.depths and found["layers"] == 1 and found["tokens"] == wanted.tokens
    for one, own in zip(found["positions"], wanted.positions, strict=True):
        guesses = [[(guess.token_id, guess.probability) for guess in depth] for depth in own.guesses]
        assert [[(x["token"], x["score"]) for x in depth] for depth in one["guesses"]] == [
            [(token, pytest.approx(score, abs=1e-6)) for token, score in depth] for depth in guesses
        ]
        assert one["probability"] == pytest.approx(own.probability, abs=1e-6)
    found = post(client("fill-mask"), "/analyze/attention", {"inputs": TEXT})
    maps = attention_of(*parts, TEXT)
    for name in ("weights", "entropy", "distance", "similarity"):
        np.testing.assert_allclose(found[name], getattr(maps, name), atol=6e-5)
    assert found["tokens"] == maps.tokens
    one, two = (
        post(client("fill-mask"), "/analyze/layers", {"inputs": texts})
        for texts in (TEXT, [TEXT, "the old man"])
    )
    np.testing.assert_allclose(one["cka"], layer_statistics(*parts, [TEXT]).cka, atol=1e-5)
    assert one["texts"] == 1 and one["distance"]["low"] == [None] and one["anisotropy"]["mean"] == [None] * 2
    statistics = layer_statistics(*parts, [TEXT, "the old man"])
    for name in ("mean", "low", "high"):
        np.testing.assert_allclose(two["cosine"][name], getattr(statistics.cosine, name), atol=1e-5)


def test_sentence_order(tmp_path: Path) -> None:
    """Catches: the passages in the other order; the objective of another head."""
    model = Model(encoder(2), {"mlm", "nsp"}, seed=2).eval()
    save(model, WordPieceTokenizer(PIECES), tmp_path)
    [wanted] = Predictor(tmp_path, precision="float32").sentence_order([("the old man", "who")])
    with client_of(tmp_path) as client:
        found = post(client, "/sentence-order", {"first": "the old man", "second": "who"})
        assert found == {"score": pytest.approx(wanted, abs=1e-6), "objective": "nsp"}
        long = {"first": TEXT * 3, "second": TEXT * 3}
        assert post(client, "/sentence-order", long, 422)["code"] == "input_too_long"


def test_limits(folder: Folders) -> None:
    """Catches: a text that is truncated, as the server is configured for other routes; copies of a long text;
    many texts."""
    words = " ".join(TEXT.split() * 5)
    with client_of(folder("fill-mask"), ServingLimits(auto_truncate=True)) as client:
        for path in ("/analyze/lens", "/analyze/attention"):
            refused = post(client, path, {"inputs": words}, 422)
            assert refused["code"] == "input_too_long"
            assert refused["details"] == {"tokens": 47, "limit": PREDICTED}
        assert post(client, "/analyze/layers", {"inputs": ["a", words]}, 422)["code"] == "input_too_long"
        many = post(client, "/analyze/layers", {"inputs": ["a"] * (TEXTS + 1)}, 422)
        assert many["code"] == "invalid_type" and str(TEXTS) in many["error"]
        assert post(client, "/analyze/lens", {"inputs": " "}, 422)["code"] == "not_answerable"
        assert post(client, "/analyze/lens", {"inputs": "a", "top": 1}, 422)["code"] == "unknown_field"


def test_masks_depths_and_guesses_are_counted(folder: Folders) -> None:
    """Catches: masks without a limit; a lens that costs its text alone, whatever its depths; statistics that
    cost the forward pass alone."""
    model = Predictor(folder("fill-mask"), precision="float32")
    view = LensView(model)
    masked, plain = view.lengths([("the [MASK] man", 5), ("the old man", 5)])
    # 5 tokens with the special ones, at depths 0 to 2 of a model of one layer; three copies without a mask.
    assert (masked.tokens, plain.tokens) == (5 * 2 + 1 * 3, 5 * 3 * 2 + 3 * 3)
    assert view.predicted(3, 20) == PREDICTED and view.predicted(100, 20) == GUESSES // (100 * 20) < PREDICTED
    [statistics] = LayersView(model).lengths([("the old man", "a house")])
    assert statistics.tokens == 3 * (5 + 4)


def test_many_masks(tmp_path: Path) -> None:
    """Catches: a text of masks that the model thread computes for seconds."""
    model = Model(replace(encoder(1), max_position_embeddings=64), {"mlm"}, seed=2).eval()
    save(model, WordPieceTokenizer(PIECES), tmp_path)
    with client_of(tmp_path) as client:
        refused = post(client, "/analyze/lens", {"inputs": "[MASK] " * (PREDICTED + 1)}, 422)
        assert refused["code"] == "input_too_long" and "41 masks" in refused["error"]
        found = post(client, "/analyze/lens", {"inputs": "[MASK] " * PREDICTED})
        assert len(found["positions"]) == PREDICTED


def test_models_without_a_head(client: Clients) -> None:
    """Catches: an error without its reason."""
    facts = client("single").get("/analyze/model").json()
    assert facts["views"]["attention"] is None
    for path, view in (("/analyze/lens", "lens"), ("/sentence-order", "sentence-order")):
        body = {"inputs": "a"} if view == "lens" else {"first": "a", "second": "a"}
        refused = post(client("single"), path, body, 422)
        assert refused["code"] == "not_for_this_model" and refused["error"] == facts["views"][view]
        assert "which the model does not have" in refused["error"]
