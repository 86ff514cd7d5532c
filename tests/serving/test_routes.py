"""What every route takes and answers, by the real application: shapes are those of huggingface_hub, openai
and text-embeddings-inference, numbers are `Predictor`'s."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from starlette.testclient import TestClient

from albertine import Predictor
from albertine.core.devices import fast_bfloat16
from albertine.errors import DataError
from albertine.inference import fill_mask
from albertine.inference.probabilities import sigmoid
from albertine.serving import routes, schemas
from albertine.serving.app import LIVE, PAGE, paths
from albertine.serving.limits import ServingLimits
from albertine.serving.model_tasks import BatchKey, ServedModel
from albertine.tasks.http.answer import QuestionsToAnswer
from albertine.tasks.http.base import Body
from albertine.tasks.http.classify import TextsOfClasses, TextsToClassify, TextsToLabel
from albertine.tasks.http.multiple_choice import OptionsToChoose
from albertine.tasks.http.rank import TextsToRank
from albertine.tasks.http.relate import TextsToRelate
from albertine.tasks.http.tag import TextsToTag
from tests.inference.exports import LONG, PASSAGES, SENTENCE, TEXTS
from tests.serving.served import client_of

Clients = Callable[[str], TestClient]
Folders = Callable[[str], Path]
FITTING = TEXTS[:3]


def post(client: TestClient, path: str, body: Any, status: int = 200, **more: Any) -> Any:
    """The JSON of an answer."""
    found = client.post(path, json=body, **more)
    assert found.status_code == status, found.text
    return found.json()


def predictor(folder: Path) -> Predictor:
    return Predictor(folder, precision="float32")


def test_embed(client: Clients, folder: Folders) -> None:
    """Catches: one vector flat; a cut that is not normalised again; the folder's norm in place of the
    requested one."""
    model, http = predictor(folder("embed")), client("embed")
    wanted = model.embed(FITTING, normalize=True)
    np.testing.assert_allclose(post(http, "/embed", {"inputs": FITTING}), wanted, atol=1e-6)
    np.testing.assert_allclose(post(http, "/", {"inputs": FITTING[0]}), wanted[:1], atol=1e-6)
    raw = post(http, "/embed", {"inputs": FITTING, "normalize": False, "dimensions": 5})
    np.testing.assert_allclose(raw, model.embed(FITTING, normalize=False)[:, :5], atol=1e-5)
    cut = np.array(post(http, "/embed", {"inputs": FITTING, "dimensions": 5}))
    np.testing.assert_allclose(np.linalg.norm(cut, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(cut * np.linalg.norm(wanted[:, :5], axis=1)[:, None], wanted[:, :5], atol=1e-6)
    for wrong in (0, 33, -1, 10**400):
        refused = post(http, "/embed", {"inputs": "a", "dimensions": wrong}, 422)
        assert refused["code"] == "invalid_dimensions" and refused["details"]["limit"] == 32


def test_openai_embeddings(client: Clients, folder: Folders) -> None:
    """Catches: base64 of other bytes than the numbers; usage without special tokens; a model of any name."""
    model, http = predictor(folder("embed")), client("embed")
    plain = post(http, "/v1/embeddings", {"input": FITTING, "model": "embed"})
    assert plain["object"] == "list" and plain["model"] == "embed"
    assert [(one["object"], one["index"]) for one in plain["data"]] == [("embedding", i) for i in range(3)]
    coded = post(http, "/embeddings", {"input": FITTING, "encoding_format": "base64", "user": "u"})
    numbers = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in coded["data"]]
    assert np.array_equal(np.array([one["embedding"] for one in plain["data"]], np.float32), numbers)
    np.testing.assert_allclose(numbers, model.embed(FITTING, normalize=True), atol=1e-6)
    tokens = sum(len(model.tokenizer(text)["input_ids"]) for text in FITTING)
    assert plain["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    unknown = post(http, "/v1/embeddings", {"input": "a", "model": "gpt"}, 404)
    assert unknown["error"]["code"] == "model_not_found"
    null = post(http, "/v1/embeddings", {"input": FITTING, "encoding_format": None})
    assert null["data"] == plain["data"]
    for ids in ([5, 6], [[5, 6]]):
        refused = post(http, "/v1/embeddings", {"input": ids}, 422)["error"]
        assert "check_embedding_ctx_length=False" in refused["message"] and refused["param"] == "input"


def test_openai_models(client: Clients) -> None:
    """Catches: a name with a slash that is no path; the list behind a name; a slash too many that is a
    name."""
    http = client("embed")
    models = http.get("/v1/models").json()
    one = {"id": "embed", "object": "model", "created": 0, "owned_by": "albertine"}
    one |= {"sha": http.service.sha, "tasks": list(http.service.model.tasks)}  # type: ignore[attr-defined]
    assert models == {"object": "list", "data": [one]}
    assert http.get("/v1/models/embed").json() == one
    for name in ("", "other/embed", "embed/"):
        refused = http.get(f"/v1/models/{name}")
        assert refused.status_code == 404 and refused.json()["error"]["code"] == "model_not_found"
    counted = http.get("/metrics").text
    assert 'code="404",route="/v1/models"' in counted and "other/embed" not in counted


def test_classes(client: Clients, folder: Folders) -> None:
    """Catches: flat on `/`, nested on `/predict`; a pair taken for two texts on `/predict`, and two texts for
    a pair on `/`; classes in the order of their numbers."""
    model, http = predictor(folder("single")), client("single")

    def scored(found: Any) -> dict[str, float]:
        assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
        return {one["label"]: one["score"] for one in found}

    one, two, pair = model.classify(["the old man", "a house", ("the old man", "a house")])
    assert scored(post(http, "/predict", {"inputs": "the old man"})) == pytest.approx(one, abs=1e-6)
    assert scored(post(http, "/predict", {"inputs": ["the old man", "a house"]})) == pytest.approx(
        pair, abs=1e-6
    )
    batch = post(http, "/predict", {"inputs": [["a house"], ["the old man", "a house"]]})
    assert [scored(row) for row in batch] == [pytest.approx(two, abs=1e-5), pytest.approx(pair, abs=1e-5)]
    nested = post(http, "/", {"inputs": "the old man", "parameters": {"top_k": 2}})
    assert (
        len(nested) == 1
        and len(nested[0]) == 2
        and scored(nested[0]).items() <= scored(post(http, "/", {"inputs": "the old man"})[0]).items()
    )
    texts = post(http, "/", {"inputs": ["the old man", "a house"]})
    assert [scored(row) for row in texts] == [pytest.approx(one, abs=1e-5), pytest.approx(two, abs=1e-5)]
    refused = post(http, "/", {"inputs": {"txt": "a"}}, 422)
    assert refused["code"] == "invalid_type" and refused["error"].startswith("`inputs` is to be a text, or")
    both = post(http, "/", {"inputs": {"text": "the old man", "text_pair": "a house"}, "parameters": {}})
    assert scored(both[0]) == pytest.approx(pair, abs=1e-6)


def test_what_is_applied_to_logits(client: Clients, folder: Folders) -> None:
    """Catches: softmax for several classes at once; raw scores that are none."""
    model, http = predictor(folder("multi")), client("multi")
    many = {one["label"]: one["score"] for one in post(http, "/predict", {"inputs": "the old man"})}
    assert many == pytest.approx(model.classify("the old man")[0])
    raw = {
        one["label"]: one["score"]
        for one in post(http, "/predict", {"inputs": "the old man", "raw_scores": True})
    }
    assert {name: float(sigmoid(np.array(x))) for name, x in raw.items()} == pytest.approx(many)
    for function, total in (("softmax", 1.0), ("none", sum(raw.values()))):
        body = {"inputs": "the old man", "parameters": {"function_to_apply": function}}
        assert sum(one["score"] for one in post(http, "/", body)[0]) == pytest.approx(total)
    unknown = {"inputs": "a", "parameters": {"function_to_apply": "tanh"}}
    error = post(http, "/", unknown, 422)["error"]
    assert error == '`parameters.function_to_apply` is to be "sigmoid" or "softmax" or "none"'


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_extreme_logits(client: Clients, folder: Folders, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: exp without the maximum; equal classes in another order than that of their numbers."""
    http, names = client(kind), predictor(folder(kind)).family.labels
    logits = np.array([1e4 if i % 2 == 0 else -1e4 for i in range(len(names))], dtype=np.float32)
    engine = http.service.engine  # type: ignore[attr-defined]
    monkeypatch.setattr(engine, "_answer", lambda key, questions: [logits] * len(questions))
    found = post(http, "/predict", {"inputs": "the old man"})
    scores = [one["score"] for one in found]
    assert np.isfinite(scores).all() and min(scores) >= 0 and max(scores) <= 1
    if kind == "single":
        assert sum(scores) == pytest.approx(1, abs=1e-6)
    assert [one["label"] for one in found] == [*names[::2], *names[1::2]]


