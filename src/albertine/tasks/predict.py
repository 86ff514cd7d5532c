"""A file of questions to a file of answers: any number of rows, and a kill loses at most the last thousands.

What is answered lies in parts beside the output, in `.NAME.parts/`, each whole or not there, with `job.json`,
which says of what they are; when the last one is written they become the output in one step, and go.
"""

from __future__ import annotations

import codecs
import csv
import gc
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from albertine.corpus.lock import NAME as LOCK
from albertine.corpus.lock import locked
from albertine.errors import DataError, RunError, SettingsError
from albertine.files import explained, make_folder, replace_durably, sync_folder
from albertine.tasks.asking import chunks, decimals, with_answers
from albertine.tasks.family import Fields
from albertine.tasks.predictor import CHUNK, Predictor
from albertine.tasks.questions import rows_to_ask
from albertine.tasks.readers.files import unpacked
from albertine.tasks.readers.table import Header, Row, rows_of
from albertine.tasks.vectors import cosines

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
JOB = "job.json"
BLOCK = 1 << 20
NESTED = (list, tuple, dict)
"""Values that CSV, TSV and Parquet have as JSON."""
_USUAL = frozenset((str, float, int, type(None)))
"""Types whose values every format has."""
_BREAKS = re.compile("[\t\n\r]")
Columns = dict[str, Any]
Progress = Callable[[int, int | None], None]
Ask = Callable[..., Iterator[tuple[Row, Columns]]]


@dataclass(frozen=True)
class Answered:
    """How a file was answered: rows in all, those of an earlier command that was interrupted, and rows of
    tokens that lost their end."""

    rows: int
    before: int
    cut: int


def predict_file(
    predictor: Predictor,
    source: Path,
    output: Path,
    *,
    fields: Fields | None = None,
    ask: Ask = Predictor.columns,
    header: Header = True,
    encoding: str = "utf-8",
    overwrite: bool = False,
    progress: Progress = lambda done, total: None,
    **how: Any,
) -> Answered:
    """Ask a model about every row of a table, and write the rows with its answers as further columns.

    All rows are looked at before the first is asked about, so that a wrong one costs no answers. The same
    command goes on where it was interrupted.

    Args:
        source: as `finetune` reads it for the model's task, with answers or without; for vectors a table.
        output: told apart by its ending, one of `FORMATS`; lists and the like are JSON in it where the format
            has none, and a column of Parquet whose values are of no one type is text. TSV, in which a row is
            a line, holds no tab and no line break. CSV and TSV have the mark of UTF-8 where `source` has it.
        ask: gives every row its further columns, called as `ask(predictor, rows, fields, **how)`.
        fields, how: as `ask` has them. header, encoding: of `source`, as in `rows_of`.
        overwrite: an output that is there is replaced, and an interrupted job of other files forgotten.
        progress: told how many rows are done of how many; None: an earlier version began, and did not say.

    Raises:
        SettingsError: the output is there, or of an unknown format. DataError: a row is not what the task
            asks about, or the format cannot hold it. RunError: an interrupted job was of another source,
            model or other settings.
    """
    form = _form(output)
    output = output.resolve() if output.is_symlink() else output  # a link to a file stays a link
    check_free(output, overwrite)
    job = {
        "source": _digest(source),
        "model": predictor.fingerprint,
        "fields": None if fields is None else asdict(fields),
        "asked": ask.__name__,
        **how,
        "header": header if isinstance(header, bool) else list(header),
        "encoding": encoding,
        "rows": CHUNK,
        "format": form,
    }
    mark, folder = _mark(source), output.with_name(f".{output.name}.parts")
    with explained(output), _working_in(folder):
        check_free(output, overwrite)  # another command may have made it meanwhile
        parts, begun = _begun(folder, job, overwrite)
        names, total = begun.get("columns", []), begun.get("total")
        reading: Any = {"header": header, "encoding": encoding, "prefix": "--"}

        def asked() -> tuple[Iterator[Row], Fields | None]:
            if ask is Predictor.columns:
                return rows_to_ask(source, predictor.family, fields, **reading)
            return rows_of(source, **reading), fields

        rows, fields = asked()
        if not parts:  # before hours are spent on answers
            total = _checked(rows, _question(predictor, ask, fields), form)
            if not total:
                raise DataError("holds no rows", where=source)
            rows, fields = asked()
        before = done = sum(1 for _ in islice(rows, parts * CHUNK))
        progress(done, total)
        with ThreadPoolExecutor(1, "albertine parts") as writer:
            written = writer.submit(lambda: None)
            for chunk in chunks(ask(predictor, _ahead(rows), fields, **how), CHUNK):
                table = [with_answers(row, told) for row, told in chunk]
                names = names or list(dict.fromkeys(name for row in table for name in row))
                written.result()  # before it is told, and before the one behind it
                progress(done, total)
                told = None if done else {**job, "columns": names, "total": total}
                part = folder / f"{done // CHUNK:06d}{form}"
                written = writer.submit(_write, part, chunk, table, names, told)
                done += len(table)
            written.result()
            progress(done, total)
        check_free(output, overwrite)
        _assemble(folder, output, names, form, mark=mark)
        _clear(folder)
    return Answered(done, before, predictor.cut)


