"""Questions about passages that nobody had to write: a sentence of a passage with a part taken out of it.

What is learned from them is to find the sentence that a question is about, and the part that it lacks, which
a small encoder does not learn from a few thousand questions of people (docs/decisions/032).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from albertine.core.randomness import generator
from albertine.text.cleaning import well_formed
from albertine.text.cloze_rules import CHINESE, ENGLISH, SHARES, Chooser, ask_chinese, ask_english, gaps
from albertine.text.documents import Document
from albertine.text.sentences import Language, split_sentences

RULES = {"en": (ENGLISH, ask_english), "zh": (CHINESE, ask_chinese)}
PASSAGE = {"en": (360, 660), "zh": (120, 300)}
"""Characters of a passage: it ends with the first sentence behind a length drawn from these."""
SENTENCE = {"en": 48, "zh": 14}
"""Least characters of a sentence that is asked about."""
EACH = 3
"""Most questions about a passage, each about another of its sentences."""
SPARE = 2
"""Passages kept for each that is needed: not all can be asked about."""


def cloze_questions(
    documents: Iterable[Document], language: Language, *, count: int, seed: int = 0
) -> dict[str, Any]:
    """Questions in the form of SQuAD's files, `count` of them or as many as the text gives.

    Only so many passages are in memory as they need, drawn from all of the text.
    """
    draw = Chooser(generator(seed, "cloze"))
    told: list[dict[str, Any]] = []
    made = 0
    for group in _drawn(_passages(documents, language, draw), SPARE * count // EACH + 1, draw):
        if made >= count:
            break
        asked = _asked_of(group, language, draw)[: count - made]
        if asked:
            named = [{"id": str(made + i), **one} for i, one in enumerate(asked)]
            between = " " if language == "en" else ""
            told.append({"title": "", "paragraphs": [{"context": between.join(group), "qas": named}]})
            made += len(asked)
    return {"version": "1.1", "data": told}


def _passages(documents: Iterable[Document], language: Language, draw: Chooser) -> Iterator[list[str]]:
    """Sentences that stand together and are long enough: of one paragraph, or of short ones that follow each
    other."""
    least, most = PASSAGE[language]
    for document in documents:
        group: list[str] = []
        wanted = draw.between(least, most)
        for paragraph in document.paragraphs:
            if len(paragraph) >= least:
                group = []
            for sentence in split_sentences(well_formed(paragraph), language):
                group.append(sentence)
                if (size := sum(map(len, group))) >= wanted:
                    if size <= 1.5 * most:
                        yield group
                    group, wanted = [], draw.between(least, most)


def _drawn(passages: Iterable[list[str]], count: int, draw: Chooser) -> list[list[str]]:
    """So many of them, each as likely as any other, in any order (Vitter 1985, algorithm R)."""
    kept: list[list[str]] = []
    for number, passage in enumerate(passages):
        if number < count:
            kept.append(passage)
        elif (place := draw.between(0, number)) < count:
            kept[place] = passage
    draw.numbers.shuffle(kept)  # type: ignore[arg-type]
    return kept


def _asked_of(group: Sequence[str], language: Language, draw: Chooser) -> list[dict[str, Any]]:
    """Questions about a passage, and their answers with their places."""
    patterns, ask = RULES[language]
    between = len(" ") if language == "en" else 0
    places = [sum(len(s) + between for s in group[:i]) for i in range(len(group))]
    found = []
    for number in draw.numbers.permutation(len(group))[:EACH].tolist():
        sentence, at = group[number], places[number]
        among = gaps(sentence, patterns)
        if len(sentence) < SENTENCE[language] or not among:
            continue
        kind = draw.one(
            [k for k, share in SHARES.items() for _ in range(share) if k in {s.kind for s in among}]
        )
        gap = draw.one([s for s in among if s.kind == kind])
        if (text := ask(sentence, gap, draw)) is not None:
            answer = {"text": sentence[gap.begin : gap.end], "answer_start": at + gap.begin}
            found.append({"question": text, "answers": [answer]})
    return found