def test_a_cross_encoder_returns_sigmoids_and_ranks_by_logits(client: Clients, folder: Folders) -> None:
    """Catches: an answer that differs between `predict` and the server; a rank by sigmoids, of which many
    tie."""
    model, http, texts = predictor(folder("cross-encoder")), client("cross-encoder"), ["a house", "who"]
    pairs = [["the old man", text] for text in texts]
    wanted = [one["score"] for one in model.classify([(a, b) for a, b in pairs])]
    sigmoids, raw = (
        [row[0]["score"] for row in post(http, "/predict", {"inputs": pairs, "raw_scores": raw})]
        for raw in (False, True)
    )
    assert sigmoids == pytest.approx(wanted, abs=1e-6) == sigmoid(np.array(raw)).tolist()
    ranked = post(http, "/rerank", {"query": "the old man", "texts": texts})
    assert [one["score"] for one in ranked] == pytest.approx(sorted(raw, reverse=True), abs=1e-5)


def test_rerank(client: Clients, folder: Folders) -> None:
    """Catches: scores in the order of texts without their index; ties backwards; the pair turned round."""
    model, http = predictor(folder("score")), client("score")
    texts = ["a house", "never bad", "a house", "who"]
    wanted = [one["score"] for one in model.classify([("the old man", text) for text in texts])]
    found = post(http, "/rerank", {"query": "the old man", "texts": texts, "return_text": True})
    assert [one["index"] for one in found] == sorted(range(4), key=lambda i: -wanted[i])
    assert [one["score"] for one in found] == pytest.approx(sorted(wanted, reverse=True))
    assert all(one["text"] == texts[one["index"]] for one in found)
    cohere = post(
        http, "/rerank", {"query": "the old man", "documents": texts, "top_n": 2, "return_documents": True}
    )["results"]
    assert [(one["index"], one["document"]) for one in cohere] == [(f["index"], f["text"]) for f in found[:2]]
    vectors = predictor(folder("embed")).similarity(["the old man"], texts)[0]
    by_cosine = post(client("embed"), "/rerank", {"query": "the old man", "texts": texts})
    assert [one["score"] for one in by_cosine] == pytest.approx(
        sorted(vectors.tolist(), reverse=True), abs=1e-6
    )
    assert (
        post(client("single"), "/rerank", {"query": "a", "texts": ["b"]}, 422)["code"] == "not_for_this_model"
    )


@pytest.mark.parametrize("flag", ["return_text", "return_documents"])
def test_texts_are_accepted_in_both_forms_under_both_names(client: Clients, flag: str) -> None:
    """Catches: a flag that the other form's list leaves without effect; texts dropped beside documents."""
    http, texts = client("score"), ["a house", "never bad", "who"]
    for form, field in (("texts", "text"), ("documents", "document")):
        found = post(http, "/rerank", {"query": "the old man", form: texts, flag: True})
        for one in found["results"] if form == "documents" else found:
            assert one[field] == texts[one["index"]]
    both = {"query": "the old man", "texts": texts, "documents": ["who"], flag: True}
    refused = post(http, "/rerank", both, 422)
    assert refused["code"] == "conflicting_fields" and "send one of them" in refused["error"]


