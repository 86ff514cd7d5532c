"""A line of predictions over many classes, and the same by `Predictor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from albertine import Predictor
from albertine.evaluation.error_analysis import analyze_errors
from albertine.inference.probabilities import softmax
from albertine.tasks.classify import Classify
from albertine.tasks.encoded import Encoded, RowBuilder
from albertine.tasks.examples import Example
from albertine.tasks.finetune import finetune
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune

NAMES = tuple(f"class {i}" for i in range(14))


def lines(family: Classify, logits: NDArray[Any]) -> list[dict[str, Any]]:
    examples = tuple(Example(str(i), "a man", None, None, "") for i in range(len(logits)))
    data = Encoded(examples, [], [], np.arange(len(logits) + 1), None, 0)
    return family.lines(logits, data, family.answers(logits, data))


def test_the_ten_likeliest_classes_are_returned_in_order() -> None:
    family, logits = Classify("single", NAMES, (), 8), np.sin(np.linspace(-3, 3, 70).reshape(14, 5).T)
    for line, row in zip(lines(family, logits), softmax(logits).tolist(), strict=True):
        best = sorted(sorted(range(14), key=lambda i: -row[i])[:10])
        assert list(line["probabilities"]) == [NAMES[i] for i in best]
        probabilities = [line["probabilities"][NAMES[i]] for i in best]
        assert probabilities == pytest.approx([row[i] for i in best], abs=1e-6)
    equal = lines(family, np.zeros((1, 14)))[0]  # whichever is the answer is among them
    assert equal["prediction"] in equal["probabilities"] and len(equal["probabilities"]) in (10, 11)
    few = lines(Classify("single", NAMES[:3], (), 8), logits[:, :3])
    assert [list(line["probabilities"]) for line in few] == [list(NAMES[:3])] * 5


def test_every_predicted_class_is_returned() -> None:
    family, logits = Classify("multi", NAMES, (), 8), np.full((2, 14), -1.0)
    logits[0, :12], logits[1, 5] = 9.0, 0.5
    first, second = lines(family, logits)
    assert len(first["prediction"]) == 12 and set(first["probabilities"]) == set(first["prediction"])
    assert len(second["probabilities"]) in (10, 11) and second["probabilities"]["class 5"] > 0.5


def test_scores_of_cross_encoders_average_their_sigmoids() -> None:
    family, logits = Classify("score", (), (), 8, sigmoid=True), [np.zeros((1, 1)), np.full((1, 1), 9.0)]
    data = Encoded(("a",), [], [], np.arange(2), None, 0)
    answers = [family.answers(x, data)[0] for x in logits]
    assert answers == pytest.approx([0.5, 1.0], abs=1e-3)
    assert family.answers(family.merge(logits, data), data) == pytest.approx([sum(answers) / 2])  # type: ignore[arg-type]


def test_a_predictions_file_has_as_many_candidates_as_requested(tune: Tune, tmp_path: Any) -> None:
    path = tmp_path / "many.jsonl"
    rows = [{"text": f"the house of {i}", "label": NAMES[i % 14]} for i in range(28)]
    path.write_text("\n".join(map(json.dumps, rows)))
    task = {"train": path, "dev": path, "text": "text", "label": "label"}
    result = finetune(tune(task=task, training={"steps": 2}), reporter=Reporter(quiet=True))
    predictions = [
        json.loads(line) for line in (result.folder / "predictions-dev.jsonl").read_text().splitlines()
    ]
    assert {len(line["probabilities"]) for line in predictions} == {10}
    assert analyze_errors(predictions, NAMES).confusion.sum() == 28
    predictor = Predictor(result.model, precision="float32")
    whole = predictor.classify([row["text"] for row in rows])
    for top in (0, 3, 12):
        for row, chances in zip(predictor.predict(rows, top=top), whole, strict=True):
            assert row["prediction"] == max(chances, key=chances.__getitem__)
            assert row["probability"] == pytest.approx(max(chances.values()), abs=1e-6)
            assert len(row.get("probabilities", {})) == top


def test_a_text_is_cut_before_the_next_is_encoded(pretrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    tokenizer = load_tokenizer(pretrained)
    encode, add = tokenizer.encode, RowBuilder.add

    def encoded(text: str) -> list[int]:
        done.append("encoded")
        return encode(text)

    def cut(*given: Any) -> Any:
        done.append("cut")
        return add(*given)

    monkeypatch.setattr(tokenizer, "encode", encoded)
    monkeypatch.setattr(RowBuilder, "add", cut)
    examples = [Example(str(i), "x", None, None, "") for i in range(3)]
    Classify("single", ("a", "b"), (), 16).encode(examples, tokenizer)
    assert done == ["encoded", "cut"] * 3
