"""Cloze questions for question answering, generated from plain English and Chinese text without annotation.

A question is a sentence of a passage whose answer is replaced by a question word (after Lewis et al. 2019,
arXiv 1906.04980, who find answers with a tagger; here regular expressions do). Other words are dropped at
random. Training on them teaches a small encoder to find the sentence and the span that a question refers to,
which a few thousand human questions do not (docs/decisions/032).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from albertine.core.randomness import generator
from albertine.text.cleaning import well_formed
from albertine.text.documents import Document
from albertine.text.sentences import Language, split_sentences

T = TypeVar("T")

# fmt: off
STOP_WORDS = frozenset((
    "a", "about", "after", "against", "also", "an", "and", "are", "as", "at", "be", "been", "before",
    "being", "between", "but", "by", "can", "could", "during", "for", "from", "had", "has", "have", "he",
    "her", "his", "if", "in", "into", "is", "it", "its", "may", "might", "no", "nor", "not", "of", "on",
    "or", "out", "over", "she", "so", "such", "than", "that", "the", "their", "then", "there", "these",
    "they", "this", "those", "through", "to", "under", "up", "was", "were", "when", "where", "which",
    "while", "who", "whom", "whose", "will", "with", "would",
))
# fmt: on
"""Function words: never answers, and dropped from questions more often."""
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
NUMBERS = "two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|hundreds|thousands"
NAME = r"[A-Z](?:[\w.-]|['’](?=[A-Z]))*\w"
WORD = rf"(?!(?:{'|'.join(sorted(STOP_WORDS))})\b)[a-z][a-z-]+"
AFTER = ("a", "an", "the", "of", "by", "for", "as", "with", "in")
ENGLISH = {
    "date": rf"(?<![$£€])\b(?:(?:{MONTHS})(?: \d{{1,2}},)? \d{{4}}|\d{{1,2}} (?:{MONTHS}) \d{{4}}"
    rf"|(?:{MONTHS}) \d{{1,2}}|1\d{{3}}|20[012]\d)\b(?!\.\d|%)",
    "number": r"(?<![\w.,-])\$?\d[\d,]*(?:\.\d+)?(?: (?:million|billion|percent))?%?(?![\w-])"
    rf"|\b(?:{NUMBERS})\b",
    "name": rf"\b{NAME}(?: (?:(?:of|the|and|de|van|von) (?:the )?)?{NAME}){{0,5}}",
    "phrase": "(?:" + "|".join(rf"(?<= {word} )" for word in AFTER) + rf"){WORD}(?: {WORD}){{0,3}}",
}
_HAN, _EDGES = "\u4e00-\u9fff", "的是在和与與及于於为為了被由从從到对對把而或以"
CHINESE = {
    "date": r"(?:公元前?)?\d{1,4}年(?:\d{1,2}月(?:\d{1,2}[日号號])?)?|\d{1,2}月(?:\d{1,2}[日号號])?",
    "number": r"(?<![\d.])\d[\d,.]*[十百千万萬亿億]*[%％]?",
    "name": r"《[^《》]{1,20}》|(?<=“)[^“”，。]{2,12}(?=”)|[A-Z][A-Za-z .'-]{2,30}",
    "phrase": rf"(?<=[{_EDGES}叫、])(?!者|其)(?:(?![{_EDGES}])[{_HAN}]){{2,8}}(?=[{_EDGES}，。；：、（]|$)",
}
"""Patterns of answers by kind; where matches overlap, the kind listed first applies."""
SHARES = {"date": 2, "number": 2, "name": 4, "phrase": 2}
"""Relative frequencies of the kinds of answers, if a sentence has all of them."""
DROP_WORD, DROP_STOP_WORD, DROP_PAIR = 0.13, 0.35, 0.25
"""Probabilities of dropping words, stop words and pairs of Chinese characters from a question."""


class Gap(NamedTuple):
    """A span of a sentence that can be an answer."""

    begin: int
    end: int
    kind: str


class RandomChooser:
    """Random choices from a NumPy generator."""

    def __init__(self, numbers: np.random.Generator) -> None:
        self.numbers = numbers

    def chance(self, share: float) -> bool:
        return bool(self.numbers.random() < share)

    def between(self, least: int, most: int) -> int:
        return int(self.numbers.integers(least, most + 1))

    def one(self, among: Sequence[T]) -> T:
        return among[int(self.numbers.integers(len(among)))]


def find_gaps(sentence: str, patterns: Mapping[str, str]) -> list[Gap]:
    """All possible answers in a sentence."""
    found: list[Gap] = []
    for kind, pattern in patterns.items():
        for match in re.finditer(pattern, sentence):
            begin, text = match.start(), match[0].rstrip(" .,")
            end, (first, *others) = begin + len(text), text.split(" ")
            if (
                kind == "name"
                and begin == 0
                and (not others or first.lower() in STOP_WORDS)
                and first.isascii()
            ):
                continue  # capitalised only because it starts the sentence
            taken = any(begin < one.end and one.begin < end for one in found)
            if text and text.lower() not in STOP_WORDS and not taken:
                found.append(Gap(begin, end, kind))
    return found


def english_question(sentence: str, gap: Gap, draw: RandomChooser) -> str | None:
    """A question whose answer is the gap; None if fewer than four other words remain."""
    word, replaces_preposition = _english_word(sentence, gap, draw)
    left, right = sentence[: gap.begin].split(), sentence[gap.end :].split()
    if left and (replaces_preposition or left[-1].lower() in ("a", "an", "the")):
        left.pop()
    count = draw.between(6, 13)
    right = right[: max(1, count - min(len(left), draw.between(2, count)))]
    left = left[max(0, len(left) - count + len(right)) :]
    before, behind = _fewer(left, draw), _fewer(right, draw, first=word == "how many")
    if len(before) + len(behind) < 4:
        return None
    auxiliary = draw.one([[], [], ["did"], ["was"], ["is"], ["does"]])
    if word == "how many":  # "how many" must precede the counted noun
        words = draw.one([[word, *behind, *auxiliary, *before]] * 2 + [[*before, word, *behind]])
    else:
        front, turned, within = (
            [word, *auxiliary, *before, *behind],
            [word, *behind, *before],
            [*before, word],
        )
        words = draw.one([front, front, turned, [*within, *behind]])
    question = " ".join(words)
    return question[0].upper() + question[1:] + "?"


def _english_word(sentence: str, gap: Gap, draw: RandomChooser) -> tuple[str, bool]:
    """The question word, and whether it replaces the preposition before the answer."""
    text, before = sentence[gap.begin : gap.end], sentence[: gap.begin].split()[-1:]
    last = before[0].lower() if before else ""
    if gap.kind == "date":
        year = ["when", "when", "what year", "in what year"]
        return draw.one(year if text.isdigit() else ["when", "on what date"]), last in ("in", "on")
    if gap.kind == "number":
        if text.startswith("$"):
            return "how much", False
        return ("what percentage" if text.endswith(("%", "percent")) else "how many"), False
    if last in ("in", "at", "near", "from"):
        return draw.one(["where", "where", "what place", "in which city", "what country", "what"]), True
    if gap.kind == "phrase":
        return draw.one(["what", "what", "what", "which", "what kind of", "what type of"]), False
    if last == "by" and text.count(" ") < 3:
        return draw.one(["who", "by whom", "who"]), True
    if text.count(" ") in (1, 2) and " of " not in text:
        return draw.one(["who", "who", "who", "what", "which person"]), False
    return draw.one(["what", "which", "who", "what"]), False


def _fewer(words: Sequence[str], draw: RandomChooser, *, first: bool = False) -> list[str]:
    """Drop words at random; swap two neighbours at random.

    Args:
        first: keep the first word in place.
    """
    left = []
    for number, word in enumerate(word.strip('.,;:()"“”') for word in words):
        stays = first and number == 0
        if word and (stays or not draw.chance(DROP_STOP_WORD if word.lower() in STOP_WORDS else DROP_WORD)):
            left.append(word)
    if len(left) > 3 and draw.chance(0.3):
        at = draw.between(int(first), len(left) - 2)
        left[at], left[at + 1] = left[at + 1], left[at]
    return left


def chinese_question(sentence: str, gap: Gap, draw: RandomChooser) -> str | None:
    """As `english_question`: the question word takes the answer's place in its clause, a neighbouring clause
    may be added, and pairs of characters are dropped."""
    clauses = [(m.start(), m.end()) for m in re.finditer("[^，；：,;。！？]+", sentence)]
    at = next((i for i, (begin, end) in enumerate(clauses) if begin <= gap.begin and gap.end <= end), None)
    if at is None:
        return None
    begin, end = clauses[at]
    left, right = sentence[begin : gap.begin], sentence[gap.end : end]
    question = _shorter(left, draw) + _chinese_word(sentence, gap, draw) + _shorter(right, draw)
    if len(clauses) > 1 and (len(left + right) < 8 or draw.chance(0.5)):
        other = _shorter(sentence[slice(*clauses[at - 1 if at else 1])], draw)
        question = draw.one([f"{other}，{question}", f"{other}，{question}", f"{question}，{other}"])
    return question + "？" if len(question.replace("，", "")) >= 10 else None


def _chinese_word(sentence: str, gap: Gap, draw: RandomChooser) -> str:
    text, last = sentence[gap.begin : gap.end], sentence[: gap.begin][-1:]
    if gap.kind == "date":
        return draw.one(["什么时候", "何时", {"年": "哪一年", "月": "哪个月"}.get(text[-1], "哪一天")])
    if gap.kind == "number":
        return draw.one(["多少", "多少", "几"])
    if last in ("在", "于", "於", "到", "从", "從"):
        return draw.one(["哪里", "什么地方", "哪儿", "什么"])
    if last in ("由", "被"):
        return draw.one(["谁", "什么人", "谁"])
    if text.startswith("《"):
        return draw.one(["什么", "哪部作品", "什么书", "哪个"])
    return draw.one(["什么", "什么", "谁", "哪个", "哪些"])


def _shorter(text: str, draw: RandomChooser) -> str:
    """Drop pairs of characters, often words, at random."""
    pairs = [text[i : i + 2] for i in range(0, len(text), 2)]
    return "".join(pair for pair in pairs if not draw.chance(DROP_PAIR))


RULES = {"en": (ENGLISH, english_question), "zh": (CHINESE, chinese_question)}
PASSAGE_CHARACTERS = {"en": (360, 660), "zh": (120, 300)}
"""Range of passage lengths in characters: a passage ends with the sentence that reaches the drawn length."""
SENTENCE_CHARACTERS = {"en": 48, "zh": 14}
"""Minimum characters of a sentence for a question."""
MAX_QUESTIONS = 3
"""Per passage, each about another of its sentences."""
SPARE_PASSAGES = 2
"""Passages sampled per passage needed, since some give no question."""


def cloze_questions(
    documents: Iterable[Document], language: Language, *, count: int, seed: int = 0
) -> dict[str, Any]:
    """Up to `count` questions in SQuAD's JSON format.

    Passages are sampled uniformly from all of the text; only the sample is in memory.
    """
    draw = RandomChooser(generator(seed, "cloze"))
    articles: list[dict[str, Any]] = []
    made = 0
    for group in _sample(
        _passages(documents, language, draw), SPARE_PASSAGES * count // MAX_QUESTIONS + 1, draw
    ):
        if made >= count:
            break
        questions = _questions(group, language, draw)[: count - made]
        if questions:
            numbered = [{"id": str(made + i), **one} for i, one in enumerate(questions)]
            between = " " if language == "en" else ""
            articles.append({"title": "", "paragraphs": [{"context": between.join(group), "qas": numbered}]})
            made += len(questions)
    return {"version": "1.1", "data": articles}


def _passages(documents: Iterable[Document], language: Language, draw: RandomChooser) -> Iterator[list[str]]:
    """Passages as lists of sentences: from one paragraph, or from consecutive short paragraphs."""
    least, most = PASSAGE_CHARACTERS[language]
    for document in documents:
        group: list[str] = []
        length = draw.between(least, most)
        for paragraph in document.paragraphs:
            if len(paragraph) >= least:
                group = []
            for sentence in split_sentences(well_formed(paragraph), language):
                group.append(sentence)
                if (size := sum(map(len, group))) >= length:
                    if size <= 1.5 * most:
                        yield group
                    group, length = [], draw.between(least, most)


def _sample(passages: Iterable[list[str]], count: int, draw: RandomChooser) -> list[list[str]]:
    """A uniform sample of `count` passages in random order (reservoir sampling, Vitter 1985, algorithm R)."""
    kept: list[list[str]] = []
    for number, passage in enumerate(passages):
        if number < count:
            kept.append(passage)
        elif (place := draw.between(0, number)) < count:
            kept[place] = passage
    draw.numbers.shuffle(kept)  # type: ignore[arg-type]
    return kept


def _questions(group: Sequence[str], language: Language, draw: RandomChooser) -> list[dict[str, Any]]:
    """Questions about a passage and their answers with character offsets, as SQuAD's `qas`."""
    patterns, make_question = RULES[language]
    between = len(" ") if language == "en" else 0
    places = [sum(len(s) + between for s in group[:i]) for i in range(len(group))]
    found = []
    for number in draw.numbers.permutation(len(group))[:MAX_QUESTIONS].tolist():
        sentence, at = group[number], places[number]
        among = find_gaps(sentence, patterns)
        if len(sentence) < SENTENCE_CHARACTERS[language] or not among:
            continue
        kind = draw.one(
            [k for k, share in SHARES.items() for _ in range(share) if k in {s.kind for s in among}]
        )
        gap = draw.one([s for s in among if s.kind == kind])
        if (text := make_question(sentence, gap, draw)) is not None:
            answer = {"text": sentence[gap.begin : gap.end], "answer_start": at + gap.begin}
            found.append({"question": text, "answers": [answer]})
    return found
