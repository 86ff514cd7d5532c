"""Rows of a task file: TSV, CSV or JSON lines, compressed or not, each with the line it stood in."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Generic, TypeVar

from albertine.errors import DataError
from albertine.text.lines import TextLines, check_encoding
from albertine.text.streams import ByteStream, Limits, tar_members, unpack

PACKED = ("", ".xz", ".gz", ".zst", ".bz2")
LIMITS = Limits()
E = TypeVar("E")


class NotThere(DataError):
    """A folder lacks a file of its data set."""


@dataclass(frozen=True)
class Row:
    """One record: its fields by name, and `file:line`."""

    fields: Mapping[str, Any]
    where: str

    def get(self, name: str) -> Any:
        """A field.

        Raises:
            DataError: the row has no such field.
        """
        if name not in self.fields:
            raise DataError(
                f"has no column `{name}`; it has {', '.join(f'`{n}`' for n in self.fields)}",
                where=self.where,
                remedy="Name the columns of the file in the task's settings"
                if "data" not in self.fields
                else "If these are questions about passages (SQuAD's format), set task.kind=answers",
            )
        return self.fields[name]

    def text(self, name: str) -> str:
        """A field that must be text or a number."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise DataError(f"`{name}` is {_kind(value)}, not text", where=self.where)
        return str(value)


@dataclass(frozen=True)
class TaskSet(Generic[E]):
    """A data set of examples E: how a split is read from its folder, and which splits there are."""

    read: Callable[[Path, str], Iterator[E]]
    splits: tuple[str, ...] = ("train", "dev", "test")


@dataclass(frozen=True)
class Member:
    """A file in a tar: the archive, and its name in there."""

    archive: Path
    name: str

    def __str__(self) -> str:
        return f"{self.archive}:{self.name}"


File = Path | Member


def find(folder: Path, name: str, archive: str | None = None) -> File:
    """The file of that name in a folder, compressed or not.

    Args:
        name: may begin with a folder's; that folder may be the one given.
        archive: name of a tar that may hold the file instead; whether it does is found out when it is read.

    Raises:
        NotThere: it is not.
    """
    inner, _, own = name.rpartition("/")
    for place in (name, *([own] if inner and folder.name == inner else ())):
        if (path := _packed(folder / place)) is not None:
            return path
    if archive is not None and (path := _packed(folder / archive)) is not None:
        return Member(path, name)
    there = sorted(p.name for p in folder.iterdir())[:8] if folder.is_dir() else []
    raise NotThere(
        f"has no {name}" + (f"; it has {', '.join(there)}" if there else ""),
        where=folder,
        remedy="Name the folder of this data set; its files keep their original names and may be compressed",
    )


def _packed(path: Path) -> Path | None:
    packed = (path.with_name(f"{path.name}{ending}") for ending in PACKED)
    return next((path for path in packed if path.is_file()), None)


def rows(
    path: File, columns: Sequence[str] = (), encoding: str = "utf-8", *, ragged: bool = False
) -> Iterator[Row]:
    """The rows of a file, told apart by its name: .jsonl and .json hold JSON lines, .csv is quoted, all
    else is tab-separated and unquoted, as GLUE is.

    Args:
        columns: names of the fields where the file has no header line.
        ragged: give a row of another number of fields without any, instead of refusing the file.

    Raises:
        DataError: missing, not text, or a line that is not what the file's name says.
    """
    with _lines(path, encoding) as lines:
        suffixes = PurePosixPath(str(path)).suffixes
        kind = next((s for s in reversed(suffixes) if s not in PACKED), "").lower()
        if kind in (".json", ".jsonl"):
            yield from _json(lines, path)
        elif kind == ".csv":
            yield from _fields(csv.reader(_ended(lines)), lines, columns, path, ragged)
        else:
            yield from _fields((line.split("\t") for line in lines if line), lines, columns, path, ragged)


