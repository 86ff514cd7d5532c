"""Rows with predictions as the bytes of a part, and parts as one file: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from albertine.core.files import sync_folder, to_json
from albertine.errors import DataError, SettingsError
from albertine.tasks.prediction_columns import decimals
from albertine.tasks.readers.files import unpacked
from albertine.tasks.readers.table import Row

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
NESTED = (list, tuple, dict)
"""Values that CSV, TSV and Parquet have as JSON."""
_USUAL = frozenset((str, float, int, type(None)))
"""Types whose values every format has."""
_BREAKS = re.compile("[\t\n\r]")
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""First characters of cells that spreadsheets take for a formula, in some languages in full width too."""
Columns = dict[str, Any]


def output_form(output: Path) -> str:
    """The format of an output by its ending, one of `FORMATS`. Raises SettingsError: it has another."""
    if output.suffix.lower() not in FORMATS:
        known = ", ".join(FORMATS)
        raise SettingsError(
            f"ends in `{output.suffix}`", where=output, remedy=f"Name a file that ends in {known}"
        )
    return output.suffix.lower()


def check_escaped(escaped: bool, form: str, output: Path) -> None:
    """
    Raises:
        SettingsError: formulas are to be escaped in a format that no spreadsheet evaluates.
    """
    if escaped and form not in (".csv", ".tsv"):
        raise SettingsError(
            f"escapes formulas for spreadsheets, which do not evaluate those of {form}",
            where=output,
            remedy="Leave out --escape-formulas (escape_formulas), or name a .csv or .tsv",
        )


def without_formula(value: Any) -> Any:
    """A cell with an apostrophe before a text that a spreadsheet would take for a formula; numbers stay."""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def content_of(
    table: Sequence[Columns],
    names: Sequence[str],
    form: str,
    chunk: Sequence[tuple[Row, Columns]],
    escaped: bool = False,
) -> bytes:
    """The bytes of a part; the output in a text format is its header and all parts, concatenated.

    Args:
        escaped: escape formulas (`without_formula`).
    """
    if form == ".jsonl":
        return "".join(_json(row) + "\n" for row in table).encode()
    known = frozenset(names)
    for (row, _), joined in zip(chunk, table, strict=True):
        check_columns(joined, known, row.where)
        if form == ".tsv":
            check_lines(joined, row.where)
    cells = [
        [value if value.__class__ in _USUAL else _cell(value, form) for value in map(row.get, names)]
        for row in table
    ]
    if escaped:
        cells = [list(map(without_formula, row)) for row in cells]
    if form == ".parquet":
        return _parquet(cells, names)
    return _text(cells, form)


def check_columns(fields: Mapping[str, Any], known: Set[str], where: str) -> None:
    """
    Raises:
        DataError: a row has a column that none of the first part has.
    """
    if not fields.keys() <= known:
        raise DataError(
            f"has a column `{min(fields.keys() - known)}`, which the first rows lack",
            where=where,
            remedy="Name an output that ends in .jsonl, whose rows may differ",
        )


def check_lines(fields: Mapping[str, Any], where: str) -> None:
    """
    Raises:
        DataError: a field has a tab or a line break, which TSV cannot represent.
    """
    for name, value in fields.items():
        held = _plain(value) if isinstance(value, bytes) else value
        if any(isinstance(text, str) and _BREAKS.search(text) for text in (name, held)):
            raise DataError(
                f"`{' '.join(name.split()):.60}` holds a tab or a line break, which TSV has no form for",
                where=where,
                remedy="Name an output that ends in .csv, .jsonl or .parquet",
            )


def _json(value: Any) -> str:
    return to_json(value, default=_plain)


def _plain(value: Any) -> Any:
    """A value without a form in JSON: vectors as lists, times in ISO 8601, bytes decoded as text."""
    if isinstance(value, np.ndarray):
        return decimals(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _cell(value: Any, form: str) -> Any:
    """A value for a column of CSV, TSV or Parquet."""
    # Booleans as in JSON, which are also the class names of such a column.
    if isinstance(value, NESTED) or (isinstance(value, np.ndarray | bool) and form != ".parquet"):
        return _json(value)
    return _plain(value) if isinstance(value, bytes) and form != ".parquet" else value


def _text(cells: Sequence[Sequence[Any]], form: str) -> bytes:
    text = io.StringIO()
    how: Any = {"delimiter": "," if form == ".csv" else "\t", "lineterminator": "\n"}
    csv.writer(text, **how).writerows(cells)
    if "\r" in text.getvalue():  # the writer does not quote it, and readers take it for the end of a row
        text = io.StringIO()
        usual, quoting = csv.writer(text, **how), csv.writer(text, **how, quoting=csv.QUOTE_ALL)
        for row in cells:
            bare = any(isinstance(cell, str) and "\r" in cell for cell in row)
            (quoting if bare else usual).writerow(row)
    return text.getvalue().encode()


def _parquet(cells: Sequence[Sequence[Any]], names: Sequence[str]) -> bytes:
    arrow, parquet = _pyarrow()
    content = io.BytesIO()
    columns = {name: _column([row[i] for row in cells], arrow) for i, name in enumerate(names)}
    parquet.write_table(arrow.table(columns), content)
    return content.getvalue()


def _column(values: Sequence[Any], arrow: Any) -> Any:
    """A column of Parquet; text if its values have different types."""
    try:
        return arrow.array(values)
    except (arrow.ArrowException, OverflowError):
        texts = [value if isinstance(value, str | None) else _json(value) for value in values]
        return arrow.array(texts, arrow.string())


def _schema(parts: Sequence[Any], arrow: Any) -> Any:
    """A schema for all parts; columns with incompatible types become text.

    Args:
        parts: their schemas, all with the same names.
    """

    def field(name: str) -> Any:
        alone = [arrow.schema([part.field(name)]) for part in parts]
        try:
            return arrow.unify_schemas(alone, promote_options="permissive").field(name)
        except arrow.ArrowException:
            return arrow.field(name, arrow.string())

    return arrow.schema([field(name) for name in parts[0].names])


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise SettingsError(
            "Parquet needs pyarrow", remedy="pip install 'albertine[data]', or write .jsonl"
        ) from error
    return pyarrow, pyarrow.parquet


def mark_of(source: Path) -> bytes:
    """The byte order mark of UTF-8 if a file has it, else nothing; without it Excel assumes another
    encoding."""
    if source.is_dir():
        return b""
    with unpacked(source) as stream:
        return codecs.BOM_UTF8 if stream.head(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else b""


def assemble(
    folder: Path,
    output: Path,
    contents: Sequence[Callable[[], bytes]],
    names: Sequence[str],
    form: str,
    *,
    mark: bytes,
) -> None:
    """Join the parts and move the result to the output in one step.

    Args:
        folder: of the parts, where the result is written first. contents: return the bytes of each part.
        mark: written before the header of CSV and TSV.
    """
    whole = folder / f"whole{form}"
    if form == ".parquet":
        arrow, parquet = _pyarrow()
        schema = _schema([parquet.read_schema(io.BytesIO(content())) for content in contents], arrow)
        with parquet.ParquetWriter(whole, schema) as writer:
            for content in contents:
                table = parquet.read_table(io.BytesIO(content()))
                writer.write_table(table.cast(schema, safe=False))  # whole numbers may become fractions
    else:
        with whole.open("wb") as file:
            file.write(b"" if form == ".jsonl" else mark + _text([names], form))
            for content in contents:
                file.write(content())
    sync_folder(whole)  # opened for reading, a file is flushed as a folder is
    os.replace(whole, output)
    sync_folder(output.parent)
