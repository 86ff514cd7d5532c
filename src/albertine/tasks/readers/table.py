"""Rows of a table with their location, for messages.

A file is CSV (quoted), JSON lines, one JSON list of objects, Parquet, or else tab-separated, by its name or
its first bytes, compressed or not; only one row, or one batch of Parquet, is in memory at a time. Rows in
memory are read by `dataframes`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from albertine.errors import DataError
from albertine.tasks.readers import dataframes
from albertine.tasks.readers.files import (
    LIMITS,
    PACKED,
    ArchiveMember,
    File,
    NoRow,
    own_words,
    unpacked,
    whole,
)
from albertine.tasks.readers.values import check_names, kind_of_value, plain
from albertine.text.formats import display_width
from albertine.text.lines import TextLines, detect_encoding, ends_lines_with_carriage_returns, head_text
from albertine.text.streams import ByteStream

Source = Any
"""A file (a path, or a member of a tar), or rows in memory: a list or other iterable of mappings, a mapping
of columns, a frame of pandas or polars, a table of pyarrow, a `datasets.Dataset`."""
Header = bool | Sequence[str]
"""Whether the first line of CSV and TSV has the names of the columns; without it they are "1", "2" and so on.
Or the names, for a file without a header."""
Placed = tuple[Mapping[str, Any], str]
"""The fields of a row by name, and its location for messages."""

TableForm = Literal["csv", "json", "parquet", "tsv"]
_FORMS: Mapping[str, TableForm] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_ROWS = 1024
_DELIMITERS = ",;\t"
_SEP = re.compile(r'\ufeff?"?sep=(.)"?\r?(?:\n|\Z)', re.IGNORECASE)
"""A line before the header in which Excel gives the delimiter."""
_NUMBER = re.compile(r"\s*[-+\d.,]+\s*")
_LONGEST_NAME = 40
"""Longest column name, in terminal columns (two for a Chinese character); longer fields are data."""
_BEGIN, _NEXT = re.compile(r"\s*\[\s*(\])?"), re.compile(r"\s*(?:,\s*|(\]))")
"""The delimiters of a JSON list: before its first element and between two; the group matches its end."""


class Row(NamedTuple):
    """One record.

    Attributes:
        fields: by name. where: its location for messages: `file:line`, `file, row 3`, `DataFrame[2]`.
        number: of the row, from 0. advice: the remedy if a column is missing.
        cells: whether its values are cells of CSV or TSV, in which a list is text.
    """

    fields: Mapping[str, Any]
    where: str
    number: int = 0
    advice: str | None = None
    cells: bool = False

    @property
    def name(self) -> str:
        """Its name in predictions: the column `id`, or its number."""
        return self.named("id")

    def named(self, column: str) -> str:
        """Its name in predictions: the value of a column, or its number if it has none."""
        value = self.value_or_none(column)
        return str(self.number if value is None or isinstance(value, list | dict) else value)

    def get(self, name: str) -> Any:
        """A field.

        Raises:
            DataError: the row has no such field.
        """
        if name not in self.fields:
            raise DataError(
                f"has no column `{name}`; it has {', '.join(f'`{n:.60}`' for n in self.fields) or 'none'}",
                where=self.where,
                remedy=self.advice,
            )
        return self.fields[name]

    def value_or_none(self, name: str) -> Any:
        """A field; None if `name` is empty, or the field is missing or empty: null, NaN, blank text."""
        value = self.fields.get(name) if name else None  # pandas writes the index as a column named ""
        return None if isinstance(value, str) and not value.strip() else value

    def text(self, name: str) -> str:
        """A field that must be text or a number."""
        value = self.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(f"`{name}` is {kind_of_value(value)}, not text", where=self.where)
        return str(value)


def rows_of(
    source: Source,
    *,
    header: Header = True,
    encoding: str = "utf-8",
    quotes: bool = True,
    ragged: bool = False,
    spare: str | None = None,
    prefix: str = "",
    name: str | None = None,
) -> Iterator[Row]:
    """The rows of a table; missing values (null, NaN) are None.

    Args:
        header: of CSV and TSV; a sequence names the columns of a file that has no header.
        encoding: of a text file without a byte order mark of UTF-8.
        quotes: unquote fields of TSV whose inner quotes are doubled, as pandas and Excel write them; all
            other quotes stay. The files of GLUE are read without.
        ragged: yield rows with a wrong number of fields without fields, instead of refusing the file.
        spare: the last name of `header`, whose column the file may lack, as a test file lacks its labels.
        prefix: before the names `header` and `encoding` in messages: "task." or "--".
        name: of rows in memory in messages: `train[2]` instead of `DataFrame[2]`.

    Raises:
        DataError: it cannot be read; two columns have the same name; a row does not fit the columns.
    """
    if not isinstance(source, str | Path | ArchiveMember):
        yield from (Row(fields, where, n) for n, (fields, where) in enumerate(dataframes.rows(source, name)))
        return
    path = Path(source) if isinstance(source, str) else source
    advice = "Name the columns of the file"
    with unpacked(path) as stream:
        form = _form(path, stream)
        placed: Iterator[Placed]
        if form == "parquet":
            placed = _parquet(path, stream)
        else:
            with own_words(prefix):
                encoding = detect_encoding(stream, encoding)
                head, _ = head_text(stream, encoding)
            kept = form == "csv" and not ends_lines_with_carriage_returns(
                stream, encoding
            )  # they may stand in quotes
            lines = TextLines(stream, encoding, LIMITS, inner_marks=form == "json", returns=kept)
            if form == "json":
                placed = _json(lines, head.lstrip("\ufeff \t\r\n").startswith("["), prefix)
                if prefix == "task." and '"paragraphs"' in head:
                    advice = "If these are questions about passages (SQuAD's format), set task.kind=answers"
            else:
                # Without a header the delimiter is not guessed: one column of texts is likelier than a file
                # of Excel with semicolons.
                sep = _SEP.match(head)
                delimiter = sep[1] if sep else _delimiter(head) if header is True else ","
                table = _separated(lines, delimiter if form == "csv" else None, quotes=quotes, skip=bool(sep))
                names, table, advice = _headed(table, header, None if ragged else spare, lines.name, prefix)
                placed = _fields(table, names, lines, comma=form == "csv", ragged=ragged)
        with own_words(prefix):
            cells = form in ("csv", "tsv")
            yield from (Row(fields, where, n, advice, cells) for n, (fields, where) in enumerate(placed))


def first_fields(path: File, encoding: str, prefix: str) -> Mapping[str, Any] | None:
    """The fields of the first row of a file, empty if the file is; None if it does not begin with a row, such
    as one JSON object over many lines. Columns of CSV and TSV have numbers. Raises DataError as `rows_of`."""
    try:
        row = next(rows_of(path, header=False, encoding=encoding, prefix=prefix), None)
    except NoRow:
        return None
    return {} if row is None else row.fields


def form_of(path: File) -> TableForm:
    """The format of a file by its name; "tsv" for other names."""
    suffixes = PurePosixPath(str(path)).suffixes
    return _FORMS.get(next((s for s in reversed(suffixes) if s not in PACKED), "").lower(), "tsv")


def _form(path: File, stream: ByteStream) -> TableForm:
    form, magic = form_of(path), stream.head(4) == b"PAR1"
    if form == "parquet" and not magic:
        raise DataError("is no Parquet file", where=path, remedy="Copy it again")
    return "parquet" if magic else form


def _parquet(path: File, stream: ByteStream) -> Iterator[Placed]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        remedy = "pip install 'albertine[data]'"
        raise DataError("is Parquet, which needs the `pyarrow` package", where=path, remedy=remedy) from error
    number = 0
    try:
        lies = isinstance(path, Path) and not path.name.lower().endswith(PACKED[1:])
        table = pq.ParquetFile(path if lies else io.BytesIO(whole(stream)))
        check_names(table.schema_arrow.names, path)
        listed = (row for batch in table.iter_batches(batch_size=_ROWS) for row in _listed(batch, pa))
        for fields in dataframes.with_class_names(listed, table.schema_arrow.metadata, path):
            number += 1
            where = f"{path}, row {number}"
            yield plain(fields, where), where
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        why = str(error).split("\n")[0]
        raise DataError(
            f"is damaged or no Parquet file ({why})", where=path, remedy="Copy it again"
        ) from error


def _listed(batch: Any, pa: Any) -> list[dict[str, Any]]:
    """The rows of a batch of Parquet. Times beyond Python's types (nanoseconds, far years) become text, and
    such durations integers, whether pandas is installed or not."""
    columns = [_in_microseconds(column, pa) for column in batch.columns]
    try:
        rows = pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
    except (ValueError, OverflowError):
        columns = [
            _as_text_or_integer(column, pa) if pa.types.is_temporal(column.type) else column
            for column in columns
        ]
        rows = pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
    found: list[dict[str, Any]] = rows
    return found


def _in_microseconds(column: Any, pa: Any) -> Any:
    """A column of nanoseconds in microseconds, as Python has them; text or integers where that would
    round."""
    kind = column.type
    if getattr(kind, "unit", None) != "ns":
        return column
    zone = {"tz": kind.tz} if pa.types.is_timestamp(kind) else {}
    maker = pa.timestamp if zone else pa.duration if pa.types.is_duration(kind) else pa.time64
    try:
        return column.cast(maker("us", **zone))
    except pa.ArrowInvalid:
        return _as_text_or_integer(column, pa)


def _as_text_or_integer(column: Any, pa: Any) -> Any:
    """A column of times as text, or of durations as integers."""
    return column.cast(pa.int64() if pa.types.is_duration(column.type) else pa.string())


def _json(lines: TextLines, listed: bool, prefix: str) -> Iterator[Placed]:
    for number, value in _elements(lines) if listed else _values(lines, prefix):
        where = f"{lines.name}:{number}"
        if not isinstance(value, dict):
            raise NoRow(
                f"holds {kind_of_value(value)}, not an object",
                where=where,
                remedy="One object a line, or one list of objects",
            )
        yield plain(value, where), where


def _values(lines: TextLines, prefix: str) -> Iterator[tuple[int, Any]]:
    squad = "; a file in SQuAD's format needs task.kind=answers" if prefix == "task." else ""
    for line in lines:
        if not line.strip():
            continue
        try:
            yield lines.number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise NoRow(
                f"is not JSON ({error})",
                where=f"{lines.name}:{lines.number}",
                remedy=f"One object a line, or one list of objects{squad}",
            ) from error


def _elements(lines: TextLines) -> Iterator[tuple[int, Any]]:
    """The elements of a JSON list, each with its first line; the whole list is never in memory."""
    decoder = json.JSONDecoder()
    border: re.Pattern[str] | None = _BEGIN
    text, line, why, at = "", 1, "it is empty", 0
    for block in lines.blocks():
        text, place = text + block, 0
        while border is not None and (found := border.match(text, place)):
            if found[1]:
                border, place = None, found.end()
                break
            begin = found.end()
            try:
                value, end = decoder.raw_decode(text, begin)
            except json.JSONDecodeError as error:
                why, at = error.msg, error.pos - place  # or it goes on in the next block
                break
            except (ValueError, RecursionError) as error:
                raise DataError(f"is not JSON ({error})", where=f"{lines.name}:{line}") from error
            line += text.count("\n", place, begin)
            yield line, value
            line += text.count("\n", begin, end)
            place, border = end, _NEXT
        text = text[place:]
        if border is None and text.strip():
            raise DataError("goes on after the end of its list", where=f"{lines.name}:{line}")
        if len(text) > LIMITS.document_characters:
            break
    if border is not None:
        where = f"{lines.name}:{line + text.count(chr(10), 0, at)}"
        raise DataError(f"is not JSON ({why})", where=where, remedy="One list of objects")


def _delimiter(head: str) -> str:
    """The delimiter of CSV by its header: Excel writes semicolons in locales with decimal commas, other
    programs tabs."""
    names = [line for line in head.split("\n") if line.strip()][:1]
    return max(_DELIMITERS, key=lambda mark: sum(map(len, csv.reader(names, delimiter=mark))))


def _separated(
    lines: TextLines, delimiter: str | None, *, quotes: bool, skip: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The fields of every line that is not blank, with its number.

    Args:
        delimiter: of CSV; None: the file is TSV. skip: leave out the first line.
    """
    texts = iter(lines)
    if skip:
        next(texts)
    if delimiter is None:
        for line in texts:
            if line.strip(" "):
                fields = line.split("\t")
                yield lines.number, [_bare(field) for field in fields] if quotes else fields
        return
    # The limit is global to the process, so it is never lowered.
    csv.field_size_limit(max(csv.field_size_limit(), LIMITS.document_characters))
    # csv.reader needs the line ends: a quoted field may span several lines.
    table = csv.reader((f"{line}\n" for line in texts), strict=True, delimiter=delimiter)
    before = lines.number
    try:
        for fields in table:
            # An empty text in quotes is a row of one column, an empty line is none.
            if len(fields) > 1 or fields == [""] or any(field.strip(" ") for field in fields):
                yield before + 1, fields
            before = lines.number
    except csv.Error as error:
        if "new-line character" in str(error):
            raise DataError(
                "has a carriage return (\\r) outside of quotes, which does not end a line as others end",
                where=f"{lines.name}:{before + 1}",
                remedy="Write it as a blank or a line feed, or put the field in quotes",
            ) from error
        raise DataError(
            f"is not CSV ({error})",
            where=f"{lines.name}:{before + 1}",
            remedy='A field with quotes in it is quoted, and they are doubled: "a ""b"" c"',
        ) from error