def text_lines(path: File, encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
    """The lines of a text file, compressed or not, each with `file:line`."""
    with _lines(path, encoding) as lines:
        for line in lines:
            yield f"{path}:{lines.number}", line


def whole_json(path: File) -> Any:
    """The one JSON value that a file holds, compressed or not.

    Raises:
        DataError: missing, too large, or not JSON in UTF-8.
    """
    with unpacked(path) as stream:
        return parsed(whole(stream), str(path))


def parsed(text: bytes, where: str) -> Any:
    """JSON out of bytes; errors tell the line."""
    try:
        return json.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"is not utf-8 text ({error.reason})", where=f"{where}:{line}", remedy="Convert it to UTF-8"
        ) from error
    except json.JSONDecodeError as error:
        raise DataError(f"is not JSON ({error.msg})", where=f"{where}:{error.lineno}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON ({error})", where=where) from error


def whole(stream: ByteStream) -> bytes:
    """All of a stream of bounded size."""
    parts, size = [], 0
    while block := stream.read():
        parts.append(block)
        size += len(block)
        if size > LIMITS.in_memory_bytes:
            raise DataError(f"is larger than {LIMITS.in_memory_bytes:,} bytes", where=stream.name)
    return b"".join(parts)


@contextmanager
def unpacked(path: File) -> Iterator[ByteStream]:
    """The bytes of a file, out of its compression and its archive.

    Raises:
        NotThere: its archive lacks it. DataError: it cannot be opened.
    """
    if isinstance(path, Member):
        with unpacked(path.archive) as stream:
            for member in tar_members(stream, LIMITS):
                if member.name.rpartition(":")[2].removeprefix("./") == path.name:
                    yield unpack(member, LIMITS)
                    return
        raise NotThere(f"has no {path.name}", where=path.archive)
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"cannot be opened ({error.strerror})", where=path) from error
    with file:
        yield unpack(ByteStream(file, str(path)), LIMITS)


@contextmanager
def _lines(path: File, encoding: str) -> Iterator[TextLines]:
    try:
        with unpacked(path) as stream:
            yield TextLines(stream, check_encoding(encoding), LIMITS)
    except NotThere:
        raise
    except DataError as error:
        # The reader of text knows a flag of another verb.
        remedy = (
            (error.remedy or "")
            .replace("--encoding ", "task.encoding=")
            .replace("--encoding", "task.encoding")
        )
        raise DataError(error.what, where=error.where, remedy=remedy or None) from error


def _ended(lines: TextLines) -> Iterator[str]:
    # The reader of csv wants the line ends back: a quoted field may go over several lines.
    return (f"{line}\n" for line in lines)


def _json(lines: TextLines, path: File) -> Iterator[Row]:
    for line in lines:
        if not line.strip():
            continue
        where = f"{path}:{lines.number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"is not JSON ({error})",
                where=where,
                remedy="One object a line; a file in SQuAD's format needs task.kind=answers",
            ) from error
        if not isinstance(value, dict):
            raise DataError(f"holds {_kind(value)}, not an object", where=where, remedy="One object a line")
        yield Row(value, where)


def _fields(
    table: Iterator[list[str]], lines: TextLines, columns: Sequence[str], path: File, ragged: bool
) -> Iterator[Row]:
    names = tuple(columns) or tuple(name.strip() for name in next(table, []))
    while True:
        before = lines.number
        try:
            fields = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"is not CSV ({error})", where=f"{path}:{lines.number}") from error
        where = f"{path}:{before + 1}"
        if not fields:
            continue
        if len(fields) != len(names) and ragged:
            yield Row({}, where)
            continue
        if len(fields) != len(names):
            raise DataError(
                f"has {len(fields)} fields, the file has {len(names)} columns ({', '.join(names)})",
                where=where,
                remedy="A field must not hold a bare tab or, in CSV, an unquoted comma",
            )
        yield Row(dict(zip(names, fields, strict=True)), where)


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "true or false", list: "a list", dict: "an object", str: "text"}
    return names.get(type(value), "a number")
