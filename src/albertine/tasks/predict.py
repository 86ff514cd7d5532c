"""Bulk prediction from file to file, for any number of rows; an interrupted job loses at most a few thousand.

Predictions are written in parts beside the output, in `.NAME.parts/`, with `job.json`, which identifies the
job, and `parts.jsonl`, a line for every part with its number, rows and digest. A part that differs from its
record is computed again. When the last part is written, all are checked, joined to the output in one step,
and deleted.
"""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from albertine.core.files import FILE_MODE, make_folder, os_errors_as_run_errors, replace_durably, sync_folder
from albertine.corpus.lock import locked
from albertine.corpus.workers import WorkerPool
from albertine.errors import DataError, NotFinite, RunError, SettingsError, check_integer
from albertine.inference.exported_model import ExportedModel
from albertine.tasks.family import Fields
from albertine.tasks.output_parts import (
    FORMATS,
    Columns,
    assemble,
    check_columns,
    check_escaped,
    check_lines,
    content_of,
    mark_of,
    output_form,
    without_formula,
)
from albertine.tasks.prediction_columns import chunks, taken, with_answers
from albertine.tasks.prediction_rows import rows_to_predict
from albertine.tasks.predictor import CHUNK, Predictor
from albertine.tasks.readers.table import Header, Row, rows_of
from albertine.tasks.text_vectors import cosines

JOB, RECORDS = "job.json", "parts.jsonl"
ENOUGH = 4
"""Parts for each process; with fewer, one process computes with all threads."""
Progress = Callable[[int, int], None]
ColumnFunction = Callable[..., Iterator[tuple[Row, Columns]]]
"""From rows to the rows with the columns to add, as `Predictor.columns`."""


@dataclass(frozen=True)
class FileResult:
    """The result of predicting a file.

    Attributes:
        rows: in all. before: those of an earlier command that was interrupted.
        cut: rows of tokens that were truncated.
        again: rows of an earlier command that were computed again, because their part or its record had
            changed.
    """

    rows: int
    before: int
    cut: int
    again: int = 0


@dataclass(frozen=True)
class _Part:
    """A block of rows with predictions: how many, how many rows of tokens were truncated, how many texts left
    after each number of layers, the columns, and the bytes."""

    number: int
    rows: int
    cut: int
    layers: Mapping[int, int]
    names: Sequence[str]
    content: bytes


