"""Values of rows as plain Python: text, numbers, lists, dictionaries, None."""

from __future__ import annotations

import ast
import io
import json
import math
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from albertine.errors import DataError
from albertine.text.cleaning import check_well_formed

_MISSING = ("NAType", "NaTType")
"""Types of missing values in pandas, besides NaN."""


def plain(value: Any, where: str) -> Any:
    """A value of NumPy, pandas and the like as plain Python; a missing value is None. A date outside Python's
    range is text.

    Raises:
        DataError: text with an unpaired surrogate, which no file can hold; lists nested too deeply.
    """
    try:
        return _plain(value, where)
    except RecursionError as error:
        raise DataError("holds lists inside each other, more than are read", where=where) from error


def number_of(text: str, column: str, where: str) -> float:
    """The finite number that a column of a file has as text.

    Raises:
        DataError: it is not a number. A decimal comma is refused: 1,000 may also be a thousand.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    remedy = "Write decimals with a point" if re.fullmatch(r"[-+]?\d+,\d+", text) else None
    raise DataError(f"`{column}` is `{text}`, not a number", where=where, remedy=remedy)


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return check_well_formed(value, where)
    if isinstance(value, float):
        return None if value != value else float(value)
    if isinstance(value, Mapping):
        return {_plain(str(name), where): _plain(item, where) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where) for item in value]
    if isinstance(value, Decimal) and value.is_finite():  # of any length, as databases write them
        if int(value.as_tuple().exponent) >= 0:
            return int(value)
        near = float(value)
        return near if Decimal(repr(near)) == value else str(value)
    if isinstance(value, Decimal | np.floating):  # a long double is no float, and `tolist` leaves it one
        return _plain(float(value), where)
    if isinstance(value, np.datetime64) and isinstance(value.tolist(), int):  # of nanoseconds, or far years
        return str(value)
    if type(value).__name__ in _MISSING:
        return None
    return _plain(value.tolist(), where) if hasattr(value, "tolist") else value


def nested(value: Any, where: str) -> Any:
    """The list or object in a cell of CSV or TSV; any other value unchanged.

    Lists are in the notation of JSON (`predict --output`), of Python (`DataFrame.to_csv`), or of NumPy,
    without commas.

    Raises:
        DataError: it contains text with an unpaired surrogate.
    """
    if not isinstance(value, str) or (found := _BRACKETS.fullmatch(value)) is None:
        return value
    text = found[1]
    try:
        return plain(json.loads(text), where)
    except DataError:
        raise
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as of "\d", which Python does not print
            printed = ast.literal_eval(" ".join(_literal(text)))
    except (ValueError, SyntaxError, TypeError, tokenize.TokenError, RecursionError, MemoryError, Warning):
        return value
    return plain(_lists(printed), where) if isinstance(printed, list | tuple | dict | set) else value


_BRACKETS = re.compile(r"\s*(\[.*\]|\{.*\}|\(.*\))\s*", re.DOTALL)


def _literal(text: str) -> Iterator[str]:
    """The tokens of a Python literal from output of Python or NumPy: with commas between elements, and
    without the names of NumPy's types and arrays.

    Raises:
        ValueError: it is shortened by an ellipsis. SyntaxError, tokenize.TokenError: it is not a literal.
    """
    read = tokenize.generate_tokens(io.StringIO(text).readline)
    tokens = [token for token in read if token.string.strip()]
    words = [token.string for token in tokens]
    before, end, skipped, attribute = "", (1, 0), 0, False
    for at, token in enumerate(tokens):
        word, apart = token.string, token.start != end
        end = token.end
        if skipped or words[at : at + 3] == [",", "dtype", "="]:  # and the name of the type
            skipped = skipped - 1 if skipped else 3
            continue
        if word in ("np", "array", ".") or attribute:
            attribute = word == "."
            continue
        negative = word == "-" and at + 1 < len(tokens) and tokens[at + 1].start == token.end
        if _ENDS.search(before) and (negative or _BEGINS.match(word)):
            if not apart:
                raise ValueError("two values without a blank between them")
            yield ","
        if word == "...":
            raise ValueError("it is cut short")
        before = "None" if word == "nan" else word
        yield before


_ENDS, _BEGINS = re.compile(r"[\w\])}'\".]$"), re.compile(r"[\w\[({'\".]")


def _lists(value: Any) -> Any:
    """Tuples and sets as lists, as JSON has them."""
    if isinstance(value, dict):
        return {str(name): _lists(item) for name, item in value.items()}
    if isinstance(value, set):
        return sorted(map(_lists, value), key=str)
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def whole_number(value: Any) -> int | None:
    """An integer from a number without a fraction, such as the offset 4.0 of pandas; None: it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == value and abs(value) < 2**53 and int(value) == value else None


def text_in(value: Any) -> str:
    """A value that must be text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def kind_of_value(value: object) -> str:
    """The type of a value, in words for messages."""
    for kind, words in _KINDS.items():
        if isinstance(value, kind):
            return words
    return f"a {type(value).__name__}"


_KINDS: dict[Any, str] = {
    type(None): "empty",
    bool: "true or false",
    str: "text",
    int | float: "a number",
    list: "a list",
    Mapping: "an object",
}


def check_names(names: Iterable[object], where: object) -> list[str]:
    """The names of columns as text.

    Raises:
        DataError: two columns have the same name, which is not empty.
    """
    found = [str(name).strip() for name in names]
    twice = next((name for name, count in Counter(found).items() if count > 1 and name), None)
    if twice is not None:
        raise DataError(f"has two columns `{twice}`", where=where, remedy="Rename one of them")
    return found
