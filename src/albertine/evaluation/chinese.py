"""Scores of Chinese answers, by the rules of three official scripts.

CMRC 2018 (its authors' baselines use the same for DRCD, which has no script of its own): both texts are
lowercased and stripped, and a list of punctuation is deleted. Exact match compares the rest, white space
included. For F1 each character U+4E00 to U+9FA5 is a token and the text between them is split by
`treebank.words`; the agreement is the longest common substring of tokens, although the script calls it a
subsequence.

DuReader-robust (LIC 2020): the same with another list, without stripping; tokens are the characters that
BERT treats as Chinese, "=", and each text between them as a whole.

XQuAD and MLQA in Chinese: all punctuation of Unicode is deleted, each character U+4E00 to U+9FA5 is a token,
the rest is split at white space, and bags of tokens are compared as in SQuAD.

A question scores the maximum over its gold answers. All scores are per cent.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache

from albertine.evaluation.answer_matching import MatchRules, common
from albertine.evaluation.treebank import words

# The list of the script has the two-character string …… too, which no character equals: the ellipsis stays.
_CMRC = dict.fromkeys(map(ord, "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"))
_DUREADER = dict.fromkeys(map(ord, ":_`，。：？！()“”；’《》·、,「」（）－～『』|"))
_HAN = re.compile("([\u4e00-\u9fa5])")
_BERT_HAN = re.compile(
    "([=\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f])"
)


def score(
    gold: Mapping[str, Sequence[str]], answers: Mapping[str, str], rules: MatchRules
) -> dict[str, float]:
    """`exact`, `f1`, their mean `average`, and the numbers of questions (`total`) and of those without a
    prediction (`skipped`), which score 0.

    Args:
        gold: the gold answers of every question by its id, at least one each.
    """
    if not gold:
        raise ValueError("nothing to score")
    answered = [(rights, answers[name]) for name, rights in gold.items() if name in answers]
    exact = 100 * sum(max(rules.exact(r, a) for r in rights) for rights, a in answered) / len(gold)
    f1 = 100 * sum(max(rules.f1(r, a) for r in rights) for rights, a in answered) / len(gold)
    total, skipped = float(len(gold)), float(len(gold) - len(answered))
    return {"average": (exact + f1) / 2, "f1": f1, "exact": exact, "total": total, "skipped": skipped}


def longest_run(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common substring of tokens."""
    least, most = 0, min(len(a), len(b))
    while least < most:  # binary search: a common substring contains all shorter ones
        size = (least + most + 1) // 2
        runs = {tuple(a[i : i + size]) for i in range(len(a) - size + 1)}
        if any(tuple(b[i : i + size]) in runs for i in range(len(b) - size + 1)):
            least = size
        else:
            most = size - 1
    return least


def _cmrc_tokens(plain: str) -> list[str]:
    parts = _HAN.split(plain)  # every second part is a character
    return [word for i, part in enumerate(parts) if part for word in ((part,) if i % 2 else words(part))]


def _mlqa_plain(text: str) -> str:
    kept = "".join(c for c in text.lower() if not _is_punctuation(c))
    return " ".join(_HAN.sub(r" \1 ", kept).split())


@lru_cache(maxsize=1 << 14)
def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")


CMRC = MatchRules(lambda text: text.lower().strip().translate(_CMRC), _cmrc_tokens, longest_run)
DUREADER = MatchRules(
    lambda text: text.lower().translate(_DUREADER),
    lambda plain: [part for part in _BERT_HAN.split(plain) if part],
    longest_run,
)
MLQA = MatchRules(_mlqa_plain, str.split, common)
