"""Encoders without a table of positions, or of segments, are tuned and used for predictions like any
other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import albertine
from albertine.tasks.finetune import finetune
from albertine.tasks.predictor import Predictor
from albertine.tasks.rescore import evaluate_run, open_run
from tests import stand_in
from tests.tasks.conftest import Tune

KINDS: dict[str, dict[str, Any]] = {
    "roformer": {},
    "modernbert": {"norm": "pre", "feed_forward": "gated", "biases": False, "type_vocab_size": 0},
}
"""What an encoder has besides rotary positions."""


@pytest.fixture(scope="module", params=["roformer", pytest.param("modernbert", marks=pytest.mark.matrix)])
def rotary(
    request: pytest.FixtureRequest, pretrained: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    tokenizer = albertine.load_tokenizer(pretrained)
    model = stand_in.rotary_model(tokenizer.vocab_size, seed=3, **KINDS[request.param])
    folder = tmp_path_factory.mktemp("rotary") / request.param
    albertine.save(model, tokenizer, folder)
    return folder


def test_classes_of_pairs(rotary: Path, tune: Tune) -> None:
    result = finetune(tune(encoder={"folder": rotary}, task={"pair": "answer"}))
    assert result.scores["accuracy"] > 0.9
    best = Predictor(result.folder / "best")
    (answer,) = best.classify([("the old man was good and he said", "yes, sir")])
    assert answer["fine"] > 0.5
    (cut,) = best.classify([("good " + "the " * 200, "yes, sir")])  # cut, not refused
    assert sum(cut.values()) == pytest.approx(1)


def test_pooling_over_all_depths_is_learned_and_recorded(rotary: Path, tune: Tune) -> None:
    """No class of transformers has that head, so config.json names none; later predictions of the folder, for
    a sentence or the dev file, equal those of the run."""
    result = finetune(tune(encoder={"folder": rotary}, training={"epochs": 1}))
    config = json.loads((result.folder / "best" / "config.json").read_text())
    assert config["albertine"]["pooling"] == "depths" and "architectures" not in config
    assert not any(name.startswith("pooler") for name in albertine.load(result.folder / "best").state_dict())
    lines = [json.loads(x) for x in (result.folder / "predictions-dev.jsonl").read_text().splitlines()]
    best = Predictor(result.folder / "best", precision="float32")
    for line, answer in zip(lines, best.classify([line["text"] for line in lines]), strict=True):
        assert answer == pytest.approx(line["probabilities"], abs=1e-5)
    (again,) = evaluate_run(open_run(result.folder), ("dev",))
    assert again.scores["accuracy"] == result.scores["accuracy"]


def test_the_first_token_can_be_requested(rotary: Path, tune: Tune) -> None:
    found = {
        pooling: finetune(
            tune(name=pooling, encoder={"folder": rotary}, task={"pooling": pooling}, training={"epochs": 1})
        ).folder
        for pooling in ("mean", "depths", "cls")
    }
    chances = [Predictor(folder / "best").classify(["good the man"])[0]["fine"] for folder in found.values()]
    assert len(set(chances)) == 3
    assert "pooling" not in json.loads((found["cls"] / "best" / "config.json").read_text())["albertine"]


def test_vectors(rotary: Path, tune: Tune) -> None:
    task = {"kind": "similarity", "pair": "answer", "label": "points", "similarity": {"highest": 2.5}}
    result = finetune(tune(encoder={"folder": rotary}, task=task))
    assert result.scores["spearman"] > 0.7
    vectors = Predictor(result.folder / "best").embed(["the good man", "the never man"])
    assert vectors.shape == (2, 32) and np.isfinite(vectors).all()


@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_over_all_depths_are_pooled_as_in_training(rotary: Path, tune: Tune, normalize: bool) -> None:
    similarity = {"highest": 2.5, "pooling": "depths", "normalize": normalize}
    task = {"kind": "similarity", "pair": "answer", "label": "points", "similarity": similarity}
    folder = finetune(tune(encoder={"folder": rotary}, task=task, training={"epochs": 1})).folder
    lines = [json.loads(x) for x in (folder / "predictions-dev.jsonl").read_text().splitlines()]
    predictor, texts = Predictor(folder / "best", precision="float32"), ["the good man", "of the house"]
    found = predictor.embed(texts)
    np.testing.assert_allclose(found, predictor.embed(texts, pooling="depths"), atol=1e-6)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5) == normalize
    (again,) = evaluate_run(open_run(folder), ("dev",))
    assert [round(x, 6) for x in again.answers] == [line["prediction"] for line in lines]


def questions(path: Path, count: int, seed: int) -> Path:
    """The answer is the word after "good"; every passage has one."""
    rng, words = np.random.default_rng(seed), ["the", "house", "and", "he", "was", "old", "man", "time"]
    paragraphs = []
    for number in range(count):
        row = [str(word) for word in rng.choice(words, 12)]
        at = int(rng.integers(11))
        row[at] = "good"
        start = len(" ".join(row[: at + 1])) + 1
        answer = {"text": row[at + 1], "answer_start": start}
        entry = {"id": str(number), "question": "what is it", "answers": [answer]}
        paragraphs.append({"context": " ".join(row), "qas": [entry]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return path


def test_answers(rotary: Path, tune: Tune, tmp_path: Path) -> None:
    files = {"train": questions(tmp_path / "t.json", 300, 1), "dev": questions(tmp_path / "d.json", 50, 2)}
    task = {"kind": "answers", **files, "max_length": 48, "answer": {"stride": 16, "question": 8}}
    training = {"epochs": 8, "batch_size": 32, "micro_batch_tokens": 2048}
    result = finetune(tune(encoder={"folder": rotary}, task=task, training=training))
    assert result.scores["squad_f1"] > 0.6  # a word at random comes to about 0.08
    passage = "he was old and the man was good time and the house"
    found = Predictor(result.folder / "best").answer("what is it", passage)
    assert found is not None and passage[found.begin : found.end]
