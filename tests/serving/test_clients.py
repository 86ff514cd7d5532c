"""Common clients, over a socket on this machine: huggingface_hub's and OpenAI's own classes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from huggingface_hub import InferenceClient, constants
from huggingface_hub.errors import HfHubHTTPError
from transformers import pipeline as transformers_pipeline

from albertine import Predictor
from albertine.serving.limits import ServingLimits
from albertine.serving.server import bound, serve
from tests.inference.exports import LONG, PASSAGES, TEXTS
from tests.serving.served import service_of

Folders = Callable[[str], Path]
TOKEN = "s3cret"


@contextmanager
def at(folder: Path, limits: ServingLimits | None = None) -> Iterator[tuple[str, Any]]:
    """The address of a running server of a folder, and its service."""
    service = service_of(folder, limits)
    listening = bound("127.0.0.1", 0, token=TOKEN.encode(), insecure=False)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    started = threading.Event()
    thread = threading.Thread(
        target=serve, args=(service.models, listening, TOKEN.encode(), 5.0, started.set)
    )
    thread.start()
    assert started.wait(10)
    try:
        yield url, service
    finally:
        service.models.draining = True
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, huggingface_hub does not even connect to this machine."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def hub(url: str) -> InferenceClient:
    return InferenceClient(model=url, token=TOKEN, timeout=20)


def test_huggingface_hub_calls_all_its_tasks(folder: Folders) -> None:
    """Catches: shapes that only look like those of the contract."""
    with at(folder("embed")) as (url, _):
        model, client = Predictor(folder("embed"), precision="float32"), hub(url)
        found = client.feature_extraction(TEXTS[0], normalize=True, truncate=True)
        np.testing.assert_allclose(found, model.embed(TEXTS[0], normalize=True), atol=1e-6)
        alike = client.sentence_similarity(TEXTS[0], other_sentences=TEXTS[:3])
        assert alike == pytest.approx(model.similarity(TEXTS[:1], TEXTS[:3])[0].tolist(), abs=1e-6)
    with at(folder("fill-mask")) as (url, _):
        guess = Predictor(folder("fill-mask"), precision="float32").fill_mask("the [MASK]", top_k=3)[0]
        masks = hub(url).fill_mask("the [MASK]", top_k=3)
        assert [(m.token, m.token_str) for m in masks] == [(g.token_id, g.token) for g in guess]
    with at(folder("single")) as (url, _):
        classes = Predictor(folder("single"), precision="float32").classify("the man")[0]
        labels = hub(url).text_classification("the man")
        assert {one.label: one.score for one in labels} == pytest.approx(classes, abs=1e-6)
        assert len(hub(url).text_classification("the man", top_k=1)) == 1
        with pytest.raises(HfHubHTTPError, match=r"no class means entailment \(its classes are a, b, c\)"):
            hub(url).zero_shot_classification("the man", ["x", "y"])
    with at(folder("nli")) as (url, _):
        pipeline = transformers_pipeline("zero-shot-classification", str(folder("nli")))
        for more in ({}, {"multi_label": True}, {"hypothesis_template": "was it {} ?"}):
            wanted = pipeline(TEXTS[0], candidate_labels=["a house", "who", "never"], **more)
            scored = hub(url).zero_shot_classification(TEXTS[0], ["a house", "who", "never"], **more)
            assert [one.label for one in scored] == wanted["labels"]
            assert [one.score for one in scored] == pytest.approx(wanted["scores"], abs=1e-6)
    with at(folder("tag")) as (url, _):
        entities = Predictor(folder("tag"), precision="float32").tag(TEXTS[1])
        tags = hub(url).token_classification(TEXTS[1], aggregation_strategy="simple")
        assert [(t.entity_group, t.start, t.end) for t in tags] == entities and tags[0].score > 0
    with at(folder("answer")) as (url, _):
        question, passage = PASSAGES[0]
        best = Predictor(folder("answer"), precision="float32").answer(question, passage)
        answer = hub(url).question_answering(question, passage)
        assert best and (answer.start, answer.end) == (best.begin, best.end)  # type: ignore[union-attr]


def test_small_answers_go_at_once(folder: Folders) -> None:
    """Catches: a listening socket of no protocol, whose answers over a kept connection wait for the 40 ms of
    a delayed acknowledgement."""
    with at(folder("embed")) as (url, _):
        client = HTTPConnection(urlsplit(url).netloc, timeout=20)
        took = []
        for _ in range(15):
            began = time.monotonic()
            client.request("POST", "/embed", b'{"inputs": "who"}', {"authorization": TOKEN})
            assert client.getresponse().read()
            took.append(time.monotonic() - began)
        assert min(took[1:]) < 0.03
        client.close()


def test_huggingface_hub_receives_the_error(folder: Folders) -> None:
    with at(folder("embed")) as (url, _):
        with pytest.raises(HfHubHTTPError, match="input_too_long") as refused:
            hub(url).feature_extraction(LONG)
        assert refused.value.response.status_code == 422
        with pytest.raises(HfHubHTTPError) as unknown:
            InferenceClient(model=url, token="wrong").feature_extraction("a")
        assert unknown.value.response.status_code == 401


def test_openai_requests_vectors(folder: Folders) -> None:
    """Catches: base64 that its client reads as other numbers; errors that it cannot distinguish."""
    openai = pytest.importorskip("openai")
    with at(folder("embed"), ServingLimits(queue_tokens=60)) as (url, _):
        model = Predictor(folder("embed"), precision="float32")
        client = openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0, timeout=20)
        wanted = model.embed(TEXTS[:3], normalize=True)
        for form in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
            found = client.embeddings.create(model="embed", input=TEXTS[:3], **form)
            rows = [np.frombuffer(_bytes(one.embedding), "<f4") for one in found.data]
            np.testing.assert_allclose(rows, wanted, atol=1e-6)
        assert len(client.embeddings.create(model="embed", input="a", dimensions=3).data[0].embedding) == 3
        assert client.embeddings.create(model="embed", input=LONG, extra_body={"truncate": True}).data
        assert [one.id for one in client.models.list()] == [client.models.retrieve("embed").id] == ["embed"]
        for error, status, body in (
            (openai.NotFoundError, 404, {"model": "gpt", "input": "a"}),
            (openai.UnprocessableEntityError, 422, {"model": "embed", "input": [1, 2]}),
            (openai.UnprocessableEntityError, 422, {"model": "embed", "input": LONG}),
        ):
            with pytest.raises(error) as refused:
                client.embeddings.create(**body)
            assert refused.value.status_code == status and refused.value.code and refused.value.message
            assert refused.value.request_id
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="wrong").embeddings.create(model="embed", input="a")


def test_openai_retries_after_the_stated_time(folder: Folders) -> None:
    """429 with Retry-After is sent again, 422 is not. Catches: an `x-should-retry` with the opposite value, a
    Retry-After that its client does not read."""
    openai = pytest.importorskip("openai")
    with at(folder("embed")) as (url, service):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=1, timeout=20)
        limit, service.queue.most_tokens = service.queue.most_tokens, 1
        threading.Timer(0.5, lambda: setattr(service.queue, "most_tokens", limit)).start()
        began = time.monotonic()
        assert client.embeddings.create(model="embed", input="a").data
        assert time.monotonic() - began > 0.9  # the second of Retry-After
        counted = service.models.metrics.registry.get_sample_value
        labels = {"route": "/v1/embeddings"}
        assert counted("albertine_requests_total", {**labels, "code": "429"}) == 1
        with pytest.raises(openai.UnprocessableEntityError):
            client.embeddings.create(model="embed", input=[1])
        deadline = time.monotonic() + 5  # it is counted when it has been sent, which a client may see before
        while not counted("albertine_requests_total", {**labels, "code": "422"}):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert counted("albertine_requests_total", {**labels, "code": "422"}) == 1


def _bytes(embedding: Any) -> bytes:
    """A vector as its bytes, whether or not the client has decoded it."""
    if isinstance(embedding, str):
        import base64

        return base64.b64decode(embedding)
    return np.array(embedding, "<f4").tobytes()