def predict_file(
    predictor: Predictor,
    source: Path,
    output: Path,
    *,
    fields: Fields | None = None,
    function: ColumnFunction = Predictor.columns,
    header: Header = True,
    encoding: str = "utf-8",
    overwrite: bool = False,
    escape_formulas: bool = False,
    workers: int | None = None,
    progress: Progress = lambda done, total: None,
    **how: Any,
) -> FileResult:
    """Predict every row of a table, and write the rows with the predictions as further columns.

    All rows are checked before the first is computed, so that an invalid one is reported at once. The same
    command resumes an interrupted job.

    Args:
        source: any file that `finetune` reads for the model's task, with or without labels; for vectors a
            table.
        output: its suffix, one of `FORMATS`, gives the format. Nested values are JSON in formats without
            them, and a column of Parquet with values of several types is text. TSV, in which a row is a line,
            has no tab and no line break in fields. CSV and TSV have a byte order mark if `source` has one.
        function: computes the columns to add, called as `function(predictor, rows, fields, **how)`.
        fields, how: arguments of `function`. header, encoding: of `source`, as in `rows_of`.
        overwrite: replace an existing output, and discard an interrupted job of other files.
        escape_formulas: in CSV and TSV, put an apostrophe before a text that a spreadsheet would take for a
            formula: one that begins with =, +, -, @ or a line break and is not a number.
        workers: processes that compute, each with one thread, forked from this one; on CPU and Linux only. By
            default one for each thread of torch if there are `ENOUGH` parts for each.
        progress: called with the number of rows done and of all rows.

    Raises:
        SettingsError: the output exists, or its format is unknown; several workers where the model needs a
            single process. DataError: a row does not fit the task or the format. RunError: an interrupted job
            had another source, model or other settings, or there are unknown files among its parts.
    """
    form = output_form(output)
    output = output.resolve() if output.is_symlink() else output  # a link to a file stays a link
    check_free(output, overwrite)
    check_escaped(escape_formulas, form, output)
    single = _needs_single_process(predictor, workers)
    job = {
        "source": _digest(source),
        "model": predictor.fingerprint,
        "fields": None if fields is None else asdict(fields),
        "function": function.__name__,
        **how,
        "header": header if isinstance(header, bool) else list(header),
        "encoding": encoding,
        "rows": CHUNK,
        "format": form,
        **({"escape_formulas": True} if escape_formulas else {}),
    }
    mark, folder = mark_of(source), output.with_name(f".{output.name}.parts")
    with os_errors_as_run_errors(output), _parts_folder(folder):
        check_free(output, overwrite)  # another command may have written it meanwhile
        begun, dropped = _resumed_job(folder, job, overwrite)
        reading: Any = {"header": header, "encoding": encoding, "prefix": "--"}

        def opened() -> tuple[Iterator[Row], Fields | None]:
            if function is Predictor.columns:
                return rows_to_predict(source, predictor.family, fields, **reading)
            return rows_of(source, **reading), fields

        (rows, fields), late = opened(), dict[str, str]()
        if (total := begun.get("total")) is None:  # checked before hours of computing
            total, late = _checked(rows, _row_check(predictor, function, fields), form, source)
            rows, fields = opened()
        store = _Store(folder, form, {**job, "total": total}, CHUNK, begun)
        dropped &= {*range(len(store))}
        store.check_strays()
        there, changed = store.check()
        before, cut, layers = sum(map(store.rows, there)), predictor.cut, Counter(predictor.layers_used)
        processes = 1 if single else workers or _default_processes(total)
        every = enumerate(chunks(rows if processes > 1 else _ahead(rows), CHUNK))
        blocks = (block for block in every if block[0] not in there)

        def compute(block: tuple[int, Sequence[Row]]) -> _Part:
            (number, inputs), so_far, used = block, predictor.cut, Counter(predictor.layers_used)
            chunk = _naming_rows(inputs, lambda rows: list(function(predictor, rows, fields, **how)))
            table = [with_answers(row, columns) for row, columns in chunk]
            names = store.names or list(dict.fromkeys(name for row in table for name in row))
            content = content_of(table, names, form, chunk, escape_formulas)
            used = predictor.layers_used - used
            return _Part(number, len(table), predictor.cut - so_far, used, names, content)

        writer = _PartWriter(store, before, progress)
        with writer:
            # The first part is computed here: it gives the columns, and autotunes kernels before the fork.
            with _one_thread(processes > 1):
                for block in islice(blocks, 1):
                    writer.add(_not_late(compute(block), late))
            writer.wait()
            with WorkerPool(compute, writer.add, processes, weight=lambda _: 1, budget=2 * processes) as pool:
                for block in blocks:
                    pool.put(block)
                pool.finish()
        predictor.cut = cut + writer.cut
        predictor.layers_used.clear()
        predictor.layers_used.update(layers + writer.layers)
        check_free(output, overwrite)
        contents = [partial(store.content, number) for number in range(len(store))]
        header = list(map(without_formula, store.names)) if escape_formulas else store.names
        assemble(folder, output, contents, header, form, mark=mark)
        _clear(folder)
    return FileResult(writer.rows, before, writer.cut, sum(map(store.rows, changed | dropped)))


def _naming_rows(
    rows: Sequence[Row], compute: Callable[[Sequence[Row]], list[tuple[Row, Columns]]]
) -> list[tuple[Row, Columns]]:
    """The result of `compute` for some rows.

    Raises:
        NotFinite: a prediction is not finite; the error has the location of its row in the file, which is
            found by halving.
    """
    try:
        return compute(rows)
    except NotFinite as error:
        if len(rows) == 1:
            raise NotFinite(where=rows[0].where) from error
        middle = len(rows) // 2
        return _naming_rows(rows[:middle], compute) + _naming_rows(rows[middle:], compute)