@pytest.mark.parametrize("names", [("texts", "score"), ("documents", "relevance_score")])
def test_what_is_returned_of_scores(
    client: Clients, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    """Catches: a field without effect; an order by sigmoids, of which large scores have the same; a sigmoid
    of a cosine, or of the score of a model without a request for it."""
    http, (given, returned) = client("score"), names
    texts = ["a house", "never bad", "who", "the old man"]

    def ranked(name: str, **more: bool) -> list[tuple[int, float]]:
        found = post(client(name), "/rerank", {"query": "the old man", given: texts, **more})
        return [
            (one["index"], one[returned]) for one in (found["results"] if given == "documents" else found)
        ]

    plain = ranked("score")
    assert ranked("score", raw_scores=True) == plain
    squeezed = ranked("score", raw_scores=False)
    assert squeezed == [(i, pytest.approx(float(sigmoid(np.array(x))), abs=1e-9)) for i, x in plain]
    assert all(0 <= x <= 1 for _, x in squeezed)
    cosines = ranked("embed")
    assert ranked("embed", raw_scores=True) == ranked("embed", raw_scores=False) == cosines
    large = [np.array([x], np.float32) for x in (50, 70, 60, 80)]
    monkeypatch.setattr(http.service.engine, "_answer", lambda kind, questions: large)  # type: ignore[attr-defined]
    assert ranked("score", raw_scores=False) == [(i, 1.0) for i in (3, 1, 2, 0)]


def test_similarity(client: Clients, folder: Folders) -> None:
    inputs = {"source_sentence": TEXTS[0], "sentences": FITTING}
    wanted = predictor(folder("embed")).similarity(TEXTS[:1], FITTING)[0]
    for path in ("/similarity", "/"):
        assert post(client("embed"), path, {"inputs": inputs}) == pytest.approx(wanted.tolist(), abs=1e-6)


def test_entities(client: Clients, folder: Folders) -> None:
    """Catches: places of the cut text; scores of other tokens; a score that a random field does not have."""
    model, http = predictor(folder("tag")), client("tag")
    wanted = model.tag_all(FITTING)
    assert sum(map(len, wanted)) > 2
    found = post(http, "/", {"inputs": FITTING, "parameters": {"aggregation_strategy": "simple"}})
    for text, entities, row in zip(FITTING, wanted, found, strict=True):
        assert [(one["entity_group"], one["start"], one["end"]) for one in row] == entities
        assert all(one["word"] == text[one["start"] : one["end"]] and 0.2 < one["score"] <= 1 for one in row)
    assert post(http, "/", {"inputs": FITTING[1]}) == found[1]
    ignored = post(
        http, "/", {"inputs": FITTING[1], "parameters": {"ignore_labels": [found[1][0]["entity_group"]]}}
    )
    assert ignored == [one for one in found[1] if one["entity_group"] != found[1][0]["entity_group"]]
    assert ignored != found[1]
    field = post(client("crf"), "/", {"inputs": FITTING})
    assert {one["score"] for row in field for one in row} == {None}
    strategy = {"inputs": "a", "parameters": {"aggregation_strategy": "none"}}
    assert post(http, "/", strategy, 422)["details"]["field"] == "parameters.aggregation_strategy"


def test_answers(client: Clients, folder: Folders) -> None:
    """Catches: places in a window; a list where one is wanted; an answer above the threshold of none."""
    for name in ("answer", "answer or not"):
        model, http = predictor(folder(name)), client(name)
        for question, passage in PASSAGES:
            best = model.answer(question, passage)
            inputs = {"question": question, "context": passage}
            one = post(http, "/", {"inputs": inputs, "parameters": {}})
            expected = (best.begin, best.end, passage[best.begin : best.end]) if best else (0, 0, "")
            assert (one["start"], one["end"], one["answer"]) == expected
            [likely] = model.likely_spans([(question, passage)])
            several = post(
                http, "/", {"inputs": inputs, "parameters": {"top_k": 3, "handle_impossible_answer": False}}
            )
            assert [(s["start"], s["end"]) for s in several] == list(likely.spans)[:3]
            assert [s["score"] for s in several] == pytest.approx(list(likely.spans.values())[:3])
        many = post(http, "/", {"inputs": [{"question": q, "context": p} for q, p in PASSAGES]})
        assert len(many) == len(PASSAGES) and "answer" in many[0]
    refused = post(http, "/", {"inputs": inputs, "parameters": {"max_seq_len": 9}}, 422)
    assert "as the model was tuned" in refused["error"]


def test_no_answer(folder: Folders) -> None:
    """Catches: a threshold that is ignored, or that cannot be switched off."""
    question, passage = PASSAGES[0]
    body: dict[str, Any] = {"inputs": {"question": question, "context": passage}}
    with client_of(folder("answer or not")) as http:
        service = http.service  # type: ignore[attr-defined]
        service.model.family.threshold = 0.0
        [likely] = service.model.predictor.likely_spans([(question, passage)])
        none = {"answer": "", "score": pytest.approx(likely.no_answer), "start": 0, "end": 0}
        assert post(http, "/", body) == none
        two = post(http, "/", {**body, "parameters": {"top_k": 2}})
        assert two[0] == none and (two[1]["start"], two[1]["end"]) == next(iter(likely.spans))
        always = post(http, "/", {**body, "parameters": {"handle_impossible_answer": False}})
        assert always == two[1]


def test_a_model_that_compares(folder: Folders, client: Clients) -> None:
    """It takes pairs alone, in the warm-up too."""
    model, http = predictor(folder("compared")), client("compared")
    (wanted,) = model.classify([("the old man", "a house")])
    found = post(http, "/predict", {"inputs": ["the old man", "a house"]})
    assert {one["label"]: one["score"] for one in found} == pytest.approx(wanted, abs=1e-6)
    refused = post(http, "/predict", {"inputs": [["the old man", "a house"], ["who"]]}, 422)
    assert refused["code"] == "not_answerable" and refused["details"] == {"index": 1}


def test_a_model_of_single_texts_explains_how_to_send_two(folder: Folders, tmp_path: Path) -> None:
    where = shutil.copytree(folder("single"), tmp_path / "single")
    config = json.loads((where / "config.json").read_text())
    config["albertine"]["pairs"] = False
    (where / "config.json").write_text(json.dumps(config))
    with client_of(where) as http:
        for index, given in enumerate((["a", "b"], [["a"], ["a", "b"]])):
            refused = post(http, "/predict", {"inputs": given}, 422)
            assert refused["code"] == "not_answerable" and refused["details"] == {"index": index}
            assert '[["one"], ["two"]]; or use `/`' in refused["error"]
        assert len(post(http, "/predict", {"inputs": [["a"], ["b"]]})) == 2


@pytest.mark.parametrize("name", ["single", "score"])
def test_a_model_tuned_with_pairs(folder: Folders, tmp_path: Path, name: str) -> None:
    """As finetune records it for most folders of pairs. Catches: a server that warms it up, or proves that it
    answers, with one text."""
    where = shutil.copytree(folder(name), tmp_path / name)
    config = json.loads((where / "config.json").read_text())
    config["albertine"]["pairs"] = True
    (where / "config.json").write_text(json.dumps(config))
    with client_of(where) as http:
        assert post(http, "/predict", {"inputs": ["the old man", "a house"]})
        http.service.engine.last_step -= 11  # type: ignore[attr-defined]
        assert http.get("/health").status_code == 200
        refused = post(http, "/predict", {"inputs": "the old man"}, 422)
        assert refused["code"] == "not_answerable"


def test_choices_and_relations(client: Clients, folder: Folders) -> None:
    options = ["was", "said", "never in a house"]
    model = predictor(folder("choose"))
    wanted = model.choose("the man _ good", options)
    fewer, same = model.choose_all([("the man _ good", options[:2], ""), ("the man _ good", options, "")])
    assert fewer == pytest.approx(model.choose("the man _ good", options[:2]), abs=1e-6)
    assert same == pytest.approx(wanted, abs=1e-6) and model.choose_all([]) == []
    for path in ("/choose", "/"):
        found = post(client("choose"), path, {"passage": "the man _ good", "options": options})
        assert {one["index"]: one["score"] for one in found} == pytest.approx(dict(enumerate(wanted)))
        assert [one["option"] for one in found] == [options[one["index"]] for one in found]
        assert [one["score"] for one in found] == sorted(wanted, reverse=True)
    model = predictor(folder("relate"))
    texts = [SENTENCE[:60], *FITTING]
    assert any(model.relate_all(texts))
    body = post(client("relate"), "/relate", {"inputs": texts})
    for text, relations, row in zip(texts, model.relate_all(texts), body, strict=True):
        words = [(one["subject"]["text"], one["predicate"], one["object"]["text"]) for one in row]
        assert words == [one.words(text) for one in relations]


def test_masks(client: Clients, folder: Folders) -> None:
    """Catches: the place of another mask filled; targets outside the best candidates lost."""
    model, http = predictor(folder("fill-mask")), client("fill-mask")
    text = "the [MASK] man"
    guesses = model.fill_mask(text)[0]
    found = post(http, "/", {"inputs": text, "parameters": {}})
    assert [(one["token"], one["token_str"]) for one in found] == [(g.token_id, g.token) for g in guesses]
    assert [one["score"] for one in found] == pytest.approx([g.probability for g in guesses])
    assert found[0]["sequence"] == f"the {guesses[0].token} man"
    assert len(post(http, "/", {"inputs": text, "parameters": {"top_k": 2}})) == 2
    two = post(http, "/", {"inputs": "[MASK] man [MASK]"})
    assert [two[i][0]["sequence"] for i in (0, 1)] == [
        f"{two[0][0]['token_str']} man [MASK]",
        f"[MASK] man {two[1][0]['token_str']}",
    ]
    last = model.fill_mask(text, top_k=15)[0][-1]
    [target] = post(http, "/", {"inputs": text, "parameters": {"targets": [last.token]}})
    assert target["token"] == last.token_id and target["score"] == pytest.approx(last.probability)
    unknown = post(http, "/", {"inputs": text, "parameters": {"targets": ["zebra"]}}, 422)
    assert unknown["code"] == "unknown_target"
    for refused in ("the man", "the man " * 19 + "[MASK]"):  # of whose 40 tokens two are special
        with pytest.raises(DataError) as wanted:
            model.fill_mask(refused)
        body = {"inputs": [text, refused], "parameters": {"truncate": True}}
        error = post(http, "/", body, 422)
        assert (error["code"], error["details"]) == ("not_answerable", {"index": 1})
        assert error["error"] == f"{wanted.value.what}. {wanted.value.remedy}"
    assert len(post(http, "/", {"inputs": "the " * 37 + "[MASK]", "parameters": {}})) == 5
    # The same folder without a mask gives vectors.
    vectors = post(http, "/", {"inputs": "the man"})
    np.testing.assert_allclose(vectors, model.embed("the man", normalize=True), atol=1e-6)


def test_an_answer_of_many_words_is_bounded(
    client: Clients, folder: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a small request for a text for each of a thousand words under each of many masks."""
    http, text = client("fill-mask"), "[MASK] man [MASK]"
    words = predictor(folder("fill-mask")).tokenizer.vocab_size
    whole = {"inputs": text, "parameters": {"top_k": 1000}}
    found = post(http, "/", whole)
    monkeypatch.setattr(routes, "LONGEST", 2 * words * len(text))
    monkeypatch.setattr(routes, "AT_ONCE", 0)
    assert post(http, "/", whole) == found  # by another thread
    error = post(http, "/", {**whole, "inputs": [text, "[MASK]"]}, 422)
    assert (error["code"], error["details"]) == ("batch_too_large", {"limit": 2 * words * len(text)})
    targets = {"targets": [found[0][0]["token_str"]], "top_k": 1000}
    assert len(post(http, "/", {"inputs": [text] * 9, "parameters": targets})) == 9


def test_tokens_are_those_of_the_usage(client: Clients) -> None:
    rows = post(client("embed"), "/tokenize", {"inputs": FITTING})
    usage = post(client("embed"), "/v1/embeddings", {"input": FITTING})["usage"]
    assert sum(map(len, rows)) == usage["prompt_tokens"]
    assert [one["text"] for one in rows[2]] == ["[CLS]", "who", "[SEP]"]
    assert [one["special"] for one in rows[2]] == [True, False, True]
    assert all(
        t["text"] == text[t["start"] : t["stop"]]
        for text, row in zip(FITTING, rows, strict=True)
        for t in row[1:-1]
    )
    bare = post(client("embed"), "/tokenize", {"inputs": "who", "add_special_tokens": False})
    assert [one["text"] for one in bare[0]] == ["who"]


def test_a_mask_is_one_token_where_it_is_filled(client: Clients) -> None:
    """Catches: a mask counted as what its letters are; places that begin anew behind it; one token where the
    model reads letters."""
    text = "the [MASK]man [SEP] who"
    [row] = post(client("fill-mask"), "/tokenize", {"inputs": text})
    found = client("fill-mask").post("/", json={"inputs": text})
    assert len(row) == int(found.headers["x-compute-tokens"]) == 7
    assert [one["text"] for one in row[1:-1]] == ["the", "[MASK]", "man", "[SEP]", "who"]
    assert [text[one["start"] : one["stop"]] for one in row[1:-1]] == [one["text"] for one in row[1:-1]]
    assert [one["special"] for one in row] == [True, *[False] * 5, True]
    for name, words in (("fill-mask", "the [SEP]"), ("embed", "the [MASK]")):
        assert len(post(client(name), "/tokenize", {"inputs": words})[0]) > 4
        vectors = client(name).post("/embed", json={"inputs": words})
        assert int(vectors.headers["x-compute-tokens"]) > 4


def test_a_question_that_is_too_long_beside_its_options_is_refused(client: Clients) -> None:
    """Half of a row is for it, also where all of the row is short enough. Catches: a silent cut of its
    beginning, after which two questions that begin otherwise have one answer."""
    http = client("choose")
    body = {"passage": "the man", "options": ["the old man", "it was good"]}
    long = {**body, "question": "who said that a house was good and never bad"}
    refused = post(http, "/choose", long, 422)
    assert refused["code"] == "input_too_long"
    assert refused["details"]["limit"] == 12 < refused["details"]["tokens"] <= 24
    cut = http.post("/choose", json={**long, "truncate": True})
    assert cut.status_code == 200 and cut.headers["x-truncated-inputs"] == "1"
    short = http.post("/choose", json={**body, "question": "who said"})
    assert short.status_code == 200 and short.headers["x-truncated-inputs"] == "0"


@pytest.mark.parametrize(
    ("name", "path", "body", "limit"),
    [
        ("embed", "/embed", {"inputs": ["who", LONG]}, 16),
        ("embed", "/v1/embeddings", {"input": ["who", LONG]}, 16),
        ("single", "/", {"inputs": ["who", LONG]}, 16),
        ("single", "/predict", {"inputs": [["who"], ["who", LONG]]}, 16),
        ("relate", "/relate", {"inputs": ["who", LONG]}, 24),
        ("fill-mask", "/", {"inputs": ["[MASK]", "[MASK] " + LONG]}, 40),
        ("choose", "/choose", {"passage": LONG, "options": ["who", "man"]}, 24),
    ],
)
def test_too_long_texts_are_refused_or_truncated_as_requested(
    client: Clients, folder: Folders, name: str, path: str, body: Any, limit: int
) -> None:
    """Catches: a silent cut; an error without its figures; a truncation that no header reports; advice to set
    `truncate` on a route that ignores it."""
    refused = post(client(name), path, body, 422)
    error = refused["error"] if path.startswith("/v1/") else refused
    assert error["code"] == "input_too_long"
    if not path.startswith("/v1/"):
        index = 0 if name == "choose" else 1
        assert refused["details"]["index"] == index and refused["details"]["limit"] == limit
        assert refused["details"]["tokens"] > limit
    where = {"parameters": {"truncate": True}} if path == "/" else {"truncate": True}
    found = client(name).post(path, json={**body, **where})
    assert found.status_code == 200 and found.headers["x-truncated-inputs"] == "1", found.text
    assert int(found.headers["x-compute-tokens"]) <= 2 * limit + 3


def test_a_long_passage_is_not_too_long(client: Clients) -> None:
    """It is read in windows, which all count."""
    inputs = {"question": "who ?", "context": LONG}
    found = client("answer").post("/", json={"inputs": inputs})
    assert found.status_code == 200 and int(found.headers["x-compute-tokens"]) > 60


def test_a_long_text_of_entities_is_not_too_long(client: Clients, folder: Folders) -> None:
    """Catches: an error of what is read in windows; entities of its beginning alone."""
    found = client("tag").post("/", json={"inputs": [LONG, "who"]})
    assert found.status_code == 200 and int(found.headers["x-compute-tokens"]) > 60
    assert found.headers["x-truncated-inputs"] == "0"
    entities = predictor(folder("tag")).tag(LONG)
    assert [(one["entity_group"], one["start"], one["end"]) for one in found.json()[0]] == entities
    assert entities[-1][2] > len(LONG) / 2


def test_which_end_is_cut(client: Clients, folder: Folders) -> None:
    """Catches: the side that is ignored."""
    model = predictor(folder("embed"))
    words = LONG.split()
    for side, kept in (("left", words[-14:]), ("Right", words[:14])):
        body = {"inputs": [LONG], "truncate": True, "truncation_direction": side}
        wanted = model.embed(" ".join(kept), normalize=True)
        np.testing.assert_allclose(post(client("embed"), "/embed", body), wanted, atol=1e-6)
    related = {"inputs": [LONG], "truncate": True, "truncation_direction": "left"}
    assert post(client("relate"), "/relate", related, 422)["code"] == "no_left_cut"


def test_truncation_is_a_field_of_the_body_or_of_its_parameters() -> None:
    taken: dict[str, type[Body]] = {
        "/embed": schemas.TextsToEmbed,
        "/predict": TextsToClassify,
        "/rerank": TextsToRank,
        "/embed_all": schemas.TextsToEmbedByToken,
        "/embed_sparse": schemas.TextsToEmbedByToken,
        "/decode": schemas.IdsToDecode,
        "/zero-shot": TextsToLabel,
        "/similarity": schemas.TextsToCompare,
        "/tokenize": schemas.TextsToCut,
        "/choose": OptionsToChoose,
        "/relate": TextsToRelate,
        "/embeddings": schemas.OpenAiTexts,
        "/v1/embeddings": schemas.OpenAiTexts,
        "/sentence-order": schemas.TwoPassages,
        "/analyze/lens": schemas.TextOfLens,
        "/analyze/attention": schemas.TextOfAttention,
        "/analyze/layers": schemas.TextsOfLayers,
    }
    assert {"/", *taken} == set(routes.handlers())
    at_top = {path for path, body in taken.items() if "truncate" in body.model_fields}
    assert "/similarity" not in at_top and {"/embed", "/predict", "/rerank"} <= at_top
    assert "truncate" in schemas.SimilarityParameters.model_fields


def test_a_server_that_cuts_by_itself(folder: Folders) -> None:
    """A setting of the request still wins."""
    with client_of(folder("embed"), ServingLimits(auto_truncate=True)) as http:
        assert len(post(http, "/embed", {"inputs": LONG})[0]) == 32
        assert post(http, "/embed", {"inputs": LONG, "truncate": False}, 422)["code"] == "input_too_long"


def test_more_than_a_step_holds(folder: Folders) -> None:
    """Catches: an order by length; a request bounded by a step; numbers that depend on company."""
    texts = [
        text
        for i in range(60)
        for text in (f"{SENTENCE.split()[i % 15]}", " ".join(SENTENCE.split()[: i % 12]))
    ]
    wanted = predictor(folder("embed")).embed(texts, normalize=True)
    with client_of(folder("embed"), budget=20) as http:
        np.testing.assert_allclose(post(http, "/embed", {"inputs": texts}), wanted, atol=1e-5)
    with client_of(folder("embed"), ServingLimits(queue_tokens=100, queue_items=30)) as http:
        refused = post(http, "/embed", {"inputs": texts}, 422)
        assert refused["code"] == "batch_too_large" and refused["details"]["limit"] == 30
        refused = post(http, "/embed", {"inputs": [SENTENCE[:40]] * 15}, 422)
        assert refused["code"] == "batch_too_large" and refused["details"]["limit"] == 100
    with client_of(folder("embed"), ServingLimits(queue_tokens=20)) as http:
        refused = post(http, "/embed", {"inputs": ["who"] * 11}, 422)  # to come again would not help
        assert refused["code"] == "batch_too_large" and refused["details"]["limit"] == 10


HEADS = ("embed", "single", "nli", "tag", "answer", "choose", "relate", "fill-mask")
WRONG: list[tuple[str, Any, str]] = [
    ("/embed", {}, "missing_field"),
    ("/embed", {"inputs": []}, "empty_input"),
    ("/embed", {"inputs": 5}, "invalid_type"),
    ("/embed", {"inputs": None}, "invalid_type"),
    ("/embed", {"inputs": ["a", 5]}, "invalid_type"),
    ("/embed", {"inputs": [["a"]]}, "invalid_type"),
    ("/embed", {"inputs": {"a": "b"}}, "invalid_type"),
    ("/embed", {"inputs": "a", "truncat": True}, "unknown_field"),
    ("/embed", {"inputs": "a", "truncate": "yes"}, "invalid_type"),
    ("/embed", {"inputs": "a", "dimensions": 1.5}, "invalid_type"),
    ("/embed", {"inputs": "a", "dimensions": True}, "invalid_type"),
    ("/embed", {"inputs": "a", "prompt_name": "query"}, "invalid_type"),
    ("/embed", {"inputs": "a", "truncation_direction": "up"}, "invalid_type"),
    ("/predict", {"inputs": ["a", "b", "c"]}, "invalid_type"),
    ("/predict", {"inputs": [["a", "b", "c"]]}, "invalid_type"),
    ("/rerank", {"query": "a"}, "missing_field"),
    ("/rerank", {"query": "a", "texts": []}, "empty_input"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, "empty_input"),
    ("/similarity", {"inputs": "a"}, "invalid_type"),
    ("/choose", {"options": ["a"]}, "empty_input"),
    ("/tokenize", {"inputs": [1]}, "invalid_type"),
    ("/embed_all", {"inputs": "a", "normalize": True}, "unknown_field"),
    ("/embed_all", {"inputs": []}, "empty_input"),
    ("/decode", {"ids": []}, "empty_input"),
    ("/decode", {"ids": [1.5]}, "invalid_type"),
    ("/decode", {"ids": [True]}, "invalid_type"),
    ("/decode", {"ids": 5}, "invalid_type"),
    ("/decode", {"ids": [-1]}, "unknown_token"),
    ("/decode", {"ids": [10**30]}, "unknown_token"),
    ("/v1/embeddings", {"input": []}, "empty_input"),
    ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, "invalid_type"),
    ("/v1/embeddings", {"input": "a", "truncate": "yes"}, "invalid_type"),
]


def test_a_malformed_body_does_not_hold_up_the_server() -> None:
    """Every list of a body, and every object. Catches: an error for each of a million elements or fields."""
    million: list[Any] = [1] * 1_000_000
    options: dict[str, Any] = {"parameters": {"ignore_labels": million}}
    wrong: list[tuple[type[Body], dict[str, Any]]] = [
        (schemas.TextsToEmbed, {"inputs": million}),
        (TextsToClassify, {"inputs": million}),
        (TextsToClassify, {"inputs": [million]}),
        (TextsToClassify, {"inputs": [[1]] * 1_000_000}),
        (TextsToRank, {"query": "a", "texts": million}),
        (TextsToRank, {"query": "a", "documents": million}),
        (schemas.TextsToCompare, {"inputs": {"source_sentence": "a", "sentences": million}}),
        (schemas.TextsToCut, {"inputs": million}),
        (schemas.TextsToEmbedByToken, {"inputs": million}),
        (schemas.IdsToDecode, {"ids": ["a"] * 1_000_000}),
        (schemas.IdsToDecode, {"ids": [["a"]] * 1_000_000}),
        (schemas.IdsToDecode, {"ids": [["a"] * 1_000_000]}),
        (TextsToLabel, {"inputs": million, "parameters": {"candidate_labels": ["a"]}}),
        (TextsToLabel, {"inputs": "a", "parameters": {"candidate_labels": million}}),
        (OptionsToChoose, {"options": million}),
        (TextsToRelate, {"inputs": million}),
        (schemas.OpenAiTexts, {"input": million}),
        (schemas.TextsToFill, {"inputs": "a", "parameters": {"targets": million}}),
        (TextsOfClasses, {"inputs": [{}] * 1_000_000}),
        (TextsToTag, {"inputs": "a", **options}),
        (QuestionsToAnswer, {"inputs": [{}] * 1_000_000}),
    ]
    for kind, body in wrong:
        with pytest.raises(ValidationError) as found:
            kind.model_validate(body)
        assert found.value.error_count() < 10, kind


@pytest.mark.parametrize(("path", "body", "code"), WRONG, ids=lambda one: str(one)[:40])
def test_unknown_fields_are_named(client: Clients, path: str, body: Any, code: str) -> None:
    refused = post(client("embed"), path, body, 422)
    error = refused["error"] if path.startswith("/v1/") else refused
    assert error["code"] in (code, "not_for_this_model" if path == "/choose" else code), refused
    message = error["message"] if path.startswith("/v1/") else error["error"]
    assert message and not any(word in message for word in ("Value error", "pydantic", "typing"))


def test_options_beside_inputs_are_what_is_refused(client: Clients) -> None:
    """As clients of Hugging Face's old API send them. Catches: an answer that there is no field `inputs`."""
    for name in ("single", "embed", "fill-mask"):
        refused = post(client(name), "/", {"inputs": "who", "options": {"wait_for_model": True}}, 422)
        assert (refused["code"], refused["details"]) == ("unknown_field", {"field": "options"})


NO_OBJECTS = [
    *(b"", b"\xff", b"nul\0", b'{"inputs": NaN}', b'{"inputs": "a", "inputs": "b"}'),
    *(b'{"inputs": ' + b"9" * 5000 + b"}", b'{"inputs":' + b"[" * 5000),
]
MALFORMED = [
    *(b'{"inputs": "[MASK] \\ud83d"}', b'{"input": "a", "model": "\\ud800"}'),  # these are echoed
    *(
        b'{"query": "a", "texts": ["\\ud800"], "return_text": true}',
        b'{"options": ["a", "\\ud800"]}',
        b'{"inputs": "\\ud83d old man"}',
    ),
    *(b'{"inputs": "\\ud800"}', b'{"inputs": ["\\udfff"]}', b'{"inputs": "\\u0000"}', b'{"inputs": 1e999}'),
    *(
        b'{"inputs": [[[]]]}',
        b'{"inputs": {}}',
        b'{"inputs": ""}',
        b'{"inputs": [""]}',
        b'{"options": [1, 2]}',
    ),
    *(b'{"inputs": "a", "parameters": null}', b'{"inputs": "a", "parameters": {"top_k": 1e400}}'),
    *(
        b'{"inputs": {"question": "", "context": ""}}',
        b'{"options": ["", ""]}',
        b'{"query": [], "texts": ""}',
    ),
    b'{"inputs": "\xf0\x9f\x98\x80 \xe2\x80\x8b \xef\xbf\xbf"}',
]


@pytest.mark.parametrize("name", HEADS)
def test_nothing_malformed_is_an_error_of_the_server(client: Clients, name: str) -> None:
    """Catches: a lone surrogate that reaches the answer's UTF-8, an empty passage without windows, a number
    that Python refuses to convert."""
    for path in routes.handlers():
        for body in MALFORMED + (NO_OBJECTS if name == "embed" else []):
            found = client(name).post(path, content=body)
            assert found.status_code < 500, (path, body, found.text)
            if b"\\ud" in body:
                assert found.status_code == 422 and "half a character" in found.text, (path, body)
            if found.status_code != 200:
                answer = found.json()
                assert answer["request_id"] == found.headers["x-request-id"]
                assert isinstance(answer["error"], dict) == path.startswith("/v1/")


NAMES = (
    *("inputs", "input", "parameters", "truncate", "normalize", "dimensions", "query", "texts", "documents"),
    *("options", "passage", "question", "context", "source_sentence", "sentences", "top_k", "targets"),
    *("text", "text_pair", "model", "encoding_format", "truncation_direction", "raw_scores", "top_n"),
    *("ids", "skip_special_tokens", "candidate_labels", "hypothesis_template", "multi_label"),
)
WORDS = st.sampled_from(["", "a", "who", "[MASK] man", "left", LONG, "[SEP]", "\0", "\u4f60 \U0001f600"])
JSON = st.recursive(
    st.one_of(WORDS, st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(HEADS),
    path=st.sampled_from(list(routes.handlers())),
    body=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4),
    query=st.one_of(WORDS, st.lists(WORDS, max_size=3), JSON),
)
def test_no_json_is_an_error_of_the_server(
    client: Clients, name: str, path: str, body: Any, query: Any
) -> None:
    """Bodies of the fields that there are, with any values. Catches: an infinity or a huge number that
    passes the types, an option that fills a gap with nothing."""
    body |= {"input" if path.endswith("embeddings") else "inputs": query}
    found = client(name).post(path, content=json.dumps(body))
    assert found.status_code in (200, 400, 404, 422), (path, body, found.text)


def test_one_shape_of_errors(client: Clients) -> None:
    """Catches: Starlette's plain text for unknown paths and methods."""
    http = client("embed")
    for path, method, status, code in (
        ("/nowhere", "POST", 404, "no_route"),
        ("/embed", "GET", 405, "method_not_allowed"),
        ("/info", "POST", 405, "method_not_allowed"),
        ("/embed/", "POST", 404, "no_route"),
        ("/info/", "GET", 404, "no_route"),
    ):
        found = http.request(method, path, follow_redirects=False)
        answer = found.json()
        assert found.status_code == status and answer["code"] == code
        assert answer.keys() == {"error", "error_type", "code", "details", "request_id"}
    theirs = http.post("/v1/embeddings", content=b"{").json()
    assert theirs.keys() == {"error", "request_id"}
    assert theirs["error"].keys() == {"message", "type", "param", "code"}
    named = http.get("/info", headers={"x-request-id": "mine-1"})
    assert named.headers["x-request-id"] == "mine-1"
    assert http.get("/info", headers={"x-request-id": "a\tb c"}).headers["x-request-id"] != "a\tb c"
    beyond = http.get("/info", headers={"x-request-id": "ê".encode()})  # "Ãª" in Latin-1, two letters
    assert beyond.headers["x-request-id"].isascii()


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("single", "/choose", {"options": ["a", "b"]}),
        ("embed", "/predict", {"inputs": "a"}),
        ("tag", "/predict", {"inputs": "a"}),
        ("embed", "/relate", {"inputs": "a"}),
        ("embed", "/embed_sparse", {"inputs": "a"}),
        ("embed", "/zero-shot", {"inputs": "a", "parameters": {"candidate_labels": ["x"]}}),
        ("single", "/", {"inputs": "a", "parameters": {"candidate_labels": ["x"]}}),
    ],
)
def test_what_the_model_was_not_made_for(client: Clients, name: str, path: str, body: Any) -> None:
    refused = post(client(name), path, body, 422)
    assert refused["code"] == "not_for_this_model" and refused["details"]["able"]


