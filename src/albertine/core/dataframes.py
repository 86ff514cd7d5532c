"""How a table is told from a list of texts, whatever holds it: nothing of pandas or the like is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIGNS = ("iter_rows", "itertuples", "to_batches", "column_names", "columns")
"""What tables have and columns have not: of polars, pandas, pyarrow and `datasets`."""


def is_table(given: Any) -> bool:
    """Whether something has columns, so that going through it may give their names."""
    return isinstance(given, Mapping) or any(hasattr(given, sign) for sign in SIGNS)
