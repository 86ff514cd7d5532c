"""Texts passed in Python, in any container, as a checked list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from albertine.core.dataframes import is_table
from albertine.errors import DataError
from albertine.tasks.readers.values import kind_of_value, plain


def texts_of(texts: Any, name: str = "texts", *, pairs: bool | None = False) -> list[Any]:
    """Texts as a checked list; a single text is a list of one, not of its letters.

    Args:
        name: of the argument in messages. pairs: each is a pair of texts; None: a text or a pair.

    Raises:
        DataError: the container is not supported; an element is not text, or has an unpaired surrogate.
    """
    found = [texts] if isinstance(texts, str) else values_of(texts, name)
    for number, one in enumerate(found):
        where = f"{name}[{number}]"
        value = plain(one, where)
        if not (_is_pair(one) if pairs else isinstance(one, str)) and not (pairs is None and _is_pair(one)):
            raise _no_text(value, where, pairs)
    return found


def text_of(text: Any, name: str) -> str:
    """A single checked text. Raises DataError as `texts_of`."""
    value = plain(text, name)
    if not isinstance(value, str):
        raise DataError(f"is {kind_of_value(value)}, not text", where=name)
    return value


def values_of(column: Any, name: str) -> list[Any]:
    """The values of a list, an array, a Series or a column of a data set. Raises DataError as `texts_of`."""
    if is_table(column):
        raise DataError(
            f"a {type(column).__name__} has columns, and one of texts is wanted",
            where=name,
            remedy="Give the values of one of its columns; `predict` takes whole tables",
        )
    for method in ("to_pylist", "tolist"):  # of pyarrow; of NumPy and pandas
        if hasattr(column, method):
            column = getattr(column, method)()
    if isinstance(column, str | bytes) or not isinstance(column, Iterable):
        raise DataError(f"is {kind_of_value(column)}, not a list of texts", where=name)
    return list(column)


def _no_text(value: Any, where: str, pairs: bool | None) -> DataError:
    """The error for a value that is not a text, or with `pairs` not a pair; for a pair, of its wrong part."""
    parts = value if pairs is not False and isinstance(value, list) and len(value) == 2 else []
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            return _no_text(part, f"{where}[{number}]", False)
    wanted = {False: "text", True: "a pair of texts", None: "a text or a pair"}[pairs]
    return DataError(f"is {kind_of_value(value)}, not {wanted}", where=where)


def _is_pair(one: Any) -> bool:
    return isinstance(one, list | tuple) and len(one) == 2 and all(isinstance(part, str) for part in one)