def test_a_body_is_bounded_over_the_whole_way(folder: Folders) -> None:
    with client_of(folder("embed"), ServingLimits(body_bytes=500)) as http:
        found = http.post("/embed", content=(b"x" * 100 for _ in range(100)))
        assert found.status_code == 413 and found.json()["code"] == "body_too_large"
        assert http.post("/embed", json={"inputs": "who"}).status_code == 200


def test_every_route_but_one_requires_the_token(folder: Folders) -> None:
    """A walk over the application's own table. Catches: a route beside the guard; unknown paths that leak
    their existence."""
    with client_of(folder("embed"), token=b"s3cret") as http:
        there = {route.path for route in http.app.routes}  # type: ignore[attr-defined]
        assert there == {*paths(), "/v1/models/{name:path}"}
        for path in (*there, "/nowhere", "/health/live/"):
            for method in ("GET", "POST", "HEAD", "OPTIONS", "DELETE"):
                for headers in ({}, {"authorization": "Bearer wrong"}):
                    found = http.request(method, path, headers=headers, follow_redirects=False)
                    if path in PAGE and method in ("GET", "HEAD"):  # its files hold no secret
                        assert found.status_code == 200 and "s3cret" not in found.text
                    elif path == LIVE:
                        assert found.status_code in (200, 405)
                    else:
                        assert found.status_code == 401 and "s3cret" not in found.text, path
                        assert found.headers["www-authenticate"] == "Bearer"
        for host in (
            "a/health/live?",
            "a/health/live#",
            "[",
            "a b",
        ):  # which older Starlettes put into the URL
            for path in ("/embed", "/info", "/nowhere"):
                found = http.post(path, headers={"host": host})
                assert found.status_code == 401 and found.json()["error"], (host, path)
        for header in ("Bearer s3cret", "s3cret"):
            assert http.get("/info", headers={"authorization": header}).status_code == 200


