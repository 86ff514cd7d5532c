"""Exact match, F1 and ROUGE-L of generated texts, in Chinese, English or both.

A text is compared by its units: every Chinese character, and every other run of letters and digits. Case,
accents, character width, punctuation and spaces are ignored.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_UNITS = re.compile(f"[{_HAN}]|[^\\W_{_HAN}]+")

Measure = Callable[[list[str], list[str]], float]


def units(text: str) -> list[str]:
    """The units of a text."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return _UNITS.findall("".join(c for c in plain if not unicodedata.combining(c)))


def exact(gold: list[str], found: list[str]) -> float:
    """1 if the units are the same in the same order, else 0."""
    return float(gold == found)


def f1(gold: list[str], found: list[str]) -> float:
    """F1 of the bags of units; 1 for two texts without units."""
    return _f1(sum((Counter(gold) & Counter(found)).values()), gold, found)


def rouge_l(gold: list[str], found: list[str]) -> float:
    """ROUGE-L (Lin 2004) with precision and recall of equal weight: 2·LCS / (m + n), LCS being the length of
    the longest common subsequence of texts of m and n units; 1 for two texts without units."""
    lengths = [0] * (len(found) + 1)  # of the units of `gold` so far and each beginning of `found`
    for unit in gold:
        corner = 0
        for i, other in enumerate(found, 1):
            above = lengths[i]
            lengths[i] = corner + 1 if unit == other else max(above, lengths[i - 1])
            corner = above
    return _f1(lengths[-1], gold, found)


def mean_best(gold: Sequence[Sequence[str]], found: Sequence[str], measure: Measure) -> float:
    """The mean over all texts of a measure, maximized over the gold texts of each; in [0, 1].

    Args:
        gold: the gold texts of each, at least one.
    """
    if len(gold) != len(found) or not found:
        raise ValueError(f"{len(gold)} gold texts and {len(found)} predictions")
    pairs = zip(gold, map(units, found), strict=True)
    return sum(max(measure(units(right), own) for right in rights) for rights, own in pairs) / len(found)


def _f1(same: int, gold: list[str], found: list[str]) -> float:
    return 2 * same / (len(gold) + len(found)) if gold or found else 1.0
