"""Readers of JSON lines and Parquet: one document per record, from a text field."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from albertine.errors import DataError
from albertine.text.formats import detect_wrapping
from albertine.text.lines import TextLines, too_long_error
from albertine.text.plain_text import Paragraphs, remove_soft_hyphens, separate_paragraphs, unwrap_paragraphs
from albertine.text.streams import ByteStream, Limits, PackageMissing

_BATCH_ROWS = 256


def _lines(text: str) -> list[str]:
    """The lines of a text; if it is hard-wrapped, its paragraphs."""
    lines = remove_soft_hyphens(text).splitlines()
    shape = detect_wrapping(lines)
    return lines if shape is None else unwrap_paragraphs(separate_paragraphs("\n".join(lines), shape))


def _paragraphs(value: Any, title: Any, where: str, field: str, limits: Limits) -> Paragraphs:
    """The paragraphs of a text or list of texts, without a first one that repeats the title."""
    if value is None:
        return ()
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise DataError(
            f"the field `{field}` holds {type(value).__name__}, not text",
            where=where,
            remedy="Pass --text-field",
        )
    if sum(map(len, texts)) > limits.document_characters:
        raise too_long_error(where, limits, "a document is")
    lines = [line for text in texts for raw in _lines(text) if (line := raw.strip("\ufeff \t\r\n\u3000"))]
    if lines and isinstance(title, str) and lines[0] == title.strip():
        del lines[0]
    return tuple(line.replace("\0", "") for line in lines)


def _no_field(field: str, names: list[str], where: str) -> DataError:
    shown = ", ".join(f"`{name}`" for name in names[:12]) or "none"
    return DataError(
        f"has no field `{field}`", where=where, remedy=f"Pass --text-field; fields here: {shown}"
    )


def read_jsonl(lines: TextLines, field: str, limits: Limits) -> Iterator[Paragraphs]:
    """One document per line; blank lines are skipped.

    Raises:
        DataError: a line is not a JSON object or lacks the field; names file and line.
    """
    for line in lines:
        if not (text := line.strip()):
            continue
        where = f"{lines.name}:{lines.number}"
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            remedy = "Write one JSON object a line, without line breaks inside"
            raise DataError(f"is not a line of JSON ({reason})", where=where, remedy=remedy) from error
        if not isinstance(record, dict):
            raise DataError(
                f"holds a JSON {type(record).__name__}, not an object",
                where=where,
                remedy='Write one {"text": …} object a line',
            )
        if field not in record:
            raise _no_field(field, list(record), where)
        title = record.get("title") if field != "title" else None
        if paragraphs := _paragraphs(record[field], title, where, field, limits):
            yield paragraphs


def read_parquet(stream: ByteStream, path: Path | None, field: str, limits: Limits) -> Iterator[Paragraphs]:
    """One document per row, a batch of rows in memory at a time.

    Parquet has its index at the end, so only a plain file (`path`) is streamed; one inside an archive is read
    into memory, up to `limits.in_memory_bytes`.

    Raises:
        DataError: pyarrow missing, file damaged, field missing, not text or unreadable.
    """
    name = stream.name
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        remedy = "pip install 'albertine[data]'"
        raise PackageMissing(
            "is Parquet, which needs the `pyarrow` package", where=name, remedy=remedy
        ) from error
    damaged = "is damaged or no Parquet file"
    try:
        table = pq.ParquetFile(path if path is not None else _in_memory(stream, limits))
        names = table.schema_arrow.names
        if field not in names:
            raise _no_field(field, names, name)
        columns = [field, "title"] if "title" in names and field != "title" else [field]
        row = 0
        for batch in table.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
            titles = batch.column("title").to_pylist() if len(columns) > 1 else [None] * batch.num_rows
            for value, title in zip(batch.column(field).to_pylist(), titles, strict=True):
                row += 1
                if paragraphs := _paragraphs(value, title, f"{name}, row {row}", field, limits):
                    yield paragraphs
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{damaged} ({str(error).splitlines()[0]})", where=name, remedy="Copy it again"
        ) from error
    except (ValueError, OverflowError) as error:  # bytes that are not UTF-8, times beyond Python's
        remedy = "Write it again as UTF-8 text"
        raise DataError(f"holds values that cannot be read ({error})", where=name, remedy=remedy) from error


def _in_memory(stream: ByteStream, limits: Limits) -> io.BytesIO:
    content = io.BytesIO()
    while block := stream.read():
        content.write(block)
        if content.tell() > limits.in_memory_bytes:
            raise DataError(
                "is a large Parquet file in an archive", where=stream.name, remedy="Unpack it first"
            )
    content.seek(0)
    return content