def test_metrics_are_there_before_the_first_request(folder: Folders) -> None:
    """Catches: families that appear with their first count; tokens that are not those of the usage."""

    def numbers() -> dict[str, float]:
        families = text_string_to_metric_families(http.get("/metrics").text)
        return {
            sample.name
            + "".join(f"/{value}" for label, value in sorted(sample.labels.items()) if label != "model"): (
                sample.value
            )
            for family in families
            for sample in family.samples
        }

    with client_of(folder("embed")) as http:
        before = numbers()
        for name in ("items_total/embed", "tokens_total/computed", "tokens_total/truncated", "queue_tokens"):
            assert before[f"albertine_{name}"] == 0
        for reason in ("queue_full", "forecast", "deadline", "cancelled", "draining", "non_finite_output"):
            assert before[f"albertine_rejects_total/{reason}"] == 0
        assert (
            before["albertine_requests_total/200//embed"] == 0 and before["albertine_step_seconds_count"] == 0
        )
        usage = post(http, "/v1/embeddings", {"input": FITTING})["usage"]
        post(http, "/embed", {"inputs": [LONG], "truncate": True})
        http.post("/secret text")
        after = numbers()
        assert after["albertine_tokens_total/computed"] == usage["total_tokens"] + 16
        assert after["albertine_tokens_total/truncated"] == len(LONG.split()) + 2 - 16
        assert after["albertine_items_total/embed"] == 4
        assert after["albertine_requests_total/200//v1/embeddings"] == 1
        assert after["albertine_requests_total/404/other"] == 1
        assert not any("secret" in name for name in after)