def _bare(field: str) -> str:
    """A field of TSV without its quotes, if it contains quotes and all of them are doubled."""
    inner = field[1:-1]
    if field[:1] == field[-1:] == '"' and '"' in inner and '"' not in inner.replace('""', ""):
        return inner.replace('""', '"')
    return field


def _headed(
    table: Iterator[tuple[int, list[str]]], header: Header, spare: str | None, where: str, prefix: str
) -> tuple[list[str], Iterator[tuple[int, list[str]]], str]:
    """The names of the columns, the lines with rows, and the remedy if a column is missing."""
    advice = "Name the columns of the file"
    first = next(table, None)
    if first is None:
        return [], table, advice
    if header is True:
        names = _with_numbers(check_names(first[1], f"{where}:{first[0]}"))
        if any(_NUMBER.fullmatch(name) or display_width(name) > _LONGEST_NAME for name in names):
            ways = {"--": "pass --no-header", "": "pass header=False"}
            how = ways.get(prefix, f"set {prefix}header=false")
            advice += f", or {how} if its first line is a row; they are then 1, 2, …"
        return names, table, advice
    names = list(header) if header else list(map(str, range(1, len(first[1]) + 1)))
    if spare is not None and names[-1] == spare and len(first[1]) == len(names) - 1:
        names.pop()
    return names, chain([first], table), f"{advice} by number" if header is False else advice


