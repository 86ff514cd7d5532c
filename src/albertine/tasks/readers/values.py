"""Values of a row, wherever they come from, as plain Python: text, numbers, lists, objects, None."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from albertine.errors import DataError
from albertine.text.cleaning import whole

_MISSING = ("NAType", "NaTType")
"""What pandas writes for a missing value, beside NaN."""


def plain(value: Any, where: str) -> Any:
    """A value with the numbers of NumPy, pandas and the like made Python's, and None for one that is missing.
    A date that Python has none for is text.

    Raises:
        DataError: text with half of a character, which no file can hold; lists inside each other, more than
            are read.
    """
    try:
        return _plain(value, where)
    except RecursionError as error:
        raise DataError("holds lists inside each other, more than are read", where=where) from error


def number_of(text: str, column: str, where: str) -> float:
    """The finite number that a column of a file has as text.

    Raises:
        DataError: it is none. A comma is no decimal point, as 1,000 is a thousand to others.
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
        return whole(value, where)
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


def text_in(value: Any) -> str:
    """A value that must be text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def kind_of_value(value: object) -> str:
    """What a value is, in words."""
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
        DataError: two columns have one name, which is not empty.
    """
    found = [str(name).strip() for name in names]
    twice = next((name for name, count in Counter(found).items() if count > 1 and name), None)
    if twice is not None:
        raise DataError(f"has two columns `{twice}`", where=where, remedy="Rename one of them")
    return found
