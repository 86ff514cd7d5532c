"""Text normalisation before SentencePiece (`google-research/albert:tokenization.py`, preprocess_text), and
character classes.

White space is collapsed, the text is converted to NFKD, combining marks are removed, then it is lowercased.
White space has no case and is not part of any decomposition, so cleaning a text equals cleaning its words one
by one; the word cache of `sentencepiece.py` depends on that.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from albertine.errors import DataError

HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
"""A Chinese ideograph: the main block, the extensions and the compatibility forms."""
SURROGATE = re.compile("[\ud800-\udfff]")
_QUOTES_OR_ONE = re.compile("``|''|.", re.DOTALL)
LONG = 256
"""Characters above which the quadratic time of NFKD matters."""


def is_han(character: str) -> bool:
    """Whether a character is a Chinese ideograph."""
    return HAN.match(character) is not None


@lru_cache(maxsize=1)
def combining_class() -> str:
    """All characters of non-zero combining class, for use inside a regular expression's brackets.

    The reference removes these. They differ from category Mn, which other programs remove: variation
    selectors and many Indic vowel signs are Mn but stay, a few spacing marks are removed.
    """
    codes = [c for c in range(0x300, sys.maxunicode + 1) if unicodedata.combining(chr(c))]
    runs: list[list[int]] = []
    for code in codes:
        if runs and code == runs[-1][1] + 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in runs)


@lru_cache(maxsize=1)
def _combining() -> re.Pattern[str]:
    return re.compile(f"[{combining_class()}]+")


@lru_cache(maxsize=1)
def _all_dropped() -> re.Pattern[str]:
    """Runs of combining marks, and of the few characters whose NFKD is only marks, such as U+0F73."""
    codes = (c for c in range(0x300, sys.maxunicode + 1) if unicodedata.decomposition(chr(c)))
    apart = (chr(c) for c in codes if all(map(unicodedata.combining, unicodedata.normalize("NFKD", chr(c)))))
    return re.compile(f"[{combining_class()}{''.join(apart)}]+")


def _without_marks(text: str) -> str:
    """The text in NFKD without characters of non-zero combining class.

    In long texts runs of marks are removed first: NFKD sorts every run by combining class in quadratic time,
    and the order of removed characters does not matter.
    """
    if len(text) > LONG:
        text = _all_dropped().sub("", text)
    return _combining().sub("", unicodedata.normalize("NFKD", text))


def well_formed(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD, as in decoding with errors="replace".

    Lone surrogates cannot be encoded as UTF-8, which both tokenizer libraries need.
    """
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)


def check_well_formed(text: str, where: str) -> str:
    """Return the text unchanged.

    Raises:
        DataError: it contains a lone surrogate, which cannot be written to a file.
    """
    if text.isascii() or (half := SURROGATE.search(text)) is None:
        return text
    what = f"has half of a character (the lone surrogate {half[0]!a})"
    raise DataError(what, where=where, remedy="Write characters whole, or leave the row out")


@dataclass(frozen=True)
class Cleaning:
    """Cleaning settings; calling an instance cleans a text.

    Attributes:
        lower: lowercase the text (ALBERT: yes; XLNet: no).
        keep_accents: no NFKD, combining marks stay.
        replace_quotes: replace `` and '' by ". XLNet's reference and transformers do, Google's ALBERT does
            not.
    """

    lower: bool = True
    keep_accents: bool = False
    replace_quotes: bool = False

    def __call__(self, text: str) -> str:
        """The cleaned text: words separated by single spaces, none at either end.

        NFKD turns a few characters, such as the standalone ¨, into a space and a mark. Such spaces stay, as
        in the reference; SentencePiece's own normalisation removes them.
        """
        text = " ".join(well_formed(text).split())
        if self.replace_quotes:
            text = text.replace("``", '"').replace("''", '"')
        if not self.keep_accents and not text.isascii():
            text = _without_marks(text)
        return text.lower() if self.lower else text

    def with_origins(self, text: str) -> tuple[str, list[int]]:
        """The cleaned text and, for each of its characters, the index of its source in `text`."""
        clean = self(text)
        origins: list[int] = []
        end = 0
        for word in text.split():
            start = text.index(word, end)
            if end:
                origins.append(start - 1)  # the space between two words
            end = start + len(word)
            if word.isascii() and not self.replace_quotes:
                origins.extend(range(start, end))
            else:
                units = self._units(word)
                sizes = {unit: len(self(unit)) for unit in set(units)}
                wide = np.fromiter(map(len, units), np.int64, len(units))
                kept = np.fromiter(map(sizes.__getitem__, units), np.int64, len(units))
                origins.extend(np.repeat(start + np.cumsum(wide) - wide, kept).tolist())
        if len(origins) != len(
            clean
        ):  # no known text reaches this; the origins are then approximate but in range
            origins = [min(at, len(text) - 1) for at in range(len(clean))]
        return clean, origins

    def _units(self, word: str) -> Sequence[str]:
        """Units that are cleaned separately: single characters, and the pairs `` and ''."""
        if not self.replace_quotes or ("``" not in word and "''" not in word):
            return word
        return _QUOTES_OR_ONE.findall(word)