def test_info(client: Clients) -> None:
    info = client("single").get("/info").json()
    assert info["model_type"]["classifier"]["id2label"] == {"0": "a", "1": "b", "2": "c"}
    assert info["model_id"] == "single" and info["max_input_length"] == 16
    assert info["model_sha"] == client("single").post("/", json={"inputs": "a"}).headers["x-model-sha"]
    assert "reranker" in client("score").get("/info").json()["model_type"]
    assert json.dumps(client("embed").get("/info").json()["model_type"]["embedding"]) == '{"pooling": "mean"}'


def test_info_states_the_limits(folder: Folders) -> None:
    """Catches: a batch size that the tokens refuse; `auto` for a number format."""
    with client_of(folder("embed"), ServingLimits(queue_tokens=20)) as http:
        info = http.get("/info").json()
        assert info["max_client_batch_size"] == 10 and info["model_dtype"] == "float32"
        assert post(http, "/embed", {"inputs": [""] * 10})
        assert post(http, "/embed", {"inputs": [""] * 11}, 422)["code"] == "batch_too_large"
    for precision, wanted in (
        ("auto", "bfloat16" if fast_bfloat16(torch.device("cpu")) else "float32"),
        ("bfloat16", "bfloat16"),
    ):
        model = Predictor(folder("single"), precision=precision)
        assert ServedModel(model, "a").number_format == wanted