def _ahead(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows; a thread reads the next part while the model computes the current one."""
    blocks = chunks(rows, CHUNK)
    with ThreadPoolExecutor(1, "albertine rows") as reader:
        coming = reader.submit(next, blocks, ())
        while block := coming.result():
            coming = reader.submit(next, blocks, ())
            yield from block


class _Store:
    """The parts of a job, numbered from 0; `job.json`, which identifies it; and `parts.jsonl`: number, rows
    and digest of every written part. A part that does not match its record is ignored.

    Args:
        folder: of the parts. form: their suffix, one of `FORMATS`. job: everything that the predictions
            depend on; its `total` is the number of rows. chunk: rows of a part; the last may have fewer.
        known: the content of `job.json` from `_read_job`.
    """

    def __init__(
        self, folder: Path, form: str, job: Mapping[str, Any], chunk: int, known: Mapping[str, Any]
    ) -> None:
        self.folder, self.form, self.job, self.chunk = folder, form, job, chunk
        self.names: Sequence[str] = known.get("columns", ())
        """The columns of the output; empty before the first part is written."""
        self._begun = bool(known)
        self._records, self._whole, self._damaged = _read_records(folder) if known else ({}, 0, False)

    def __len__(self) -> int:
        return -(-int(self.job["total"]) // self.chunk)

    def path(self, number: int) -> Path:
        return self.folder / f"{number:06d}{self.form}"

    def rows(self, number: int) -> int:
        """How many rows a part has."""
        return int(min(self.chunk, self.job["total"] - number * self.chunk))

    def write(self, number: int, rows: int, content: bytes) -> None:
        """Write a part, and then its record; before the first record the job."""
        replace_durably(self.path(number), content)
        if not self._begun:
            tree = {**self.job, "columns": list(self.names)}
            whole = {**tree, "digest": _content_digest(json.dumps(tree).encode())}
            replace_durably(self.folder / JOB, json.dumps(whole).encode())
            self._begun = True
        record = number, rows, _content_digest(content)
        self._append(f"{json.dumps(record)}\n".encode())
        self._records[number] = record

    def _append(self, line: bytes) -> None:
        """Append a record, over an incomplete one that a killed process left, and flush it to the disk."""
        path = self.folder / RECORDS
        new = not path.exists()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, FILE_MODE)
        try:
            os.ftruncate(handle, self._whole)
            os.lseek(handle, self._whole, os.SEEK_SET)
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        if new:
            sync_folder(self.folder)
        self._whole += len(line)

    def check_strays(self) -> None:
        """
        Raises:
            RunError: the folder has a file that is not of this job.
        """
        ours = {JOB, RECORDS, f"whole{self.form}", *(self.path(number).name for number in range(len(self)))}
        found = sorted(path.name for path in self.folder.iterdir() if not path.name.startswith("."))
        if strays := [name for name in found if name not in ours]:
            shown = ", ".join(f"`{name}`" for name in strays[:3]) + (", …" if len(strays) > 3 else "")
            raise RunError(
                f"holds {shown}, which the interrupted command did not write",
                where=self.folder,
                remedy="Move it elsewhere or delete it, and run the same command again",
            )

    def check(self) -> tuple[Set[int], Set[int]]:
        """The numbers of the intact parts, and of those that changed, or whose record did, after they were
        written. A part that a killed process left without a record is neither."""
        good, changed, unrecorded = set[int](), set[int](), set[int]()
        for number in range(len(self)):
            if number in self._records:
                (good if self._written(number) is not None else changed).add(number)
            elif self.path(number).exists():
                unrecorded.add(number)
        strange = not self._records.keys() <= {*range(len(self))}
        # Parts are written one by one: a killed process leaves at most one without a record.
        if self._damaged or strange or len(unrecorded) > 1:
            changed |= unrecorded
        return good, changed

    def _written(self, number: int) -> bytes | None:
        """The bytes of a part if they match its record; else None."""
        try:
            content = self.path(number).read_bytes()
        except FileNotFoundError:
            return None
        right = self._records.get(number) == (number, self.rows(number), _content_digest(content))
        return content if right else None

    def content(self, number: int) -> bytes:
        """The bytes of a part.

        Raises:
            RunError: they do not match its record.
        """
        content = self._written(number)
        if content is None:
            raise RunError(
                "is not what was written there",
                where=self.path(number),
                remedy="Run the same command again: it computes this part anew",
            )
        return content


def _read_job(folder: Path) -> dict[str, Any]:
    """The content of `job.json`; empty if it is missing or damaged. Raises OSError: it cannot be read."""
    try:
        tree = json.loads((folder / JOB).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    if not isinstance(tree, dict):
        return {}
    digest = tree.pop("digest", None)
    return tree if digest == _content_digest(json.dumps(tree).encode()) else {}


_Record = tuple[int, int, str]
"""Number, rows and digest of a part."""


def _read_records(folder: Path) -> tuple[dict[int, _Record], int, bool]:
    """The records of the parts by their numbers; the size of `parts.jsonl` without an incomplete last line;
    and whether another line is damaged."""
    try:
        content = (folder / RECORDS).read_bytes()
    except FileNotFoundError:
        return {}, 0, False
    found, damaged = dict[int, _Record](), False
    content = content[: content.rfind(b"\n") + 1]
    for line in content.splitlines():
        try:
            match json.loads(line):
                case [int(number), int(rows), str(digest)]:
                    found[number] = number, rows, digest
                case _:
                    damaged = True
        except (ValueError, RecursionError):
            damaged = True
    return found, len(content), damaged


def _content_digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class _PartWriter:
    """Writes each part of a job in a thread while the next is computed.

    Args:
        rows: how many an earlier command computed.

    Attributes:
        rows, cut: how many there are, and how many rows of tokens this command truncated.
        layers: how many texts have left after each number of layers, of this command.
    """

    def __init__(self, store: _Store, rows: int, progress: Progress) -> None:
        self.store, self.rows, self.cut, self.layers = store, rows, 0, Counter[int]()
        self._progress, self._writer = progress, ThreadPoolExecutor(1, "albertine parts")
        self._written = self._writer.submit(lambda: None)

    def __enter__(self) -> None:
        self.wait()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self._writer:
            if kind is None:
                self.wait()

    def wait(self) -> None:
        """Wait until the last part is written, and report the number of rows that are done."""
        self._written.result()
        self._progress(self.rows, self.store.job["total"])

    def add(self, part: _Part) -> None:
        self.wait()
        self.store.names = part.names
        self.rows, self.cut = self.rows + part.rows, self.cut + part.cut
        self.layers.update(part.layers)
        self._written = self._writer.submit(self.store.write, part.number, part.rows, part.content)


def _needs_single_process(predictor: Predictor, workers: int | None) -> bool:
    """Whether the model cannot be used by forked processes.

    Raises:
        SettingsError: it cannot, and several were requested; or less than one.
    """
    check_integer("workers", 1 if workers is None else workers, 1)
    model = predictor.model
    # A daemonic process, such as a pool's worker, may have no children.
    can_fork = sys.platform == "linux" and not multiprocessing.current_process().daemon
    if can_fork and not isinstance(model, ExportedModel) and model.device.type == "cpu":
        return False
    if workers is not None and workers > 1:
        raise SettingsError(
            "several processes answer on a processor alone, on Linux, no exported graph, in no pool's worker",
            remedy="Leave the number of workers out",
        )
    return True


def _default_processes(rows: int) -> int:
    """The default number of processes: as many as torch has threads, if there is work for all.

    Args:
        rows: of the whole file, so that a resumed job computes as before.
    """
    import torch

    threads = torch.get_num_threads()
    return threads if rows >= ENOUGH * threads * CHUNK else 1


@contextmanager
def _one_thread(active: bool) -> Iterator[None]:
    """A context in which torch has one thread, as in a worker, if `active`: results are then bitwise
    equal."""
    if not active:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def check_free(output: Path, overwrite: bool) -> None:
    """
    Raises:
        SettingsError: the output exists, and `overwrite` is not set.
    """
    if output.exists() and not overwrite:
        raise SettingsError("is there already", where=output, remedy="Pass --overwrite, or name another file")


def _digest(source: Path) -> str:
    """A digest of a file, or of those in a folder.

    Raises:
        DataError: it cannot be read, or only once.
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


def _row_check(
    predictor: Predictor, function: ColumnFunction, fields: Fields | None
) -> Callable[[Row], object]:
    """A function that raises DataError for a row without the input of `function`."""
    if function is Predictor.columns:
        family = predictor.family
        columns = fields or family.fields
        return lambda row: family.example(row, columns)
    named = fields or Fields()
    return (lambda row: (named.first(row), named.needed(row))) if function is cosines else named.first


def _checked(
    rows: Iterable[Row], check: Callable[[Row], object], form: str, source: Path
) -> tuple[int, dict[str, str]]:
    """Check every row. Returns the number of rows, and the columns of JSON lines that are not in the first
    part, each with the first row that has it.

    Raises:
        DataError: a row is invalid, or the format cannot hold it; or there are no rows.
    """
    names, late, count = set[str](), dict[str, str](), 0
    for count, row in enumerate(rows, 1):
        check(row)
        if count <= CHUNK:
            names.update(row.fields)
        elif form != ".jsonl":
            check_columns(row.fields, names, row.where)
        elif not row.fields.keys() <= names:
            late = dict.fromkeys(row.fields.keys() - names, row.where) | late
        if form == ".tsv":
            check_lines(row.fields, row.where)
    if not count:
        raise DataError("holds no rows", where=source)
    return count, late


def _not_late(part: _Part, late: Mapping[str, str]) -> _Part:
    """The first part. Raises DataError: a later row has a column with the name of a prediction column."""
    for name in late.keys() & {*part.names}:
        raise taken(name, late[name])
    return part


@contextmanager
def _parts_folder(folder: Path) -> Iterator[None]:
    """A context with the folder of the parts locked; it is removed at the end if it is empty."""
    make_folder(folder)
    gc.freeze()  # without it the collector scans all objects of torch repeatedly, a sixth of the time
    try:
        with locked(folder):
            yield
    except DataError as error:
        if not _is_environmental(error):  # the remedy changes the input, so the parts would be of another job
            _clear(folder)
        raise
    finally:
        gc.unfreeze()
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _is_environmental(error: BaseException | None) -> bool:
    """Whether an error is due to a disk or a missing package, and not to the input."""
    return error is not None and (
        isinstance(error, OSError | ImportError) or _is_environmental(error.__cause__)
    )


def _clear(folder: Path) -> None:
    """Delete the job, then its parts and their records; files of other names stay. The open lock file is not
    deleted: on a network file system it would stay under another name."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name != JOB):
        stem, _, ending = path.name.removeprefix(".").removesuffix(".new").partition(".")
        if path.name in (JOB, RECORDS) or (
            (stem.isdigit() or stem in ("whole", "job")) and f".{ending}" in (*FORMATS, ".json")
        ):
            path.unlink()


def _resumed_job(folder: Path, job: Mapping[str, Any], overwrite: bool) -> tuple[Mapping[str, Any], set[int]]:
    """The content of `job.json` of this job, empty if a new job begins; and the numbers of parts that were
    deleted because it was damaged.

    Raises:
        RunError: the parts are of another job.
    """
    known = _read_job(folder)
    if known and {name: known.get(name) for name in job} == dict(job):
        return known, set()
    if known and not overwrite:
        different = [name for name in job if known.get(name) != job[name]]
        raise RunError(
            f"holds the parts of an interrupted command with another {', '.join(different)}",
            where=folder,
            remedy="Pass --overwrite to begin anew, or the same arguments as before",
        )
    damaged = not known and (folder / JOB).exists()
    form = job["format"]
    parts = (
        {int(path.stem) for path in folder.glob(f"*{form}") if path.stem.isdecimal()} if damaged else set()
    )
    _clear(folder)
    sync_folder(folder)
    return {}, parts
