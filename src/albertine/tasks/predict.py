"""A file of questions to a file of answers: any number of rows, and a kill loses at most the last thousands.

What is answered lies in parts beside the output, in `.NAME.parts/`, each whole or not there, with `job.json`,
which says of what they are; when the last one is written they become the output in one step, and go.
"""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from albertine.corpus.lock import NAME as LOCK
from albertine.corpus.lock import locked
from albertine.corpus.workers import WorkerPool
from albertine.errors import DataError, RunError, SettingsError, check_whole
from albertine.files import explained, make_folder, replace_durably
from albertine.inference.exported import ExportedModel
from albertine.tasks.asking import chunks, taken, with_answers
from albertine.tasks.family import Fields
from albertine.tasks.parts import (
    Columns,
    assemble,
    check_columns,
    check_lines,
    content_of,
    mark_of,
    output_form,
)
from albertine.tasks.predictor import CHUNK, Predictor
from albertine.tasks.questions import rows_to_ask
from albertine.tasks.readers.table import Header, Row, rows_of
from albertine.tasks.vectors import cosines

JOB = "job.json"
ENOUGH = 4
"""Parts for each process; with fewer, one process computes with all threads."""
Progress = Callable[[int, int], None]
Ask = Callable[..., Iterator[tuple[Row, Columns]]]


@dataclass(frozen=True)
class Answered:
    """How a file was answered: rows in all, those of an earlier command that was interrupted, and rows of
    tokens that lost their end."""

    rows: int
    before: int
    cut: int


@dataclass(frozen=True)
class _Part:
    """Some rows, answered: how many, how many rows of tokens lost their end, the columns, and the bytes."""

    number: int
    rows: int
    cut: int
    names: Sequence[str]
    content: bytes


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
    workers: int | None = None,
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
        workers: processes that answer, each with a thread of its own, on a processor and Linux, forked from
            this one. By default one for each thread of torch where every one has `ENOUGH` parts to answer.
        progress: told how many rows are done of how many.

    Raises:
        SettingsError: the output is there, or of an unknown format; several workers where the model lives in
            one process. DataError: a row is not what the task asks about, or the format cannot hold it.
            RunError: an interrupted job was of another source, model or other settings.
    """
    form = output_form(output)
    output = output.resolve() if output.is_symlink() else output  # a link to a file stays a link
    check_free(output, overwrite)
    alone = _alone(predictor, workers)
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
    mark, folder = mark_of(source), output.with_name(f".{output.name}.parts")
    with explained(output), _working_in(folder):
        check_free(output, overwrite)  # another command may have made it meanwhile
        there, begun = _begun(folder, job, overwrite)
        reading: Any = {"header": header, "encoding": encoding, "prefix": "--"}

        def asked() -> tuple[Iterator[Row], Fields | None]:
            if ask is Predictor.columns:
                return rows_to_ask(source, predictor.family, fields, **reading)
            return rows_of(source, **reading), fields

        (rows, fields), late = asked(), dict[str, str]()
        if (total := begun.get("total")) is None:  # before hours are spent on answers
            total, late = _checked(rows, _question(predictor, ask, fields), form, source)
            rows, fields = asked()
        before, cut = sum(min(CHUNK, total - number * CHUNK) for number in there), predictor.cut
        processes = 1 if alone else workers or _fitting(total)
        every = enumerate(chunks(rows if processes > 1 else _ahead(rows), CHUNK))
        blocks = (block for block in every if block[0] not in there)

        def answer(block: tuple[int, Sequence[Row]]) -> _Part:
            (number, asked), so_far = block, predictor.cut
            chunk = list(ask(predictor, asked, fields, **how))
            table = [with_answers(row, told) for row, told in chunk]
            names = kept.names or list(dict.fromkeys(name for row in table for name in row))
            content = content_of(table, names, form, chunk)
            return _Part(number, len(table), predictor.cut - so_far, names, content)

        kept = _Kept(folder, {**job, "total": total}, before, begun.get("columns", ()), progress)
        with kept:
            with _as_a_worker(processes > 1):  # one here: it tells the columns, and tries kernels out for all
                for block in islice(blocks, 1):
                    kept.add(_not_late(answer(block), late))
            kept.settle()
            with WorkerPool(answer, kept.add, processes, weight=lambda _: 1, budget=2 * processes) as pool:
                for block in blocks:
                    pool.put(block)
                pool.finish()
        predictor.cut = cut + kept.cut
        check_free(output, overwrite)
        assemble(folder, output, kept.names, form, mark=mark)
        _clear(folder)
    return Answered(kept.rows, before, kept.cut)


def _ahead(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, of which a thread reads the next part while the model is asked about this one."""
    blocks = chunks(rows, CHUNK)
    with ThreadPoolExecutor(1, "albertine rows") as reader:
        coming = reader.submit(next, blocks, ())
        while block := coming.result():
            coming = reader.submit(next, blocks, ())
            yield from block


