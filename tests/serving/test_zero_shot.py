"""`/zero-shot`: labels of the request by a model of natural language inference."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from transformers import pipeline

from albertine.inference.probabilities import sigmoid
from albertine.inference.zero_shot import NliClasses, nli_classes
from albertine.serving.limits import ServingLimits
from tests.inference.exports import LONG, TEXTS
from tests.serving.served import client_of
from tests.serving.test_routes import post

Clients = Callable[[str], TestClient]
Folders = Callable[[str], Path]
LABELS = ["a house", "who", "never bad"]


@pytest.mark.parametrize(
    "more",
    [{}, {"multi_label": True}, {"hypothesis_template": "it was {} ."}, {"candidate_labels": LABELS[:1]}],
    ids=str,
)
def test_scores_are_those_of_transformers(client: Clients, folder: Folders, more: dict) -> None:
    """Catches: text and hypothesis turned round; neutral for contradiction; a softmax over other classes."""
    wanted = pipeline("zero-shot-classification", str(folder("nli")))
    parameters = {"candidate_labels": LABELS, **more}
    texts = TEXTS[:2]
    found = post(client("nli"), "/zero-shot", {"inputs": texts, "parameters": parameters})
    for text, row in zip(texts, found, strict=True):
        theirs = wanted(text, **parameters)
        assert [one["label"] for one in row] == theirs["labels"]
        assert [one["score"] for one in row] == pytest.approx(theirs["scores"], abs=1e-6)
    assert post(client("nli"), "/", {"inputs": texts[0], "parameters": parameters}) == [
        {"label": one["label"], "score": pytest.approx(one["score"], abs=1e-6)} for one in found[0]
    ]


def test_classes_are_found_by_name() -> None:
    """Catches: transformers' choice of contradiction, the first class whatever it is; `not_entailment`."""
    assert nli_classes(("contradiction", "entailment", "neutral")) == NliClasses(1, 0)
    assert nli_classes(("NEUTRAL", "ENTAILMENT", "CONTRADICTION")) == NliClasses(1, 2)
    assert nli_classes(("entailment", "not_entailment")) == NliClasses(0, 1)
    assert nli_classes(("矛盾", "中立", "蕴含")) == NliClasses(2, 0)
    assert nli_classes(("neutral", "other", "entailment")) == NliClasses(2, None)


def _renamed(folder: Path, where: Path, labels: list[str]) -> Path:
    shutil.copytree(folder, where)
    config = json.loads((where / "config.json").read_text())
    config["id2label"] = {str(i): name for i, name in enumerate(labels)}
    config["label2id"] = {name: i for i, name in enumerate(labels)}
    (where / "config.json").write_text(json.dumps(config))
    return where


def test_a_model_without_these_classes_is_refused_by_their_names(folder: Folders, tmp_path: Path) -> None:
    body = {"inputs": "the old man", "parameters": {"candidate_labels": LABELS}}
    with client_of(_renamed(folder("nli"), tmp_path / "a", ["LABEL_0", "LABEL_1", "LABEL_2"])) as http:
        refused = post(http, "/zero-shot", body, 422)
        assert refused["code"] == "not_for_this_model" and "LABEL_0, LABEL_1, LABEL_2" in refused["error"]
    with client_of(_renamed(folder("nli"), tmp_path / "b", ["neutral", "entailment", "other"])) as http:
        assert len(post(http, "/zero-shot", body)) == 3
        body["parameters"]["multi_label"] = True  # type: ignore[index]
        refused = post(http, "/zero-shot", body, 422)
        assert refused["code"] == "not_for_this_model" and "contradiction" in refused["error"]


@pytest.mark.parametrize("template", ["no place", "{} and {}", ""])
def test_a_template_has_one_place(client: Clients, template: str) -> None:
    parameters = {"candidate_labels": LABELS, "hypothesis_template": template}
    refused = post(client("nli"), "/zero-shot", {"inputs": "who", "parameters": parameters}, 422)
    assert refused["details"]["field"] == "parameters.hypothesis_template"


def test_a_template_is_no_format_string(client: Clients) -> None:
    """Catches: fields of Python objects that a client reads by `{0.__class__}`."""
    parameters = {"candidate_labels": ["man"], "hypothesis_template": "{0.__class__} {} {"}
    [found] = post(client("nli"), "/zero-shot", {"inputs": "who", "parameters": parameters})
    pair = post(client("nli"), "/predict", {"inputs": ["who", "{0.__class__} man {"], "raw_scores": True})
    raw = {one["label"]: one["score"] for one in pair}
    wanted = float(sigmoid(np.array(raw["entailment"] - raw["contradiction"])))
    assert found == {"label": "man", "score": pytest.approx(wanted, abs=1e-6)}


def test_the_text_that_is_too_long_is_named(client: Clients) -> None:
    """Catches: the number of a pair for that of its text."""
    body = {"inputs": ["who", LONG], "parameters": {"candidate_labels": LABELS}}
    refused = post(client("nli"), "/zero-shot", body, 422)
    assert refused["code"] == "input_too_long" and refused["details"]["index"] == 1
    assert refused["error"].startswith("input 1 has ")
    cut = client("nli").post(
        "/zero-shot", json={**body, "parameters": {"candidate_labels": LABELS, "truncate": True}}
    )
    assert cut.status_code == 200 and cut.headers["x-truncated-inputs"] == "3"


def test_pairs_are_bounded_before_they_are_made(client: Clients, folder: Folders) -> None:
    labels = {"candidate_labels": [str(i) for i in range(1000)]}
    refused = post(client("nli"), "/zero-shot", {"inputs": ["a"] * 100_000, "parameters": labels}, 422)
    assert refused["code"] == "batch_too_large" and refused["details"]["limit"] == 65_536
    with client_of(folder("nli"), ServingLimits(queue_items=10)) as http:
        refused = post(http, "/zero-shot", {"inputs": "a", "parameters": labels}, 422)
        assert refused["code"] == "batch_too_large" and refused["details"]["limit"] == 10
