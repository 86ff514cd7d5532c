"""Rows of CSL and CLUEWSC, which hold more than texts, laid out as the baselines of CLUE do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from albertine.errors import DataError
from albertine.tasks.readers.table import Row


def keywords(row: Row) -> Row:
    """CSL's row with its keywords as one text, as the baselines of CLUE join them: by spaces."""
    words = row.get("keyword")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError("`keyword` is not a list of words", where=row.where)
    return row._replace(fields={**row.fields, "keyword": " ".join(words)})


def marked(row: Row) -> Row:
    """CLUEWSC's row with its two spans marked in the text, as the baselines of CLUE do: the noun between
    underscores, the pronoun in square brackets; the text stands alone, without a pair.

    Raises:
        DataError: a span is not in the text where the row says.
    """
    text, target = row.text("text"), row.get("target")
    noun, pronoun = (_span(row, text, target, number) for number in (1, 2))
    for (begin, end), (left, right) in sorted([(noun, ("_", "_")), (pronoun, ("[", "]"))], reverse=True):
        text = text[:begin] + left + text[begin:end] + right + text[end:]
    return row._replace(fields={**row.fields, "text": text})


def _span(row: Row, text: str, target: Any, number: int) -> tuple[int, int]:
    tree = target if isinstance(target, dict) else {}
    words, begin = tree.get(f"span{number}_text"), tree.get(f"span{number}_index")
    if not isinstance(words, str) or not isinstance(begin, int):
        raise DataError(f"`target` lacks the words or the place of span {number}", where=row.where)
    if text[begin : begin + len(words)] != words:
        raise DataError(f"`{words}` does not stand at character {begin} of the text", where=row.where)
    return begin, begin + len(words)


LAYOUTS: Mapping[str, Callable[[Row], Row]] = {"keywords": keywords, "marked": marked}
