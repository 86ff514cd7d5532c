"""Rows for prediction, from a table or from a file in any format that `finetune` reads for the task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from albertine.tasks.families import KINDS
from albertine.tasks.family import Family, Fields
from albertine.tasks.kind_settings import TaskChoice
from albertine.tasks.readers.table import Header, Row, Source, rows_of


def rows_to_predict(
    source: Source,
    family: Family,
    fields: Fields | None = None,
    *,
    header: Header = True,
    encoding: str = "utf-8",
    prefix: str = "",
) -> tuple[Iterator[Row], Fields]:
    """The rows of a table, or of SQuAD's nested JSON, WebQA, dialogues as in DREAM and C3, a folder of RACE,
    and CoNLL, whose files do not end in `.tsv`.

    Args:
        fields: the columns with the input; default: those of the family. Rows of a file that is not a table
            get columns of these names.
        header, encoding, prefix: as in `rows_of`.

    Returns:
        The rows, and the columns with the input.
    """
    fields = fields or family.fields
    kind = KINDS.get(family.settings.get("kind", ""), TaskChoice)
    own = None
    if isinstance(source, str | Path) and ".tsv" not in (path := Path(source)).suffixes:
        own = kind.in_own_form(path, fields, encoding, prefix)
    if own is not None:
        named = kind.own_fields(fields)
        return (_row(n, example, kind.own_row(example, named)) for n, example in enumerate(own)), named
    rows = rows_of(source, header=header, encoding=encoding, prefix=prefix)
    return (kind.table_row(row, fields) for row in rows), fields


def _row(number: int, example: Any, columns: dict[str, Any]) -> Row:
    return Row({"id": example.name, **columns}, example.where, number)
