"""Split paragraphs into sentences by rules in linear time, for English and Chinese.

Only white space between sentences is dropped. Splitting a sentence again returns it unchanged, since no rule
looks back beyond the start of the sentence; except that an English split may go through brackets, where a
Chinese full stop then ends a sentence. A wrong split costs more than a missed one (half sentences on both
sides of a [SEP]), so doubtful stops do not split.
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
"""Version of the rules below and of those that read documents from files. Increase it with every change, so
that an unfinished corpus is not continued with other rules."""

_PRONOUN = re.compile(r"I(?:['’]|\s+(?!(?:in|of|and|or|to|by|for|from|at|on)\b)[a-z])")
"""The pronoun I and not a Roman numeral: `No. I saw`, but `No. I of the series`."""
MAX_CHARACTERS: dict[str, int] = {"en": 1000, "zh": 500}

# Each pattern matches the whole run of stops, closers and space and cannot fail after the first character, so
# that a million dots take one match and not a million attempts.
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
_BRACKETS = (("《", "》"), ("〈", "〉"), ("（", "）"), ("(", ")"), ("【", "】"), ("〔", "〕"), ("[", "]"))
_MAX_REMARK = 60
_MAX_ABBREVIATION = 28
_QUOTE_WINDOW = 2000


def detect_language(text: str) -> Language:
    """`zh` if a fifth of the letters are Chinese characters, else `en`; from the first 20,000 characters."""
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
    """`Mrs` for MRS if the next word is in capitals too (else LA, BP and MD are not abbreviations); `Fig` for
    FIG in any case, since it needs a number after it."""
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
    begin = max(start, stop - _MAX_ABBREVIATION)
    begin = max(begin, text.rfind(" ", begin, stop) + 1)
    word = text[begin:stop]
    if len(word) > 1 and word.isalpha() and word.isascii():
        known = _uncapitalised(word, text, after)
        if known not in _ABBREVIATIONS:
            # "IV. The fourth": the number of a chapter, if it begins the sentence
            return not (begin == start and _ROMAN.fullmatch(word))
        word = known
    elif found := _LAST_WORD.search(word):
        begin += found.start()
        word = found.group()
    else:
        # "1. First" and "12. Twelfth": the number of a list item, if it begins the sentence
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


def _split_english(text: str, start: int, stop: int, end: int) -> int:
    """Where to split after the stops and closers in `text[stop:end]`; 0: not."""
    if not text[end - 1].isspace() and _EMOJI.search(text, stop, end) is None:
        return _split_chinese(text, start, stop, end) if text[stop] in "。！？" else 0  # 3.14, example.com
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


def _split_chinese(text: str, start: int, stop: int, end: int) -> int:
    """Where to split after the stops and closers in `text[stop:end]`; 0: not."""
    cut = _chinese_split(text, start, stop, end)
    return 0 if cut and _inside_brackets(text, start, cut) else cut


def _inside_brackets(text: str, start: int, end: int) -> bool:
    """Whether `end` is inside brackets of at most 60 characters that open after `start`."""
    begin = max(start, end - _MAX_REMARK)
    for opener, closer in _BRACKETS:
        at = text.rfind(opener, begin, end)
        if at >= 0 and text.find(closer, at, end) < 0:
            close = text.find(closer, end, at + _MAX_REMARK)
            if close >= 0 and text.find(opener, end, close) < 0:
                return True
    return False


def _chinese_split(text: str, start: int, stop: int, end: int) -> int:
    following = text[end]
    if end == stop + 1 and text[stop] == "。":  # 90 % of cases
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
        return _split_half_width(text, start, stop, end, stops, closers)
    if "》" in closers or "〉" in closers:
        return 0  # 《你是谁？》 is a title
    if any(mark in closers for mark in "）)】〕]") and "。" not in stops and "[" not in closers:
        return 0  # a remark（真的吗？）inside a sentence
    return end


def _split_half_width(text: str, start: int, stop: int, end: int, stops: str, closers: str) -> int:
    """The rule for . ! ? and … in Chinese text, where they may be part of a foreign word."""
    spaced = text[end - 1].isspace()
    chinese_before = stop > start and ord(text[stop - 1]) >= 0x2E80
    if "!" in stops or "?" in stops:
        if chinese_before:
            return end
        return _split_english(text, start, stop, end) if spaced else 0
    if stops == "." and chinese_before:
        return end if spaced and stop - start > 3 else 0  # 约翰.史密斯, 一. 总则
    if stops == ".":
        return _split_english(text, start, stop, end) if spaced else 0
    # an ellipsis does not end a sentence, unless a quotation ends with it
    return end if closers and closers[0] in "”’」』\"'" else 0


def _closes(text: str, start: int, stop: int, quote: str) -> bool:
    """Whether a straight quote after `stop` is a closing one: an odd number precede it in the sentence."""
    return text.count(quote, max(start, stop - _QUOTE_WINDOW), stop) % 2 == 1


_RULES: dict[str, tuple[re.Pattern[str], Callable[[str, int, int, int], int]]] = {
    "en": (_EN_STOP, _split_english),
    "zh": (_ZH_STOP, _split_chinese),
}


def split_sentences(paragraph: str, language: Language, *, max_characters: int | None = None) -> list[str]:
    """The sentences of one paragraph, without white space at their ends.

    Args:
        paragraph: text; line breaks count as spaces.
        language: which rules to use; both split at unambiguous stops of the other language.
        max_characters: split longer sentences at a space or comma, or anywhere if there is none; default
            `MAX_CHARACTERS` (1000 for English, 500 for Chinese).

    Returns:
        Non-empty sentences, which together have all non-space characters of the paragraph in order.
    """
    limit = MAX_CHARACTERS[language] if max_characters is None else max_characters
    if limit < 16:
        raise SettingsError(f"the longest sentence must be at least 16 characters, not {limit}")
    text = paragraph.strip()
    if not text:
        return []
    pattern, rule = _RULES[language]
    sentences: list[str] = []
    start, last = 0, len(text)
    for match in pattern.finditer(text):
        stop, end = match.span()
        if end < last and (cut := rule(text, start, stop, end)):
            sentences.append(text[start:cut].rstrip())
            start = cut
    sentences.append(text[start:])
    if last > limit and any(len(sentence) > limit for sentence in sentences):
        return [part for sentence in sentences for part in _split_long(sentence, limit, language)]
    return sentences


def _split_long(sentence: str, limit: int, language: str) -> list[str]:
    """Parts of at most `limit` characters, each split in its second half after the best mark there."""
    parts = []
    start = 0
    while len(sentence) - start > limit:
        end = _split_position(sentence, start + limit // 2, start + limit, language)
        if part := sentence[start:end].strip():
            parts.append(part)
        start = end
    if part := sentence[start:].strip():
        parts.append(part)
    return parts


def _split_position(text: str, low: int, high: int, language: str) -> int:
    for marks in ("；;", "，,", "、：: ") if language == "zh" else ("; ", " "):
        places = [_last_index(text, mark, low, high) for mark in (marks if language == "zh" else [marks])]
        if (best := max(places)) >= 0:
            return best + 1
    end = high
    while end > high - 16 and (unicodedata.combining(text[end]) or text[end] == "\u200d"):
        end -= 1  # keep an accent with its letter
    return end


def _last_index(text: str, mark: str, low: int, high: int) -> int:
    """Last index of a mark that is not inside a number; -1 if there is none."""
    at = text.rfind(mark, low, high)
    while at > 0 and mark in ",:" and text[at - 1].isdigit() and text[at + 1 : at + 2].isdigit():
        at = text.rfind(mark, low, at)
    return at


def document_sentences(document: Document, language: Language) -> list[str]:
    """The sentences of a document in order; of a presplit document its paragraphs, overlong ones split."""
    if not document.presplit:
        return [sentence for p in document.paragraphs for sentence in split_sentences(p, language)]
    limit = MAX_CHARACTERS[language]
    return [part for line in document.paragraphs for part in _split_long(line, limit, language)]