class _Kept:
    """The parts of a job: each is written while the next is answered, and the job with the first.

    Args:
        job: what `job.json` tells, but for the columns. rows: how many an earlier command answered.
        names: the columns, if they are known.

    Attributes:
        rows, cut: how many there are, and how many rows of tokens lost their end in this command.
    """

    def __init__(
        self, folder: Path, job: Mapping[str, Any], rows: int, names: Sequence[str], progress: Progress
    ) -> None:
        self.folder, self.job, self.rows, self.names, self.cut = folder, job, rows, names, 0
        self._progress, self._writer = progress, ThreadPoolExecutor(1, "albertine parts")
        self._written = self._writer.submit(lambda: None)

    def __enter__(self) -> None:
        self.settle()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self._writer:
            if kind is None:
                self.settle()

    def settle(self) -> None:
        """Wait until the last part is written, and tell how many rows are done."""
        self._written.result()
        self._progress(self.rows, self.job["total"])

    def add(self, part: _Part) -> None:
        self.settle()
        self.names, self.rows, self.cut = part.names, self.rows + part.rows, self.cut + part.cut
        self._written = self._writer.submit(self._write, part)

    def _write(self, part: _Part) -> None:
        replace_durably(self.folder / f"{part.number:06d}{self.job['format']}", part.content)
        if part.number == 0:
            told = {**self.job, "columns": part.names}
            replace_durably(self.folder / JOB, json.dumps(told).encode())


def _alone(predictor: Predictor, workers: int | None) -> bool:
    """Whether the model lives in one process.

    Raises:
        SettingsError: it does, and several were asked for; or less than one.
    """
    check_whole("workers", 1 if workers is None else workers, 1)
    model = predictor.model
    here = sys.platform == "linux" and not multiprocessing.current_process().daemon  # which may have no child
    if here and not isinstance(model, ExportedModel) and model.device.type == "cpu":
        return False
    if workers is not None and workers > 1:
        raise SettingsError(
            "several processes answer on a processor alone, on Linux, no exported graph, in no pool's worker",
            remedy="Leave the number of workers out",
        )
    return True


def _fitting(rows: int) -> int:
    """How many processes answer if nobody says: as many as torch has threads, if there is work for all.

    Args:
        rows: how many there are in all, so that a command that goes on computes as the one before it.
    """
    import torch

    threads = torch.get_num_threads()
    return threads if rows >= ENOUGH * threads * CHUNK else 1


@contextmanager
def _as_a_worker(one: bool) -> Iterator[None]:
    """Within, torch has one thread as a worker has, if `one`: its answers are the same to the last digit."""
    if not one:
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
        SettingsError: the output is there, and is not to be replaced.
    """
    if output.exists() and not overwrite:
        raise SettingsError("is there already", where=output, remedy="Pass --overwrite, or name another file")


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


def _checked(
    rows: Iterable[Row], question: Callable[[Row], object], form: str, source: Path
) -> tuple[int, dict[str, str]]:
    """How many rows there are, after a look at each, and the columns of JSON lines that none of the first
    part has, each with the first row that has it.

    Raises:
        DataError: one is not what is asked about, or the output cannot hold it; or there is none.
    """
    names, late, count = set[str](), dict[str, str](), 0
    for count, row in enumerate(rows, 1):
        question(row)
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
    """The first part. Raises DataError: a later row has a column of the name of an answer."""
    for name in late.keys() & {*part.names}:
        raise taken(name, late[name])
    return part


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


def _begun(folder: Path, job: Mapping[str, Any], overwrite: bool) -> tuple[Set[int], Mapping[str, Any]]:
    """The parts of this job that are there, of several processes and after a kill while they are deleted with
    gaps between them, and what `job.json` tells of them."""
    parts = [path for path in folder.iterdir() if path.stem.isdigit()]
    try:
        known = json.loads((folder / JOB).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        known = None
    if known is not None and {name: known.get(name) for name in job} == dict(job):
        return {int(path.stem) for path in parts}, known
    if known is not None and not overwrite:
        different = [name for name in job if known.get(name) != job[name]]
        raise RunError(
            f"holds the parts of an interrupted command with another {', '.join(different)}",
            where=folder,
            remedy="Pass --overwrite to begin anew, or give what it was given",
        )
    _clear(folder)
    return frozenset(), {}
