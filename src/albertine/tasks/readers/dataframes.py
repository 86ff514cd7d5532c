"""Rows in memory: lists, mappings and tables of pandas, polars, pyarrow and `datasets`, none of them
imported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from albertine.errors import DataError
from albertine.tasks.readers.values import check_names, kind_of_value, plain

FORMS = (
    "Give a list of mappings from column to value, a mapping of columns, a DataFrame of pandas or polars, a "
    "Table of pyarrow, or a Dataset"
)


def rows(source: Any, name: str | None = None) -> Iterator[tuple[dict[str, Any], str]]:
    """Every row with its location, such as `DataFrame[2]`, counted from 0.

    Args:
        name: of the table in messages; default: its type.

    Raises:
        DataError: it has no rows, or raises an error itself.
    """
    name = name or type(source).__name__
    found = _records(source, name)
    number = 0
    while True:
        where = f"{name}[{number}]"
        try:
            row = next(found)
        except StopIteration:
            return
        except DataError:
            raise
        except Exception as error:  # whatever a program of the user's raises
            message = f"{type(error).__name__}: {error}"
            raise DataError(f"cannot be read ({message:.200})", where=where) from error
        if not isinstance(row, Mapping):
            raise DataError(f"is {kind_of_value(row)}, not a mapping of columns", where=where, remedy=FORMS)
        yield plain(row, where), where
        number += 1


def _records(source: Any, name: str) -> Iterator[Any]:
    if hasattr(source, "features") and hasattr(source, "column_names"):  # datasets.Dataset
        return _named_classes(source, name)
    if hasattr(source, "iter_rows"):  # polars.DataFrame
        return _zipped(check_names(source.columns, name), source.iter_rows())
    if hasattr(source, "itertuples"):  # pandas.DataFrame
        return _zipped(check_names(source.columns, name), source.itertuples(index=False, name=None))
    if hasattr(source, "to_batches"):  # pyarrow.Table
        check_names(source.schema.names, name)
        rows = (row for batch in source.to_batches(max_chunksize=1024) for row in batch.to_pylist())
        return with_class_names(rows, source.schema.metadata, name)
    if isinstance(source, Mapping):
        return _columns(source, name)
    if isinstance(source, str | bytes) or not isinstance(source, Iterable) or hasattr(source, "dtype"):
        kind = type(source).__name__
        raise DataError(f"a {kind} holds no rows with named columns", where=name, remedy=FORMS)
    return iter(source)


def _zipped(names: list[str], values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    return (dict(zip(names, row, strict=True)) for row in values)


def _columns(source: Mapping[Any, Any], name: str) -> Iterator[dict[str, Any]]:
    for column, values in source.items():
        if isinstance(values, Mapping) or hasattr(values, "features"):  # datasets.DatasetDict
            raise DataError(f"holds several tables: {', '.join(map(str, source))}", where=name, remedy=FORMS)
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            remedy = "A mapping has a list for every column; rows are a list of mappings"
            raise DataError(f"column `{column}` is {kind_of_value(values)}", where=name, remedy=remedy)
    sizes = {str(column): len(values) for column, values in source.items()}
    if len(set(sizes.values())) > 1:
        lengths = ", ".join(f"`{column}` {size:,}" for column, size in sizes.items())
        raise DataError(f"has columns of different lengths ({lengths})", where=name)
    return _zipped(check_names(source, name), zip(*source.values(), strict=True))


def _named_classes(source: Any, name: str) -> Iterator[dict[str, Any]]:
    """Rows of a Dataset with class names in place of class numbers; -1 is no class."""
    features = (source.features or {}).items()
    naming = {column: named for column, feature in features if (named := _naming(feature))}
    return _with_names(_unnamed(source, name), naming, name)


def _unnamed(source: Any, name: str) -> Iterator[dict[str, Any]]:
    """Rows of a Dataset with class numbers."""
    for row in source:  # in the formats pandas, polars and arrow a table of one row
        if hasattr(row, "replace_schema_metadata"):
            row = row.replace_schema_metadata(None)  # its class names would be applied twice
        yield from [dict(row)] if isinstance(row, Mapping) else _records(row, name)


def with_class_names(
    rows: Iterable[dict[str, Any]], metadata: Mapping[bytes, bytes] | None, where: object
) -> Iterator[dict[str, Any]]:
    """Rows of Arrow with class names in place of class numbers, if `datasets` has written them into the
    metadata of the schema; -1 is no class.

    Args:
        where: the table, for messages.

    Raises:
        DataError: a number is beyond the names.
    """
    return _with_names(rows, _naming_of_schema(metadata), where)


def _with_names(
    rows: Iterable[dict[str, Any]], naming: Mapping[str, Callable[[Any], Any]], where: object
) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows):
        for column, name in naming.items():
            try:
                row = row | {column: name(row[column])} if column in row else row
            except ValueError as error:
                remedy = "Correct the number, or remove the names of the classes from the table's features"
                raise DataError(
                    f"row {number}: `{column}` has {error}", where=where, remedy=remedy
                ) from error
        yield row


def _naming_of_schema(metadata: Mapping[bytes, bytes] | None) -> dict[str, Callable[[Any], Any]]:
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {column: name for column, feature in features.items() if (name := _naming(feature))}
    except (KeyError, TypeError, AttributeError, ValueError):  # no metadata, or of another version
        return {}


def _naming(feature: Any) -> Callable[[Any], Any] | None:
    """A function from the values of a column to class names, by its feature in `datasets` or in the metadata
    of a schema; None: they are not classes."""
    if names := _names(feature):
        return lambda value: None if value is None or value == -1 else _name(names, value)
    inner = feature.get("feature") if isinstance(feature, dict) else getattr(feature, "feature", None)
    inner = feature[0] if isinstance(feature, list) and feature else inner
    if names := _names(inner):  # a list of them
        return lambda values: None if values is None else [_name(names, value) for value in values]
    return None


def _names(feature: Any) -> list[str]:
    """The names of a ClassLabel."""
    if isinstance(feature, dict):
        return list(map(str, feature.get("names") or ())) if feature.get("_type") == "ClassLabel" else []
    return list(feature.names or ()) if hasattr(feature, "int2str") else []


def _name(names: Sequence[str], value: Any) -> str:
    number = int(value)
    if not 0 <= number < len(names):
        raise ValueError(f"class number {number} of {len(names)} classes")
    return names[number]
