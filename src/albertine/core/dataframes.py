"""Recognise tables of pandas, polars, pyarrow and `datasets` without importing those libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TABLE_ATTRIBUTES = ("iter_rows", "itertuples", "to_batches", "column_names", "columns")
"""Attributes that tables of those libraries have and columns do not."""


def is_table(value: Any) -> bool:
    """Whether a value is a mapping or table, whose iteration may yield column names instead of values."""
    return isinstance(value, Mapping) or any(hasattr(value, name) for name in TABLE_ATTRIBUTES)
