"""Rows of multiple choice: one for each option.

[CLS] passage [SEP] question and option [SEP]. A gap in the question is filled with the option; without a
question a gap in the passage is filled, and without a gap the option is the second text, as a continuation. A
gap is `#idiom#` or a run of underscores (`_`, `____`, `__①__`), in a passage none inside a name (`my_file`).
The last 128 tokens of question and option are kept, and the passage is truncated to fit. For RACE this is as
in google-research/albert's `race_utils.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from albertine.tokenizers.base import Tokenizer

QUESTION_TOKENS = 128
IDIOM = "#idiom#"
_GAP = r"_+(?:[①-⑳0-9]+_+)?"
GAP = re.compile(_GAP)
# The lookbehind on `_` avoids quadratic backtracking over the underscores of a name.
GAP_OUTSIDE_NAMES = re.compile(rf"(?<![A-Za-z0-9_]){_GAP}|(?<!_){_GAP}(?![A-Za-z0-9_])")


def option_rows(
    tokenizer: Tokenizer, passage: str, question: str, options: Sequence[str], max_length: int
) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Token and segment ids of a row for every option, and the number of truncated rows."""
    rows, cut = [], 0
    whole = tokenizer.encode(passage)
    for option in options:
        joined = None if question else _filled(passage, option, GAP_OUTSIDE_NAMES)
        if joined is not None:
            first, second = tokenizer.encode(joined), None
        else:
            first, second = whole, tokenizer.encode(_question_with_option(question, option))
        second_kept = None if second is None else second[-question_limit(max_length) :]
        room = max_length - (2 if second_kept is None else 2 + tokenizer.between + len(second_kept))
        cut += len(first) > room or len(second_kept or ()) < len(second or ())
        rows.append(tokenizer.layout(first[: max(1, room)], second_kept, max_length=max_length))
    return rows, cut


def question_limit(max_length: int) -> int:
    """Maximum tokens of question and option together, in rows of `max_length`."""
    return min(QUESTION_TOKENS, max_length // 2)


def question_length(tokenizer: Tokenizer, passage: str, question: str, options: Sequence[str]) -> int:
    """Tokens of the question with the longest option, untruncated; 0 where all options fill gaps of the
    passage."""
    texts = (
        _question_with_option(question, x)
        for x in options
        if question or _filled(passage, x, GAP_OUTSIDE_NAMES) is None
    )
    return max((len(tokenizer.encode(one)) for one in texts), default=0)


def characters_of(passage: str, question: str, options: Sequence[str]) -> int:
    """Characters of the rows of all options: the passage for each option, and an option for each gap that it
    fills."""
    gapped, gap = (question, GAP) if question else (passage, GAP_OUTSIDE_NAMES)
    gaps = gapped.count(IDIOM) or gap.subn("", gapped)[1]
    return len(options) * (len(passage) + len(question)) + max(1, gaps) * sum(map(len, options))


def _question_with_option(question: str, option: str) -> str:
    filled = _filled(question, option, GAP)
    return f"{question} {option}".strip() if filled is None else filled


def _filled(text: str, option: str, gap: re.Pattern[str]) -> str | None:
    """The text with the option in its gaps; None where it has none."""
    if IDIOM in text:
        return text.replace(IDIOM, option)
    filled, count = gap.subn(lambda _: option, text)
    return filled if count else None
