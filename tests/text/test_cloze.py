"""Questions made from plain text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from albertine.core.randomness import generator
from albertine.text.cloze import (
    CHINESE,
    ENGLISH,
    MAX_QUESTIONS,
    PASSAGE_CHARACTERS,
    Gap,
    RandomChooser,
    chinese_question,
    cloze_questions,
    english_question,
    find_gaps,
)
from albertine.text.documents import Document, read_documents
from albertine.text.sentences import Language

DEMO = Path(__file__).parents[2] / "data" / "demo"
MINE = (
    "In 1868 the Klau Mine opened near Paso Robles; it yielded nearly 18,000 flasks of mercury by May 1940."
)
QUEEN = "She met O'Brien, the Queen of Spain, in a 19th-century hall with 2 dogs."
NOVEL = "1937年7月，《骆驼祥子》在上海出版，由鲁迅的朋友写了序言，共印3000册。"


def found(sentence: str, patterns: dict[str, str]) -> set[tuple[str, str]]:
    return {(sentence[s.begin : s.end], s.kind) for s in find_gaps(sentence, patterns)}


def gap(sentence: str, answer: str, kind: str) -> Gap:
    begin = sentence.index(answer)
    return Gap(begin, begin + len(answer), kind)


def test_which_spans_can_be_answers() -> None:
    """Catches: a year taken for a number; an ordinal for one; a capital that only begins the sentence; a
    phrase beyond a small word; a Chinese phrase over a particle."""
    mine = {"1868": "date", "May 1940": "date", "18,000": "number", "Klau Mine": "name", "mercury": "phrase"}
    assert found(MINE, ENGLISH) == {*mine.items(), ("Paso Robles", "name")}
    assert found(QUEEN, ENGLISH) == {("2", "number"), ("O'Brien", "name"), ("Queen of Spain", "name")}
    assert found("1868 saw a fire.", ENGLISH) == {("1868", "date"), ("fire", "phrase")}
    assert found("It was a plan of the old king that failed.", ENGLISH) == {
        ("plan", "phrase"),
        ("old king", "phrase"),
    }
    novel = {
        "1937年7月": "date",
        "《骆驼祥子》": "name",
        "3000": "number",
        "鲁迅": "phrase",
        "序言": "phrase",
    }
    assert found(NOVEL, CHINESE) == {*novel.items(), ("上海出版", "phrase"), ("朋友写", "phrase")}


@pytest.mark.parametrize(
    ("sentence", "answer", "kind", "words", "gone"),
    [
        (MINE, "1868", "date", {"when", "what year", "in what year"}, "In"),
        (MINE, "18,000", "number", {"how many"}, ""),
        ("The company paid nearly $5 a day to all of its men.", "$5", "number", {"how much"}, ""),
        ("About 5% of all the men came back to their farms.", "5%", "number", {"what percentage"}, ""),
        (
            "It was written there by Mary Shelley in one summer.",
            "Mary Shelley",
            "name",
            {"who", "by whom"},
            "by",
        ),
        ("He lived for ten years in Paso Robles with a cat.", "Paso Robles", "name", {"where"}, "in"),
    ],
)
def test_questions_of_a_cloze(sentence: str, answer: str, kind: str, words: set[str], gone: str) -> None:
    """Catches: the question word of another kind; a preposition kept beside the question word that replaces
    it."""
    questions = [
        english_question(sentence, gap(sentence, answer, kind), RandomChooser(generator(s, "t")))
        for s in range(80)
    ]
    texts = [f" {one.lower().removesuffix('?')} " for one in questions if one]
    assert len(texts) > 40
    for word in words:
        assert any(f" {word} " in text for text in texts)
    assert not any(answer.lower() in text for text in texts)
    if gone:
        own = f" {gone.lower()} "
        assert not any(
            own in text.replace(" in what", "").replace("by whom", "") for text in texts if own != " in "
        )


def test_how_many_precedes_the_counted_noun() -> None:
    sold = "The company in Paso Robles sold nearly 300 red cars in one year to the king of Spain."
    questions = [
        english_question(sold, gap(sold, "300", "number"), RandomChooser(generator(s, "t")))
        for s in range(80)
    ]
    assert all(one is None or "ow many red" in one for one in questions)


def test_a_question_has_words_of_its_sentence() -> None:
    questions = {
        english_question(MINE, gap(MINE, "Klau Mine", "name"), RandomChooser(generator(s, "t")))
        for s in range(60)
    }
    known = {word.strip(",.;").lower() for word in MINE.split()} - {"klau", "mine"}
    known |= {"what", "which", "who", "person", "did", "was", "is", "does"}
    assert len(questions) > 20
    for one in questions - {None}:
        assert one is not None
        words = one.lower().removesuffix("?").split()
        assert not one[0].islower() and set(words) <= known and 5 <= len(words) <= 16
    assert english_question("He met Bob.", Gap(7, 10, "name"), RandomChooser(generator(0, "t"))) is None


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("1937年7月", "date", {"什么时候", "何时", "哪个月"}),
        ("3000", "number", {"多少", "几"}),
        ("《骆驼祥子》", "name", {"什么", "哪部作品", "什么书", "哪个"}),
        ("鲁迅", "phrase", {"谁", "什么人"}),
    ],
)
def test_chinese_questions_are_masked_in_place_of_the_answer(answer: str, kind: str, words: set[str]) -> None:
    place = gap(NOVEL, answer, kind)
    questions = {chinese_question(NOVEL, place, RandomChooser(generator(s, "t"))) for s in range(80)} - {None}
    assert questions
    for one in questions:
        assert one is not None
        assert one.endswith("？") and answer not in one
        assert set(one) <= set(NOVEL) | set("".join(words)) | {"？", "，"}
    assert all(any(word in one for one in questions if one) for word in words)


@pytest.mark.parametrize(("file", "language"), [("english.tar.xz", "en"), ("chinese.tar.xz", "zh")])
def test_answers_are_at_their_offsets(file: str, language: Language) -> None:
    """Catches: an answer's place counted within its sentence; more questions than were wanted; a draw that
    the seed does not fix; passages of the beginning alone; a language's sentences joined like the other's."""
    documents = list(read_documents([DEMO / file]))
    tree = cloze_questions(documents, language, count=60, seed=3)
    assert tree == cloze_questions(documents, language, count=60, seed=3)
    assert tree != cloze_questions(documents, language, count=60, seed=4)
    passages = [p for article in tree["data"] for p in article["paragraphs"]]
    questions = [(p["context"], q) for p in passages for q in p["qas"]]
    assert len(questions) == len({q["id"] for _, q in questions}) == 60
    assert max(len(p["qas"]) for p in passages) == MAX_QUESTIONS
    later = 0
    for context, one in questions:
        [answer] = one["answers"]
        begin = answer["answer_start"]
        assert context[begin : begin + len(answer["text"])] == answer["text"] != ""
        later += begin > len(context) / 2
    assert later > 12
    least, most = PASSAGE_CHARACTERS[language]
    whole = ["".join("".join(d.paragraphs).split()) for d in documents]
    places = []
    for passage in passages:
        assert 0.9 * least <= len(passage["context"]) <= 1.5 * most + 20
        bare = "".join(passage["context"].split())
        [place] = [i for i, text in enumerate(whole) if bare in text][:1]
        places.append(place)
    assert max(places) > len(documents) / 2


def test_short_paragraphs_stand_together_and_long_ones_apart() -> None:
    def contexts_of(*paragraphs: str) -> list[str]:
        tree = cloze_questions([Document("a", paragraphs, False)], "en", count=50)
        return sorted(p["context"] for article in tree["data"] for p in article["paragraphs"])

    line = "The old Mill of {} was sold to a farmer from Paso Robles in 1868 for two horses."
    short = [
        line.format(name)
        for name in ("Ayr", "Bonn", "Cork", "Dover", "Essen", "Fez", "Graz", "Hull", "Ivrea")
    ]
    assert short[0] in contexts_of(*short)[0] and " ".join(short[:4]) in contexts_of(*short)[0]
    long = " ".join(short)
    [only] = contexts_of("A heading that belongs to nothing", long)
    assert "heading" not in only and long.startswith(only)
    assert contexts_of("Too short.") == [] and contexts_of() == []


def test_no_more_passages_are_kept_than_questions_need() -> None:
    """Catches: a list of the whole text; a reservoir that keeps its beginning or its end."""
    alive: list[int] = []

    def documents() -> object:
        for number in range(3000):
            alive.append(number)
            sentence = (
                f"The mill number {number} of Mary Shelley was sold to a farmer from Paso Robles in 1868."
            )
            yield Document(str(number), (" ".join([sentence] * 5),), False)

    tree = cloze_questions(documents(), "en", count=90)  # type: ignore[arg-type]
    contexts = [p["context"] for article in tree["data"] for p in article["paragraphs"]]
    numbers = np.array([int(text.split()[3]) for text in contexts])
    assert len(alive) == 3000 and len(numbers) < 95
    assert 900 < numbers.mean() < 2100 and numbers.min() < 600 < 2400 < numbers.max()
    assert not (np.diff(numbers) > 0).all()


def test_traditional_particles_and_numerals_are_known() -> None:
    assert found("他是教授與作家，於2001年售出8.4萬億元。", CHINESE) == {
        ("教授", "phrase"),
        ("作家", "phrase"),
        ("2001年", "date"),
        ("8.4萬億", "number"),
    }
    assert ("8.4万亿", "number") in found("该国出口额达8.4万亿元人民币。", CHINESE)
    assert ("8月", "date") in found("这是一年中8月前形成的风暴。", CHINESE)


def test_a_price_is_no_year() -> None:
    assert ("$1500", "number") in found("He paid $1500 to the men.", ENGLISH)
    assert ("1500", "date") in found("He paid in 1500 for the men.", ENGLISH)
