"""Vectors of the texts in a table, or cosines of its pairs of texts, by any model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from albertine.inference.embedding import row_cosines
from albertine.model.config import Pooling
from albertine.tasks.family import Fields
from albertine.tasks.prediction_columns import chunks
from albertine.tasks.predictor import CHUNK, Predictor
from albertine.tasks.readers.table import Row

RowsWithColumns = Iterator[tuple[Row, dict[str, Any]]]
"""Rows, each with the columns to add."""


def vectors(
    predictor: Predictor,
    rows: Iterable[Row],
    fields: Fields | None = None,
    *,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
) -> RowsWithColumns:
    """Every row with the `vector` of its text, float32 (H,).

    Args:
        fields: the column with the text. pooling, normalize: as in `Predictor.embed`.

    Raises:
        DataError: a column is missing, or holds no text.
    """
    fields = fields or Fields()
    for chunk in chunks(rows, CHUNK):
        found = predictor.embedder([fields.first(row) for row in chunk], pooling=pooling, normalize=normalize)
        predictor.cut += found.cut
        yield from ((row, {"vector": vector}) for row, vector in zip(chunk, found.vectors, strict=True))


def cosines(
    predictor: Predictor,
    rows: Iterable[Row],
    fields: Fields | None = None,
    *,
    pooling: Pooling | None = None,
) -> RowsWithColumns:
    """Every row with the cosine of the vectors of its two texts as `prediction`. Arguments as `vectors`."""
    fields = fields or Fields()
    for chunk in chunks(rows, CHUNK):
        pairs = [fields.first(row) for row in chunk] + [fields.needed(row) for row in chunk]
        found = predictor.embedder(pairs, pooling=pooling, normalize=True)
        predictor.cut += found.cut
        found_cosines = row_cosines(*np.split(found.vectors, 2))
        yield from zip(chunk, ({"prediction": float(x)} for x in found_cosines), strict=True)
