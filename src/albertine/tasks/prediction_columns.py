"""Predictions as further columns of a table's rows, the same for every family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from albertine.errors import DataError
from albertine.tasks.readers.table import Row

T = TypeVar("T")


def answer_columns(prediction: Mapping[str, Any], top: int) -> dict[str, Any]:
    """An element of `Family.predictions` as columns: `prediction`, and its probabilities or score.

    Args:
        top: number of the most probable classes, options or spans to include.
    """
    columns = dict(prediction)
    chances, spans = columns.pop("probabilities", None), columns.pop("spans", None)
    if chances is not None:
        several = isinstance(columns["prediction"], list)
        if not several:
            columns["probability"] = chances[columns["prediction"]]
        if top or several:
            named = chances.items() if isinstance(chances, Mapping) else enumerate(chances)
            best = sorted(named, key=lambda item: -item[1])
            columns["probabilities"] = {str(name): p for name, p in best[: top or None]}
    if spans is not None:
        begin, end, probability = spans[0] if spans and columns["prediction"] else (None, None, None)
        columns |= {"begin": begin, "end": end, "probability": probability}
        if top:
            columns["spans"] = spans[:top]
    return columns


def with_answers(row: Row, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row and its prediction columns.

    Raises:
        DataError: a column has the name of a prediction column.
    """
    if not columns.keys().isdisjoint(row.fields):
        raise taken(min(columns.keys() & row.fields.keys()), row.where)
    return {**row.fields, **columns}


def taken(column: str, where: str) -> DataError:
    """The error for a row that has a column with the name of a prediction column."""
    return DataError(
        f"has a column `{column}` itself", where=where, remedy="Rename it: the answers need that name"
    )


def decimals(vector: Iterable[np.float32]) -> list[float]:
    """The shortest decimals that give the same float32 values, for JSON."""
    return [float(str(x)) for x in vector]


def chunks(items: Iterable[T], size: int) -> Iterator[Sequence[T]]:
    """Blocks of `size` items; the last may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
