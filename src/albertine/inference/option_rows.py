"""The rows that ask a model which of several options fits: one for each option.

[CLS] passage [SEP] question and option [SEP]. A gap in the question is filled with the option; without a
question a gap in the passage is, and without a gap the option stands alone, as a continuation. A gap is
`#idiom#`, or underscores however many (`_`, `____`, `__①__`), in a passage none that join a name (`my_file`).
Of question and option only the last 128 tokens stay, and the passage gives way to them. For RACE all of this
is as in google-research/albert's `race_utils.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from albertine.tokenizers.base import Tokenizer

QUESTION_TOKENS = 128
IDIOM = "#idiom#"
_GAP = r"_+(?:[①-⑳0-9]+_+)?"
GAP = re.compile(_GAP)
# From the first of its underscores on, or each of many in a name would be tried anew, up to the last.
GAP_OUTSIDE_NAMES = re.compile(rf"(?<![A-Za-z0-9_]){_GAP}|(?<!_){_GAP}(?![A-Za-z0-9_])")


def option_rows(
    tokenizer: Tokenizer, passage: str, question: str, options: Sequence[str], max_length: int
) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Token and segment ids of a row for every option, and how many rows had to leave tokens out."""
    rows, cut = [], 0
    whole = tokenizer.encode(passage)
    for option in options:
        joined = None if question else _filled(passage, option, GAP_OUTSIDE_NAMES)
        if joined is not None:
            first, second = tokenizer.encode(joined), None
        else:
            first, second = whole, tokenizer.encode(_asked(question, option))
        asked = None if second is None else second[-question_limit(max_length) :]
        room = max_length - (2 if asked is None else 2 + tokenizer.between + len(asked))
        cut += len(first) > room or len(asked or ()) < len(second or ())
        rows.append(tokenizer.layout(first[: max(1, room)], asked, max_length=max_length))
    return rows, cut


def question_limit(max_length: int) -> int:
    """Tokens that a question and an option may have together, in rows of a length."""
    return min(QUESTION_TOKENS, max_length // 2)


def question_length(tokenizer: Tokenizer, passage: str, question: str, options: Sequence[str]) -> int:
    """Tokens of the question with the longest option, uncut; 0 where all options stand in the passage."""
    asked = (
        _asked(question, x) for x in options if question or _filled(passage, x, GAP_OUTSIDE_NAMES) is None
    )
    return max((len(tokenizer.encode(one)) for one in asked), default=0)


def characters_of(passage: str, question: str, options: Sequence[str]) -> int:
    """How many characters the rows of all options are made of: the passage for each option, and an option
    for each gap that it fills."""
    gapped, gap = (question, GAP) if question else (passage, GAP_OUTSIDE_NAMES)
    gaps = gapped.count(IDIOM) or gap.subn("", gapped)[1]
    return len(options) * (len(passage) + len(question)) + max(1, gaps) * sum(map(len, options))


def _asked(question: str, option: str) -> str:
    filled = _filled(question, option, GAP)
    return f"{question} {option}".strip() if filled is None else filled


def _filled(text: str, option: str, gap: re.Pattern[str]) -> str | None:
    """The text with the option in its gaps; None where it has none."""
    if IDIOM in text:
        return text.replace(IDIOM, option)
    filled, count = gap.subn(lambda _: option, text)
    return filled if count else None