def _ahead(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, of which a thread reads the next part while the model is asked about this one."""
    blocks = chunks(rows, CHUNK)
    with ThreadPoolExecutor(1, "albertine rows") as reader:
        coming = reader.submit(next, blocks, ())
        while block := coming.result():
            coming = reader.submit(next, blocks, ())
            yield from block


def _write(
    part: Path,
    chunk: Sequence[tuple[Row, Columns]],
    table: Sequence[Columns],
    names: Sequence[str],
    job: Mapping[str, Any] | None,
) -> None:
    """A part, and behind the first one what the job is."""
    replace_durably(part, _part(table, names, part.suffix, chunk))
    if job is not None:
        replace_durably(part.with_name(JOB), json.dumps(job).encode())


def check_free(output: Path, overwrite: bool) -> None:
    """
    Raises:
        SettingsError: the output is there, and is not to be replaced.
    """
    if output.exists() and not overwrite:
        raise SettingsError("is there already", where=output, remedy="Pass --overwrite, or name another file")


def _form(output: Path) -> str:
    if output.suffix.lower() not in FORMATS:
        known = ", ".join(FORMATS)
        raise SettingsError(
            f"ends in `{output.suffix}`", where=output, remedy=f"Name a file that ends in {known}"
        )
    return output.suffix.lower()


def _digest(source: Path) -> str:
    """A digest of a file, or of those in a folder.

    Raises:
        DataError: it cannot be read, or not again.
    """
    digest = hashlib.blake2b(digest_size=16)
    if source.exists() and not (source.is_file() or source.is_dir()):
        raise DataError(
            "is a stream, which can be read once", where=source, remedy="Write its content to a file first"
        )
    try:
        for path in sorted(source.rglob("*.txt")) if source.is_dir() else (source,):
            digest.update(bytes(path.relative_to(source)))
            with path.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=source) from error
    return digest.hexdigest()


def _question(predictor: Predictor, ask: Ask, fields: Fields | None) -> Callable[[Row], object]:
    """What takes out of a row what is asked, and so refuses one that does not hold it."""
    if ask is Predictor.columns:
        family = predictor.family
        usual = fields or family.fields
        return lambda row: family.example(row, usual)
    named = fields or Fields()
    return (lambda row: (named.first(row), named.needed(row))) if ask is cosines else named.first


def _checked(rows: Iterable[Row], question: Callable[[Row], object], form: str) -> int:
    """How many rows there are, after a look at each.

    Raises:
        DataError: one is not what is asked about, or the output cannot hold it.
    """
    names, count = set[str](), 0
    for count, row in enumerate(rows, 1):
        question(row)
        if count <= CHUNK:
            names.update(row.fields)
        elif form != ".jsonl":
            _check_columns(row.fields, names, row.where)
        if form == ".tsv":
            _check_lines(row.fields, row.where)
    return count


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """The folder of the parts, alone; an empty one does not stay."""
    make_folder(folder)
    gc.freeze()  # else the collector looks at all of torch again and again, a sixth of the time
    try:
        with locked(folder):
            yield
    except DataError as error:
        if not _outside(error):  # the remedy changes what is asked, and then the parts are of another job
            shutil.rmtree(folder)
        raise
    finally:
        gc.unfreeze()
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _outside(error: BaseException | None) -> bool:
    """Whether a disk, or a package that is not installed, is to blame, and not what is asked."""
    return error is not None and (isinstance(error, OSError | ImportError) or _outside(error.__cause__))


def _clear(folder: Path) -> None:
    """Delete the job, then its parts. The lock is open: where the network has the folder, an open file would
    stay in it under another name."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name != JOB):
        if path.name != LOCK:
            path.unlink()


def _begun(folder: Path, job: Mapping[str, Any], overwrite: bool) -> tuple[int, Mapping[str, Any]]:
    """How many parts there are of this job, and what `job.json` tells of them."""
    parts = [path for path in folder.iterdir() if path.stem.isdigit()]
    try:
        known = json.loads((folder / JOB).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        known = None
    if known is not None and {name: known.get(name) for name in job} == dict(job):
        there = {int(path.stem) for path in parts}  # a kill while they are deleted leaves gaps
        return next(number for number in count() if number not in there), known
    if known is not None and not overwrite:
        different = [name for name in job if known.get(name) != job[name]]
        raise RunError(
            f"holds the parts of an interrupted command with another {', '.join(different)}",
            where=folder,
            remedy="Pass --overwrite to begin anew, or give what it was given",
        )
    _clear(folder)
    return 0, {}


def _part(
    table: Sequence[Columns], names: Sequence[str], form: str, chunk: Sequence[tuple[Row, Columns]]
) -> bytes:
    """The bytes of a part; all parts of text one after the other are the output, but for its header."""
    if form == ".jsonl":
        return "".join(_json(row) + "\n" for row in table).encode()
    known = frozenset(names)
    for (row, _), joined in zip(chunk, table, strict=True):
        _check_columns(joined, known, row.where)
        if form == ".tsv":
            _check_lines(joined, row.where)
    cells = [
        [value if value.__class__ in _USUAL else _cell(value, form) for value in map(row.get, names)]
        for row in table
    ]
    if form == ".parquet":
        return _parquet(cells, names)
    return _text(cells, form)


def _check_columns(fields: Mapping[str, Any], known: Set[str], where: str) -> None:
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


def _check_lines(fields: Mapping[str, Any], where: str) -> None:
    """
    Raises:
        DataError: a row is more than a line, or a field more than one of TSV.
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
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """What JSON has no form for: vectors as lists, times as ISO 8601 writes them, bytes as the text that they
    are."""
    if isinstance(value, np.ndarray):
        return decimals(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _cell(value: Any, form: str) -> Any:
    """A value as a column of CSV, TSV or Parquet has it."""
    if isinstance(value, NESTED) or (isinstance(value, np.ndarray) and form != ".parquet"):
        return _json(value)
    return _plain(value) if isinstance(value, bytes) and form != ".parquet" else value


def _text(cells: Sequence[Sequence[Any]], form: str) -> bytes:
    text = io.StringIO()
    how: Any = {"delimiter": "," if form == ".csv" else "\t", "lineterminator": "\n"}
    csv.writer(text, **how).writerows(cells)
    if "\r" in text.getvalue():  # which is left bare, and readers take it for the end of a row
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
    """A column of Parquet: text where its values are of no one type."""
    try:
        return arrow.array(values)
    except (arrow.ArrowException, OverflowError):
        texts = [value if isinstance(value, str | None) else _json(value) for value in values]
        return arrow.array(texts, arrow.string())


def _schema(parts: Sequence[Any], arrow: Any) -> Any:
    """The columns of Parquet that hold those of all parts: text where their types do not go together.

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


def _mark(source: Path) -> bytes:
    """The mark of UTF-8, if it begins a file: without it Excel takes a text for one of another encoding."""
    if source.is_dir():
        return b""
    with unpacked(source) as stream:
        return codecs.BOM_UTF8 if stream.head(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else b""


def _assemble(folder: Path, output: Path, names: Sequence[str], form: str, *, mark: bytes) -> None:
    """Make the parts the output, in one step; a text with names begins with the mark."""
    whole = folder / f"whole{form}"
    parts = sorted(path for path in folder.iterdir() if path.stem.isdigit())
    if form == ".parquet":
        arrow, parquet = _pyarrow()
        schema = _schema([parquet.read_schema(part) for part in parts], arrow)
        with parquet.ParquetWriter(whole, schema) as writer:
            for part in parts:
                table = parquet.read_table(part)
                writer.write_table(table.cast(schema, safe=False))  # whole numbers may become fractions
    else:
        with whole.open("wb") as file:
            file.write(b"" if form == ".jsonl" else mark + _text([names], form))
            for part in parts:
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, file, BLOCK)
    sync_folder(whole)  # opened for reading, a file is flushed as a folder is
    os.replace(whole, output)
    sync_folder(output.parent)