def _with_numbers(names: Sequence[str]) -> list[str]:
    """Names of columns; unnamed ones after the first, as behind a trailing comma, get their number."""
    found = list[str]()
    for at, name in enumerate(names, 1):
        found.append(name or (str(at) if "" in found and str(at) not in names else ""))
    return found


def _fields(
    table: Iterable[tuple[int, list[str]]],
    names: Sequence[str],
    lines: TextLines,
    *,
    comma: bool,
    ragged: bool,
) -> Iterator[Placed]:
    before: list[str] = []
    for number, fields in table:
        where = f"{lines.name}:{number}"
        if len(fields) == len(names):
            yield dict(zip(names, fields, strict=True)), where
        elif ragged:
            yield {}, where
        else:
            remedy = "A field must not hold a bare tab or, in CSV, an unquoted comma"
            if not comma and any(map(_half_quoted, before + fields)):
                remedy = "Save a table with a field over several lines, or with a tab in one, as CSV"
            elif lines.mixed_ends:
                remedy = (
                    "A carriage return (\\r) ends a line too, and others of this file end in line feeds: "
                    "write those inside a field as blanks, or save the table as CSV, with quotes"
                )
            raise DataError(
                f"has {len(fields)} fields, the file has {len(names)} columns ({', '.join(names)})",
                where=where,
                remedy=remedy,
            )
        before = fields


def _half_quoted(field: str) -> bool:
    """Whether a field begins or ends with a quote without a counterpart."""
    return '"' in (field[:1], field[-1:]) and field.count('"') % 2 == 1
