"""Rows as questions, and the answer columns of each family, by hand."""

from __future__ import annotations

from typing import Any

from albertine.inference.search import Search
from albertine.tasks.family import Fields
from albertine.tasks.generate import Read, Room
from albertine.tasks.prediction_columns import answer_columns
from albertine.tasks.readers.table import Row

CLASSES = {"prediction": "y", "probabilities": {"x": 0.2, "y": 0.5, "z": 0.3}}
SPANS = {"prediction": "ab", "no_answer": 0.1, "spans": [[0, 2, 0.7], [3, 4, 0.2], [5, 6, 0.1]]}


def test_top_n_limits_the_columns() -> None:
    assert answer_columns(CLASSES, 0) == {"prediction": "y", "probability": 0.5}
    assert list(answer_columns(CLASSES, 2)["probabilities"].items()) == [("y", 0.5), ("z", 0.3)]
    options = {"prediction": 1, "probabilities": [0.2, 0.5, 0.3]}
    assert list(answer_columns(options, 2)["probabilities"].items()) == [("1", 0.5), ("2", 0.3)]
    assert answer_columns(SPANS, 2)["spans"] == SPANS["spans"][:2]  # type: ignore[index]
    assert "spans" not in answer_columns(SPANS, 0)


def test_an_empty_answer_has_no_position() -> None:
    assert answer_columns(SPANS, 0) | {"begin": 0, "end": 2, "probability": 0.7} == answer_columns(SPANS, 0)
    columns = answer_columns({**SPANS, "prediction": ""}, 0)
    assert columns == {"prediction": "", "no_answer": 0.1, "begin": None, "end": None, "probability": None}


def test_passages_of_rows_of_one_name_are_not_read_together() -> None:
    tokenizer: Any = None
    family = Read(tokenizer, Room(16, 4), Search())
    rows = [Row({"id": "7", "context": "a", "question": "b"}, f"f:{n}", n) for n in range(2)]
    names = [family.example(row, Fields("context", "question")).name for row in rows]
    assert len(set(names)) == 2
