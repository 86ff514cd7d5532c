"""Sentences out of paragraphs, for English and Chinese, by rules in linear time.

Only white space between two sentences is ever dropped. Splitting a sentence again gives that sentence, since
every rule looks no further back than the sentence's own start; but in English a cut may go through
brackets, and a Chinese stop in their first half then ends a sentence. A wrong split costs more than a missed
one (half sentences on both sides of a [SEP]), so doubtful stops do not split.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Literal

from albertine.errors import SettingsError
from albertine.text.abbreviations import BEFORE_NUMBER, NEVER_LAST, SENTENCE_STARTERS, SOMETIMES_LAST
from albertine.text.cleaning import HAN
from albertine.text.documents import Document
from albertine.text.formats import EMOJI

Language = Literal["en", "zh"]

RULES_VERSION = 5
"""Counts the changes of the rules below and of those by which files become documents, so that no corpus is
begun by one set and ended by another."""

_PRONOUN = re.compile(r"I(?:['’]|\s+(?!(?:in|of|and|or|to|by|for|from|at|on)\b)[a-z])")
"""I as who speaks, and no number: `No. I saw`, but `No. I of the series`."""
MAX_CHARACTERS: dict[str, int] = {"en": 1000, "zh": 500}

# Each pattern takes the whole run of stops, closers and space where it starts and cannot fail after the first
# character, so that a million dots cost one match and not a million tries.
_EN_STOP = re.compile(rf"[.!?…。！？]+[\"'”’»)\]}}」』）]*(?:\[\d{{1,3}}\])*(?:\s?{EMOJI})*\s*")
_ZH_STOP = re.compile(rf"[。！？!?…｡.]+[\"'”’」』）)】〕\]》〉]*(?:\[\d{{1,3}}\])*(?:\s?{EMOJI})*\s*")
_EMOJI = re.compile(EMOJI)

_CLOSERS = "\"'”’»)]}」』）】〕》〉"
_OPENERS = frozenset("\"'“‘«([{「『（《【¿¡_*")
_CONTINUES = frozenset(",;:)]}-–—.…!?%/=+&|<>，、；：。！？）」』”’》〉】〕～·")
_LETTER = r"[^\W\d_\u2e80-\u9fff]"
_LAST_WORD = re.compile(rf"(?:{_LETTER}\.)*{_LETTER}+(?:['’.]{_LETTER}+)*$")
_NEXT_WORD = re.compile(r"[A-Za-z]+")
_ROMAN = re.compile(r"[IVXLCM]+\b")
_ABBREVIATIONS = NEVER_LAST | BEFORE_NUMBER | SOMETIMES_LAST
_REMARKS = (("《", "》"), ("〈", "〉"), ("（", "）"), ("(", ")"), ("【", "】"), ("〔", "〕"), ("[", "]"))
_REMARK = 60
_BACK = 28
_QUOTE_WINDOW = 2000


def detect_language(text: str) -> Language:
    """`zh` if a fifth of the letters are Han characters, else `en`; looks at 20,000 characters."""
    sample = text[:20_000]
    han = len(HAN.findall(sample))
    letters = sum(map(str.isalpha, sample))
    return "zh" if han and han >= 0.2 * letters else "en"


def _begins_sentence(text: str, at: int) -> bool:
    found = _NEXT_WORD.match(text, at)
    if found is None:
        return False
    word = found.group()
    if len(word) == 1 and text[found.end() : found.end() + 1] == ".":
        return False  # an initial: J. A. Smith
    return word in SENTENCE_STARTERS or (
        len(word) > 1 and word.isupper() and word.capitalize() in SENTENCE_STARTERS
    )


def _uncapitalised(word: str, text: str, after: int) -> str:
    """`Mrs` for MRS where a word in capitals follows, without which LA, BP and MD are no abbreviations; `Fig`
    for FIG, which a number follows anyway."""
    known = word.capitalize()
    if not word.isupper():
        return word
    if known in BEFORE_NUMBER:
        return known
    following = _NEXT_WORD.match(text, after)
    in_capitals = following is not None and len(following.group()) > 1 and following.group().isupper()
    return known if in_capitals else word


def _full_stop_ends(text: str, start: int, stop: int, after: int) -> bool:
    """Whether the full stop at `stop` ends the sentence begun at `start`; the next word is at `after`."""
    begin = max(start, stop - _BACK)
    begin = max(begin, text.rfind(" ", begin, stop) + 1)
    word = text[begin:stop]
    if len(word) > 1 and word.isalpha() and word.isascii():
        known = _uncapitalised(word, text, after)
        if known not in _ABBREVIATIONS:
            # "IV. The fourth": the number of a chapter, if nothing stands before it
            return not (begin == start and _ROMAN.fullmatch(word))
        word = known
    elif found := _LAST_WORD.search(word):
        begin += found.start()
        word = found.group()
    else:
        # "1. First" and "12. Twelfth": the number of a list item, if nothing stands before it
        return not (stop - start <= 3 and text[start:stop].isdigit())
    return _abbreviation_ends(text, start, begin, word, after)


def _abbreviation_ends(text: str, start: int, begin: int, word: str, after: int) -> bool:
    """The rule for a stop after `word` at `begin`, which may be an abbreviation, an initial or an acronym."""
    if word in NEVER_LAST:
        return False
    initial = len(word) == 1
    if initial and begin > start and text[begin - 1].isdigit():
        return True  # Section 10a.
    if word in BEFORE_NUMBER and (text[after].isdigit() or _ROMAN.match(text, after)):
        return word in ("No", "no") and _PRONOUN.match(text, after) is not None
    if initial or "." in word:
        return begin > start and _begins_sentence(text, after)
    return word not in SOMETIMES_LAST or _begins_sentence(text, after)


def _cut_english(text: str, start: int, stop: int, end: int) -> int:
    """Where to cut after the stops and closers in `text[stop:end]`, 0 for nowhere."""
    if not text[end - 1].isspace() and _EMOJI.search(text, stop, end) is None:
        return _cut_chinese(text, start, stop, end) if text[stop] in "。！？" else 0  # 3.14, example.com
    after = end
    first = text[end]
    if first in _OPENERS:
        limit = min(len(text) - 1, end + 4)
        while text[after] in _OPENERS and after < limit:
            after += 1
        first = text[after]
    if first.islower() or first in _CONTINUES:
        return 0
    if text[stop] == "." and text[stop + 1] not in ".!?…" and not _full_stop_ends(text, start, stop, after):
        return 0
    return end


def _cut_chinese(text: str, start: int, stop: int, end: int) -> int:
    """Where to cut after the stops and closers in `text[stop:end]`, 0 for nowhere."""
    cut = _chinese_cut(text, start, stop, end)
    return 0 if cut and _within(text, start, cut) else cut


def _within(text: str, start: int, end: int) -> bool:
    """Whether `end` lies in a title or remark of at most 60 characters, begun after `start`."""
    begin = max(start, end - _REMARK)
    for opener, closer in _REMARKS:
        at = text.rfind(opener, begin, end)
        if at >= 0 and text.find(closer, at, end) < 0:
            close = text.find(closer, end, at + _REMARK)
            if close >= 0 and text.find(opener, end, close) < 0:
                return True
    return False


def _chinese_cut(text: str, start: int, stop: int, end: int) -> int:
    following = text[end]
    if end == stop + 1 and text[stop] == "。":  # nine cases of ten
        return 0 if following in _CONTINUES else end
    run = _EMOJI.sub("", text[stop:end]).rstrip()
    stops = run.rstrip(_CLOSERS + "0123456789[")
    closers = run[len(stops) :]
    if closers[:1] in ('"', "'") and not _closes(text, start, stop, closers[0]):
        end = stop + len(stops)  # a straight quote that opens the next sentence
        following, closers = closers[0], ""
    if following in _CONTINUES or (closers and following == "的"):
        return 0  # “……？”，他说 and “谁？”的问题
    full = any(mark in stops for mark in "。！？｡")
    if not full:
        return _cut_half_width(text, start, stop, end, stops, closers)
    if "》" in closers or "〉" in closers:
        return 0  # 《你是谁？》 is a title
    if any(mark in closers for mark in "）)】〕]") and "。" not in stops and "[" not in closers:
        return 0  # a remark（真的吗？）inside a sentence
    return end


def _cut_half_width(text: str, start: int, stop: int, end: int, stops: str, closers: str) -> int:
    """The rule for . ! ? and … in Chinese text, where they may belong to a foreign word."""
    spaced = text[end - 1].isspace()
    chinese_before = stop > start and ord(text[stop - 1]) >= 0x2E80
    if "!" in stops or "?" in stops:
        if chinese_before:
            return end
        return _cut_english(text, start, stop, end) if spaced else 0
    if stops == "." and chinese_before:
        return end if spaced and stop - start > 3 else 0  # 约翰.史密斯, 一. 总则
    if stops == ".":
        return _cut_english(text, start, stop, end) if spaced else 0
    # an ellipsis only trails off, unless a quotation ends with it
    return end if closers and closers[0] in "”’」』\"'" else 0


def _closes(text: str, start: int, stop: int, quote: str) -> bool:
    """Whether a straight quote after `stop` closes: an odd number of them stand before it in the sentence."""
    return text.count(quote, max(start, stop - _QUOTE_WINDOW), stop) % 2 == 1


_RULES: dict[str, tuple[re.Pattern[str], Callable[[str, int, int, int], int]]] = {
    "en": (_EN_STOP, _cut_english),
    "zh": (_ZH_STOP, _cut_chinese),
}


def split_sentences(paragraph: str, language: Language, *, max_characters: int | None = None) -> list[str]:
    """The sentences of one paragraph, without white space at their ends.

    Args:
        paragraph: text; line breaks in it count as spaces.
        language: whose rules to use; either finds the other's unmistakable stops.
        max_characters: cut longer sentences at a space or comma, or anywhere if there is none; default
            `MAX_CHARACTERS` (1000 for English, 500 for Chinese).

    Returns:
        Sentences none of which is empty; joined, they hold every non-space character of the paragraph in
        order.
    """
    limit = MAX_CHARACTERS[language] if max_characters is None else max_characters
    if limit < 16:
        raise SettingsError(f"the longest sentence must be at least 16 characters, not {limit}")
    text = paragraph.strip()
    if not text:
        return []
    pattern, rule = _RULES[language]
    pieces: list[str] = []
    start, last = 0, len(text)
    for match in pattern.finditer(text):
        stop, end = match.span()
        if end < last and (cut := rule(text, start, stop, end)):
            pieces.append(text[start:cut].rstrip())
            start = cut
    pieces.append(text[start:])
    if last > limit and any(len(piece) > limit for piece in pieces):
        return [part for piece in pieces for part in _cut_long(piece, limit, language)]
    return pieces


def _cut_long(sentence: str, limit: int, language: str) -> list[str]:
    """Parts of at most `limit` characters, cut in their second half after the best mark there."""
    parts = []
    start = 0
    while len(sentence) - start > limit:
        end = _break(sentence, start + limit // 2, start + limit, language)
        if part := sentence[start:end].strip():
            parts.append(part)
        start = end
    if part := sentence[start:].strip():
        parts.append(part)
    return parts


def _break(text: str, low: int, high: int, language: str) -> int:
    for marks in ("；;", "，,", "、：: ") if language == "zh" else ("; ", " "):
        places = [_last(text, mark, low, high) for mark in (marks if language == "zh" else [marks])]
        if (best := max(places)) >= 0:
            return best + 1
    end = high
    while end > high - 16 and (unicodedata.combining(text[end]) or text[end] == "\u200d"):
        end -= 1  # keep an accent with its letter
    return end


def _last(text: str, mark: str, low: int, high: int) -> int:
    """Where a mark stands last that is not one inside a number; -1 if nowhere."""
    at = text.rfind(mark, low, high)
    while at > 0 and mark in ",:" and text[at - 1].isdigit() and text[at + 1 : at + 2].isdigit():
        at = text.rfind(mark, low, at)
    return at


def document_sentences(document: Document, language: Language) -> list[str]:
    """The sentences of a document in order; one already split keeps its own, cut only where over-long."""
    if not document.presplit:
        return [sentence for p in document.paragraphs for sentence in split_sentences(p, language)]
    limit = MAX_CHARACTERS[language]
    return [part for line in document.paragraphs for part in _cut_long(line, limit, language)]
