"""Entities and relations by hand."""

from __future__ import annotations

import pytest

from albertine.evaluation.entities import micro, plain_triple
from albertine.evaluation.metrics import METRICS
from albertine.inference.tags import bio_spans
from albertine.tasks.dataset_registry import named


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-a I-a O B-b", [("a", 0, 2), ("b", 3, 4)]),
        ("B-a B-a I-a", [("a", 0, 1), ("a", 1, 3)]),
        ("I-a I-a O", [("a", 0, 2)]),
        ("B-a I-b I-b", [("a", 0, 1), ("b", 1, 3)]),
        ("O O", []),
        ("B-a I-a", [("a", 0, 2)]),
        ("B-a E-a S-b S-b", [("a", 0, 2), ("b", 2, 3), ("b", 3, 4)]),
        ("B-a I-a E-a I-a", [("a", 0, 3), ("a", 3, 4)]),
        ("B-a L-a U-a", [("a", 0, 2), ("a", 2, 3)]),
        ("DT NN NN O SYM", [("DT", 0, 1), ("NN", 1, 3), ("SYM", 4, 5)]),
        ("B I B", [("B", 0, 1), ("I", 1, 2), ("B", 2, 3)]),
    ],
)
def test_tags_to_entities(tags: str, spans: list[tuple[str, int, int]]) -> None:
    assert bio_spans(tags.split()) == spans


def test_counts_over_all_texts() -> None:
    gold = [[("a", 0, 2), ("b", 3, 4)], [], [("a", 1, 2)]]
    predicted = [[("a", 0, 2), ("a", 0, 2), ("a", 3, 4)], [("b", 0, 1)], []]
    precision, recall, f1 = micro(gold, predicted)
    assert (precision, recall) == (1 / 3, 1 / 3) and f1 == pytest.approx(1 / 3)
    assert micro([[]], [[]]) == (0, 0, 0)
    with pytest.raises(ValueError, match="predictions"):
        micro([[]], [])


def test_triples_as_the_script_compares_them() -> None:
    assert plain_triple(("《ABC》", "作者", "Bob")) == ("abc", "作者", "bob")
    assert plain_triple(("《A》和《B》", "作者", "《C")) == ("a》和《b", "作者", "《c")


def test_the_mean_over_types_of_cluener() -> None:
    gold = [[("a", i, i + 1)] for i in range(10)] + [[("b", 0, 1)]]
    predicted = [[("a", i, i + 1)] for i in range(9)] + [[], []]
    assert METRICS["entity_f1"](gold, predicted) == pytest.approx(0.9)
    assert METRICS["entity_macro_f1"](gold, predicted) == pytest.approx((18 / 19 + 0) / 2)
    assert METRICS["entity_macro_f1"]([[]], [[]]) == 0
    assert named("cluener").metrics[0] == "entity_macro_f1"


def test_a_type_that_is_only_predicted_counts() -> None:
    gold, predicted = [[("a", 0, 1)]], [[("a", 0, 1), ("b", 2, 3)]]
    assert METRICS["entity_macro_f1"](gold, predicted) == pytest.approx(0.5)
