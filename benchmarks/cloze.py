"""Questions about passages that nobody had to write: a sentence of a passage with a span taken out of it.

    python -m benchmarks.cloze ../shared/data/en_wiki_2018 --questions 110000 --output cloze.json

Writes a file of SQuAD's form for `albertine finetune task.kind=answers`. A question keeps some of the words
around its answer, mostly in their order, behind a question word that fits the kind of answer (after Lewis et
al. 2019, arXiv 1906.04980, whose rules find entities with a tagger; here a few patterns of English do). What
is learned from them is to find the sentence that a question is about, and the span that it lacks.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from albertine.text.documents import read_documents
from albertine.text.sentences import split_sentences

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
AFTER = ("a", "an", "the", "of", "by", "for", "as", "with", "in")
KINDS = {
    "date": rf"\b(?:(?:{MONTHS})(?: \d{{1,2}},)? \d{{4}}|\d{{1,2}} (?:{MONTHS}) \d{{4}}"
    rf"|(?:{MONTHS}) \d{{1,2}}|1\d{{3}}|20[012]\d)\b",
    "number": r"(?<![\d,.])\$?\d[\d,]*(?:\.\d+)?(?: (?:million|billion|percent))?%?"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|hundreds|thousands)\b",
    "name": r"\b[A-Z][\w'’.-]*\w(?: (?:(?:of|the|and|de|van|von) (?:the )?)?[A-Z][\w'’.-]*\w){0,5}",
    "phrase": "(?:" + "|".join(rf"(?<= {word} )" for word in AFTER) + r")[a-z][a-z-]+(?: [a-z][a-z-]+){0,3}",
}
"""Patterns of answers, by kind."""
SHARES = {"date": 2, "number": 2, "name": 4, "phrase": 2}
"""How often each kind is asked for where a sentence has all of them."""
# fmt: off
SMALL = frozenset((
    "a", "about", "after", "against", "also", "an", "and", "are", "as", "at", "be", "been", "before",
    "being", "between", "but", "by", "can", "could", "during", "for", "from", "had", "has", "have", "he",
    "her", "his", "if", "in", "into", "is", "it", "its", "may", "might", "no", "nor", "not", "of", "on",
    "or", "out", "over", "she", "so", "such", "than", "that", "the", "their", "then", "there", "these",
    "they", "this", "those", "through", "to", "under", "up", "was", "were", "when", "where", "which",
    "while", "who", "whom", "whose", "will", "with", "would",
))
# fmt: on
"""Words that say little of what a sentence is about."""
PASSAGE, SENTENCE, QUESTION = (60, 110), 8, (6, 13)
"""Words of a passage, least of a sentence that is asked about, and words around an answer."""
A_PASSAGE = 3
"""Most questions about one."""


class Span(NamedTuple):
    """A part of a text that can be an answer."""

    begin: int
    end: int
    kind: str


def spans(sentence: str) -> list[Span]:
    """All that can be asked for in a sentence."""
    found: list[Span] = []
    for kind, pattern in KINDS.items():
        for match in re.finditer(pattern, sentence):
            begin, text = match.start(), match[0]
            if kind == "phrase":
                text = _until_small(text)
            first = text.split(" ")[0]
            opening = begin == 0 and (first == text or first.lower() in SMALL)  # a capital that means nothing
            taken = kind != "phrase" and any(begin < s.end and s.begin < begin + len(text) for s in found)
            if len(text) > (3 if kind == "phrase" else 0) and not opening and not taken:
                found.append(Span(begin, begin + len(text), kind))
    return [s for s in found if sentence[s.begin : s.end].lower() not in SMALL]


def _until_small(phrase: str) -> str:
    words = phrase.split(" ")
    end = next((i for i, word in enumerate(words) if word in SMALL), len(words))
    return " ".join(words[:end])


def question_word(sentence: str, span: Span, draw: random.Random) -> tuple[str, bool]:
    """What to ask with, and whether it says what the word before the answer did."""
    text, before = sentence[span.begin : span.end], sentence[: span.begin].split()[-1:]
    last = before[0].lower() if before else ""
    if span.kind == "date":
        year = ["when", "what year", "in what year", "when"]
        word = draw.choice(year if text.isdigit() else ["when", "on what date", "what date"])
        return word, last in ("in", "on")
    if span.kind == "number":
        if text.startswith("$"):
            return "how much", False
        return ("what percentage" if text.endswith(("%", "percent")) else "how many"), False
    if last in ("in", "at", "near", "from"):
        return draw.choice(["where", "where", "what place", "in which city", "what country", "what"]), True
    if span.kind == "phrase":
        return draw.choice(["what", "what", "what", "which", "what kind of", "what type of"]), False
    if last == "by" and text.count(" ") < 3:
        return draw.choice(["who", "by whom", "who"]), True
    if text.count(" ") in (1, 2) and " of " not in text:
        return draw.choice(["who", "who", "who", "what", "which person"]), False
    return draw.choice(["what", "which", "who", "what"]), False


def question(sentence: str, span: Span, draw: random.Random) -> str | None:
    """A question that the span answers; None where too little is left to ask with."""
    word, instead = question_word(sentence, span, draw)
    left, right = sentence[: span.begin].split(), sentence[span.end :].split()
    if left and (instead or left[-1].lower() in ("a", "an", "the")):
        left.pop()
    count = draw.randint(*QUESTION)
    after = right[: count - min(len(left), draw.randint(2, count))]
    around = left[max(0, len(left) - count + len(after)) :], after
    before, behind = (_fewer(words, draw, keep=word == "how many" and words is after) for words in around)
    if len(before) + len(behind) < 4:
        return None
    helping = draw.choice([[], [], ["did"], ["was"], ["is"], ["does"]])
    order = draw.random()
    if word == "how many":  # of what stands behind it
        words = [word, *behind, *helping, *before] if order < 0.7 else [*before, word, *behind]
    elif order < 0.55:
        words = [word, *helping, *before, *behind]
    else:
        words = [word, *behind, *before] if order < 0.75 else [*before, word, *behind]
    asked = " ".join(words)
    return asked[0].upper() + asked[1:] + "?"


def _fewer(words: Sequence[str], draw: random.Random, *, keep: bool) -> list[str]:
    """Some of the words are left out, two may change places: who asks does not quote.

    Args:
        keep: the first word stays.
    """
    bare = [word.strip('.,;:()"“”') for word in words]
    chances = [0.35 if word.lower() in SMALL else 0.13 for word in bare]
    pairs = zip(bare, chances, strict=True)
    left = [w for i, (w, chance) in enumerate(pairs) if w and ((keep and i == 0) or draw.random() >= chance)]
    if len(left) > 3 and draw.random() < 0.3:
        i = draw.randrange(len(left) - 1)
        left[i], left[i + 1] = left[i + 1], left[i]
    return left


def passages(sentences: Sequence[str], draw: random.Random) -> Iterator[list[str]]:
    """Sentences that stand together, for passages of some sixty to a hundred words."""
    group: list[str] = []
    wanted = draw.randint(*PASSAGE)
    for sentence in sentences:
        group.append(sentence)
        size = sum(len(s.split()) for s in group)
        if size >= wanted:
            if size <= 1.5 * PASSAGE[1]:
                yield group
            group, wanted = [], draw.randint(*PASSAGE)


def asked_of(group: Sequence[str], draw: random.Random) -> list[dict[str, Any]]:
    """Questions about a passage and their answers, as SQuAD has them, each about another sentence."""
    places, at = [], 0
    for sentence in group:
        places.append((at, sentence))
        at += len(sentence) + 1
    draw.shuffle(places)
    found = []
    for at, sentence in places[:A_PASSAGE]:
        among = spans(sentence)
        if len(sentence.split()) < SENTENCE or not among:
            continue
        kinds = [kind for kind in SHARES if any(s.kind == kind for s in among)]
        [kind] = draw.choices(kinds, [SHARES[k] for k in kinds])
        span = draw.choice([s for s in among if s.kind == kind])
        if (text := question(sentence, span, draw)) is not None:
            answer = {"text": sentence[span.begin : span.end], "answer_start": at + span.begin}
            found.append({"question": text, "answers": [answer]})
    return found


def questions(paragraphs: Iterable[str], wanted: int, seed: int) -> dict[str, Any]:
    """A tree of SQuAD's form with so many questions, or as many as the paragraphs give."""
    draw = random.Random(seed)
    order = [text for text in paragraphs if len(text.split()) >= PASSAGE[0]]
    draw.shuffle(order)
    told: list[dict[str, Any]] = []
    count = 0
    for paragraph in order:
        for group in passages(split_sentences(paragraph, "en"), draw):
            if count >= wanted:
                break
            if asked := asked_of(group, draw)[: wanted - count]:
                named = [{"id": str(count + i), **one} for i, one in enumerate(asked)]
                told.append({"title": "", "paragraphs": [{"context": " ".join(group), "qas": named}]})
                count += len(asked)
    return {"version": "1.1", "data": told}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path, nargs="+", help="English text: files and folders")
    parser.add_argument("--questions", type=int, default=110_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    read = read_documents(given.text, on_file=lambda report: None)
    tree = questions((p for document in read for p in document.paragraphs), given.questions, given.seed)
    given.output.write_text(json.dumps(tree, ensure_ascii=False), encoding="utf-8")
    count = sum(len(p["qas"]) for article in tree["data"] for p in article["paragraphs"])
    print(f"{count:,} questions about {len(tree['data']):,} passages: {given.output}")


if __name__ == "__main__":
    main()