def test_which_end_is_classified(client: Clients, folder: Folders) -> None:
    model, words = predictor(folder("single")), LONG.split()
    for side, kept in (("left", words[-14:]), ("right", words[:14])):
        body = {"inputs": [[LONG]], "truncate": True, "truncation_direction": side}
        [wanted] = model.classify([" ".join(kept)])
        [row] = post(client("single"), "/predict", body)
        assert {one["label"]: one["score"] for one in row} == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("score", "/rerank", {"query": "who", "texts": ["man", LONG]}),
        ("embed", "/rerank", {"query": "who", "texts": ["man", LONG]}),
        ("embed", "/similarity", {"inputs": {"source_sentence": "who", "sentences": ["man", LONG]}}),
    ],
)
def test_truncate_applies_to_comparisons(client: Clients, name: str, path: str, body: Any) -> None:
    error = post(client(name), path, body, 422)
    assert error["code"] == "input_too_long" and error["details"]["index"] == 1
    where = {"parameters": {"truncate": True}} if path == "/similarity" else {"truncate": True}
    found = client(name).post(path, json={**body, **where})
    assert found.status_code == 200 and found.headers["x-truncated-inputs"] == "1", found.text


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/rerank", {"query": LONG, "texts": ["man", "who"]}, "query"),
        (
            "/similarity",
            {"inputs": {"source_sentence": LONG, "sentences": ["man", "who"]}},
            "inputs.source_sentence",
        ),
    ],
)
def test_what_texts_are_compared_with_is_named(client: Clients, path: str, body: Any, field: str) -> None:
    """Catches: a number behind those of the texts."""
    error = post(client("embed"), path, body, 422)
    assert error["code"] == "input_too_long" and error["error"].startswith(f"`{field}` has ")
    assert error["details"]["field"] == field and "index" not in error["details"]


