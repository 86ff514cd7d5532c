"""SQuAD's scores against cases worked out by the rules of the official scripts."""

from __future__ import annotations

import json
import lzma
from itertools import product
from pathlib import Path

import pytest

from albertine.evaluation.squad import SQUAD, normalize, score_v1, score_v2


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Cat, a dog & AN owl!", "cat dog owl"),
        ("theatre", "theatre"),  # articles are whole words
        ("U.S.-led", "usled"),  # punctuation is deleted, not replaced
        ("the-end", "theend"),  # and before the articles are
        ("“quoted”", "“quoted”"),  # only the ASCII ones
        ("北京，大学", "北京，大学"),
        ("a", ""),
    ],
)
def test_normalisation(text: str, plain: str) -> None:
    assert normalize(text) == plain


def test_one_answer() -> None:
    assert SQUAD.exact("The Cat.", "cat") == 1 and SQUAD.exact("cats", "cat") == 0
    # "big cat" against "big black cat": both words are right, and two of three are found.
    f1 = SQUAD.f1
    assert f1("a big black cat", "the big cat", empty_counts=False) == pytest.approx(0.8)
    assert f1("cat cat dog", "cat dog dog", empty_counts=False) == pytest.approx(2 / 3)  # bags, not sets
    assert f1("the", "a", empty_counts=False) == 0 and f1("the", "a", empty_counts=True) == 1
    assert f1("", "cat", empty_counts=True) == f1("cat", "", empty_counts=True) == 0


def test_version_one_takes_the_best_gold_and_counts_what_is_missing() -> None:
    gold = {"1": ["cat", "big cat"], "2": ["dog"], "3": ["owl"]}
    scores = score_v1(gold, {"1": "big cat", "2": "big dog", "9": "of no question"})
    assert scores["exact"] == pytest.approx(100 / 3)
    assert scores["f1"] == pytest.approx(100 * (1 + 2 / 3) / 3)


GOLD = {"a": ["cat"], "b": ["big dog"], "c": [], "d": ["the"], "e": ["owl"]}
ANSWERS = {"a": "cat", "b": "dog", "c": "", "d": "mouse"}


def test_version_two_leaves_out_missing_answers_and_separates_the_groups() -> None:
    scores = score_v2(GOLD, ANSWERS)
    # "d" has no gold answer left after normalisation, but it has one in the file; "e" was not answered.
    assert scores["exact"] == pytest.approx(100 * (1 + 0 + 1 + 0) / 4)
    assert scores["f1"] == pytest.approx(100 * (1 + 2 / 3 + 1 + 0) / 4)
    assert scores["has_answer_f1"] == pytest.approx(100 * (1 + 2 / 3 + 0) / 3)
    assert scores["no_answer_exact"] == 100


def test_the_threshold_makes_answers_empty() -> None:
    sure = {"a": 0.9, "b": 0.1, "c": 0.2, "d": 0.8}
    scores = score_v2(GOLD, ANSWERS, sure, threshold=0.5)
    # "d" made empty does not count as right: the script checks whether the file has an answer.
    assert scores["exact"] == pytest.approx(100 * (0 + 0 + 1 + 0) / 4)


def test_the_best_threshold_is_that_of_trying_all() -> None:
    gold = {"a": ["x"], "b": ["y z"], "c": [], "d": [], "e": ["w"]}
    answers = {"a": "x", "b": "y", "c": "v", "d": "", "e": "u"}
    for values in product((0.1, 0.4, 0.7), repeat=5):
        sure = dict(zip(gold, (v + i / 1000 for i, v in enumerate(values)), strict=True))
        found = score_v2(gold, answers, sure)
        # 0 makes every answer empty, as every certainty here is above it.
        tried = max(score_v2(gold, answers, sure, threshold=t)["f1"] for t in [0.0, *sure.values()])
        assert found["best_f1"] == pytest.approx(tried)
        at = found["best_f1_threshold"]
        assert score_v2(gold, answers, sure, threshold=at)["f1"] == pytest.approx(tried)


def test_real_gold_answers_score_a_hundred(shared_data: Path) -> None:
    folders = ("squad1.1/dev-v1.1.json.xz", "squad2.0_cs224n/dev-v2.0.json.xz")
    for path, scorer in zip(folders, (score_v1, score_v2), strict=True):
        with lzma.open(shared_data / path) as file:
            tree = json.load(file)
        questions = [q for article in tree["data"] for p in article["paragraphs"] for q in p["qas"]]
        gold = {q["id"]: [a["text"] for a in q["answers"]] for q in questions}
        assert len(gold) == {score_v1: 10570, score_v2: 6078}[scorer]
        first = {name: texts[0] if texts else "" for name, texts in gold.items()}
        scores = scorer(gold, first)
        assert scores["exact"] == scores["f1"] == 100
        longer = {name: f"{text} x" if text else "" for name, text in first.items()}
        worse = scorer(gold, longer)
        assert worse["exact"] < 60 and worse["exact"] < worse["f1"] < 100
