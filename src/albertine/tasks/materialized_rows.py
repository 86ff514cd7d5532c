"""Rows that a program holds in memory, as a file of the run that learns from them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

from albertine.core.files import make_folder, os_errors_as_run_errors, replace_durably
from albertine.errors import AlbertineError, DataError, RunError
from albertine.tasks.readers.table import rows_of
from albertine.tasks.readers.values import kind_of_value


@dataclass(frozen=True)
class KeptRows:
    """Rows in memory, and the file of JSON lines that they are or will be.

    Its name has a digest of its rows, so that other rows of a later call do not take its place.

    Attributes:
        name: of the rows in messages. odd: by row and column what a value is that no line can say, such as
            bytes. Its line says so, and nothing is wrong as long as nobody asks for that column.
    """

    name: str
    path: Path
    content: bytes
    odd: Mapping[tuple[int, str], str]

    @classmethod
    def of(cls, source: Any, folder: Path, name: str) -> KeptRows:
        """Of rows in any form that `rows_of` reads, for `folder/data`; nothing is written yet. Dates, UUIDs
        and paths become text.

        Raises:
            DataError: not rows, or none.
        """
        lines, odd = list[str](), dict[tuple[int, str], str]()
        for row in rows_of(source, name=name):
            try:
                lines.append(_line(row.fields))
            except (TypeError, ValueError):
                strange = {column: value for column, value in row.fields.items() if not _is_said(value)}
                odd |= {(row.number, column): kind_of_value(value) for column, value in strange.items()}
                told = {**row.fields, **{c: {"not kept": type(v).__name__} for c, v in strange.items()}}
                if "id" in strange:  # then its number names the row
                    del told["id"]
                lines.append(_line(told))
        if not lines:
            raise DataError(f"holds no {name} examples", where=type(source).__name__)
        content = "".join(lines).encode("utf-8-sig")  # whose mark tells it from files in task.encoding
        digest = hashlib.blake2b(content, digest_size=6).hexdigest()
        return cls(name, folder / "data" / f"{name}-{digest}.jsonl", content, odd)

    def write(self) -> bool:
        """Make the file; whether it was not there yet."""
        if self.path.is_file():
            return False
        with os_errors_as_run_errors(self.path):
            make_folder(self.path.parent)
            replace_durably(self.path, self.content, writer=f"{os.getpid()}-{threading.get_ident()}")
        return True

    def named(self, error: AlbertineError) -> AlbertineError:
        """An error of a row by its place in memory, `train[2]`, instead of a line of the file; any other as
        it is, such as one of the disk."""
        found = re.fullmatch(re.escape(str(self.path)) + r"(?::(\d+))?", str(error.where))
        if found is None or isinstance(error, RunError):
            return error
        number, what = int(found[1] or 0) - 1, error.what
        for (row, column), kind in self.odd.items():
            if row == number and f"`{column}`" in what:
                what = what.replace(kind_of_value({}), kind)
        where = self.name if number < 0 else f"{self.name}[{number}]"
        return type(error)(what, where=where, remedy=error.remedy)


@contextmanager
def keeping(kept: Sequence[KeptRows], folder: Path) -> Iterator[None]:
    """Write files for what is done within. Where that fails before the run in `folder` tells of them, nothing
    is left of those that were not there; an error of a row names it by its place in memory.
    """
    new = list[Path]()
    try:
        for rows in kept:
            if rows.write():
                new.append(rows.path)
        yield
    except BaseException as error:
        _forget(new, folder)
        named = error
        for rows in kept:
            named = rows.named(named) if isinstance(named, AlbertineError) else named
        if named is error:
            raise
        raise named from error.__cause__


def _forget(files: Sequence[Path], folder: Path) -> None:
    """Delete files that the settings of a run do not tell, and what else a refused run left."""
    with suppress(OSError):
        settings, lock = folder / "settings.yaml", folder / "lock"
        told = settings.read_text(encoding="utf-8") if settings.is_file() else ""
        for file in files:
            if file.name not in told:
                file.unlink(missing_ok=True)
        if files and not any((folder / "data").iterdir()):
            (folder / "data").rmdir()
            if [path.name for path in folder.iterdir()] == ["lock"] and not lock.stat().st_size:  # nobody's
                lock.unlink()
            folder.rmdir()


def _line(fields: Mapping[str, Any]) -> str:
    line = json.dumps(dict(fields), ensure_ascii=False, default=_text)
    return line.replace("\ufeff", "\\ufeff") + "\n"  # which `prepare` drops where it stands bare


def _is_said(value: Any) -> bool:
    try:
        _line({"": value})
    except (TypeError, ValueError):
        return False
    return True


def _text(value: Any) -> str:
    """A value that JSON has no word for."""
    if isinstance(value, UUID | PurePath):
        return str(value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise TypeError(f"{kind_of_value(value)} is no text")