@pytest.mark.parametrize(
    "wrong",
    [
        ("the man", ["was", None], ""),
        ("the man", ["was", float("nan")], "who ?"),
        (None, ["was", "said"], ""),
        ("the man", ["was", "said"], None),
    ],
    ids=str,
)
def test_what_is_missing_is_no_option(folder: Folders, wrong: Any) -> None:
    with pytest.raises(DataError, match=r"^asked\[1\]: "):
        predictor(folder("choose")).choose_all([("the man", ["was", "said"], ""), wrong])


def test_a_family_has_its_threshold_from_the_start(folder: Folders) -> None:
    """Before the model is built: two concurrent first calls may build one each."""
    family: Any = predictor(folder("answer or not")).family
    assert family.threshold == 0.4


def test_the_end_of_a_text_that_is_lowered(folder: Folders) -> None:
    model = predictor(folder("embed"))
    model.embedder = replace(model.embedder, how=replace(model.embedder.how, lower=True))
    served, key = ServedModel(model, "a"), BatchKey("embed")
    kept = served.task("embed").cut_left(
        "İ " * 30 + LONG.upper(), lambda text: served.end_that_fits(key, text)
    )
    assert kept.split() == LONG.split()[-14:]


def test_batched_masks_have_the_requested_candidates_each(client: Clients) -> None:
    model = client("fill-mask").service.model  # type: ignore[attr-defined]
    few, many = model.answer(BatchKey("fill-mask"), [("the [MASK] man", 2, None), ("a [MASK]", 7, None)])
    assert (len(few[0]), len(many[0])) == (2, 7)


def test_batched_masks_cost_what_each_requests(client: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    plain = fill_mask.Guess

    def noted(*given: Any) -> Any:
        made.append(given)
        return plain(*given)

    monkeypatch.setattr(fill_mask, "Guess", noted)
    model = client("fill-mask").service.model  # type: ignore[attr-defined]
    model.answer(BatchKey("fill-mask"), [("the [MASK] man", 2, None), ("a [MASK]", 7, None)])
    assert len(made) == 2 + 7
