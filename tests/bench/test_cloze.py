"""Questions made from plain text."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from benchmarks import cloze
from benchmarks.cloze import Span, question, question_word, questions, spans

TEXT = Path(__file__).parents[2] / "data" / "demo" / "english.tar.xz"
MINE = (
    "In 1868 the Klau Mine opened near Paso Robles; it yielded nearly 18,000 flasks of mercury by May 1940."
)


def found(sentence: str) -> set[tuple[str, str]]:
    return {(sentence[s.begin : s.end], s.kind) for s in spans(sentence)}


def test_what_can_be_asked_for() -> None:
    """Kills: a year taken for a number; a capital that only begins the sentence; a phrase too long."""
    assert found(MINE) == {
        ("1868", "date"),
        ("May 1940", "date"),
        ("18,000", "number"),
        ("Klau Mine", "name"),
        ("Paso Robles", "name"),
        ("mercury", "phrase"),
    }
    assert ("She", "name") not in found("She met the Queen of Spain.")
    assert ("Queen of Spain", "name") in found("She met the Queen of Spain.")


@pytest.mark.parametrize(
    ("sentence", "answer", "kind", "words", "instead"),
    [
        (MINE, "1868", "date", {"when", "what year", "in what year"}, True),
        (MINE, "18,000", "number", {"how many"}, False),
        ("It paid $5 a day to them.", "$5", "number", {"how much"}, False),
        ("About 5% of them came back.", "5%", "number", {"what percentage"}, False),
        ("It was written by Mary Shelley there.", "Mary Shelley", "name", {"who", "by whom"}, True),
        ("He lived for years in Paso Robles.", "Paso Robles", "name", {"where", "what place"}, True),
    ],
)
def test_what_to_ask_with(sentence: str, answer: str, kind: str, words: set[str], instead: bool) -> None:
    begin = sentence.index(answer)
    span = Span(begin, begin + len(answer), kind)
    said = [question_word(sentence, span, random.Random(seed)) for seed in range(40)]
    assert words <= {word for word, _ in said}
    assert {one for _, one in said} == {instead}


def test_a_question_has_words_of_its_sentence_and_not_the_answer() -> None:
    begin = MINE.index("Klau Mine")
    span = Span(begin, begin + len("Klau Mine"), "name")
    asked = {question(MINE, span, random.Random(seed)) for seed in range(60)} - {None}
    assert len(asked) > 20
    known = {word.strip(",.;").lower() for word in MINE.split()}
    extra = {"what", "which", "who", "person", "did", "was", "is", "does"}
    for one in asked:
        assert one is not None
        words = one.removesuffix("?").lower().split()
        assert set(words) <= known | extra
        assert not {"klau", "mine"} & set(words)
        assert 5 <= len(words) <= 16


def test_answers_stand_where_they_are_said_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills: an answer's place counted within its sentence; more or fewer
    questions than were wanted; a draw that the seed does not fix."""
    output = tmp_path / "cloze.json"
    line = ["cloze", str(TEXT), "--questions", "40", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", line)
    cloze.main()
    first = output.read_text(encoding="utf-8")
    cloze.main()
    assert output.read_text(encoding="utf-8") == first
    tree = json.loads(first)
    asked = [(p["context"], q) for a in tree["data"] for p in a["paragraphs"] for q in p["qas"]]
    assert len(asked) == len({q["id"] for _, q in asked}) == 40
    later = 0
    for context, one in asked:
        [answer] = one["answers"]
        begin = answer["answer_start"]
        assert context[begin : begin + len(answer["text"])] == answer["text"]
        later += begin > 200
    assert later > 10
    assert questions([], 5, 0)["data"] == []
