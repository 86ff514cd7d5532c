"""The rows that ask a model which of several options fits: one for each option (albert_family.md 1.8).

[CLS] passage [SEP] question and option [SEP]. A gap in the question is filled with the option; without a
question a gap in the passage is, and without a gap the option stands alone, as a continuation. Of question
and option only the last 128 tokens stay, and the passage gives way to them.
"""

from __future__ import annotations

from collections.abc import Sequence

from albertine.text.tokenizer import Tokenizer

QUESTION_TOKENS = 128
GAPS = ("_", "#idiom#")


def option_rows(
    tokenizer: Tokenizer, passage: str, question: str, options: Sequence[str], max_length: int
) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Token and segment ids of a row for every option, and how many rows had to leave tokens out."""
    rows, cut = [], 0
    whole = None if not question and _gap(passage) else tokenizer.encode(passage)
    for option in options:
        if whole is None:
            first, second = tokenizer.encode(_filled(passage, option)), None
        else:
            first, second = whole, tokenizer.encode(_filled(question, option) if question else option)
        asked = None if second is None else second[-min(QUESTION_TOKENS, max_length // 2) :]
        room = max_length - (2 if asked is None else 3 + len(asked))
        cut += len(first) > room or len(asked or ()) < len(second or ())
        rows.append(tokenizer.layout(first[: max(1, room)], asked, max_length=max_length))
    return rows, cut


def _gap(text: str) -> str | None:
    return next((gap for gap in GAPS if gap in text), None)


def _filled(text: str, option: str) -> str:
    gap = _gap(text)
    return f"{text} {option}" if gap is None else text.replace(gap, option)
