"""Rows in memory, written as a file into the folder of the run that uses them."""

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
class MaterializedRows:
    """Rows in memory and their file of JSON lines.

    The file name contains a digest of the rows, so that other rows of a later call get another file.

    Attributes:
        name: of the rows in messages. unsupported: by row and column the types of values that JSON cannot
            represent, such as bytes. A placeholder is written for them; using their column is an error.
    """

    name: str
    path: Path
    content: bytes
    unsupported: Mapping[tuple[int, str], str]

    @classmethod
    def of(cls, source: Any, folder: Path, name: str) -> MaterializedRows:
        """From rows in any form that `rows_of` reads, for `folder/data`; nothing is written yet. Dates, UUIDs
        and paths become text.

        Raises:
            DataError: not rows, or none.
        """
        lines, unsupported = list[str](), dict[tuple[int, str], str]()
        for row in rows_of(source, name=name):
            try:
                lines.append(_line(row.fields))
            except (TypeError, ValueError):
                dropped = {column: value for column, value in row.fields.items() if not _is_json(value)}
                unsupported |= {
                    (row.number, column): kind_of_value(value) for column, value in dropped.items()
                }
                fields = {**row.fields, **{c: {"not kept": type(v).__name__} for c, v in dropped.items()}}
                if "id" in dropped:  # the row is then named by its number
                    del fields["id"]
                lines.append(_line(fields))
        if not lines:
            raise DataError(f"holds no {name} examples", where=type(source).__name__)
        content = "".join(lines).encode("utf-8-sig")  # the mark overrides task.encoding
        digest = hashlib.blake2b(content, digest_size=6).hexdigest()
        return cls(name, folder / "data" / f"{name}-{digest}.jsonl", content, unsupported)

    def write(self) -> bool:
        """Write the file if it does not exist; whether it was written."""
        if self.path.is_file():
            return False
        with os_errors_as_run_errors(self.path):
            make_folder(self.path.parent)
            replace_durably(self.path, self.content, writer=f"{os.getpid()}-{threading.get_ident()}")
        return True

    def named(self, error: AlbertineError) -> AlbertineError:
        """An error with the location of a row in memory, `train[2]`, in place of a line of the file; any
        other error unchanged."""
        found = re.fullmatch(re.escape(str(self.path)) + r"(?::(\d+))?", str(error.where))
        if found is None or isinstance(error, RunError):
            return error
        number, what = int(found[1] or 0) - 1, error.what
        for (row, column), kind in self.unsupported.items():
            if row == number and f"`{column}`" in what:
                what = what.replace(kind_of_value({}), kind)
        where = self.name if number < 0 else f"{self.name}[{number}]"
        return type(error)(what, where=where, remedy=error.remedy)


@contextmanager
def materialized(kept: Sequence[MaterializedRows], folder: Path) -> Iterator[None]:
    """A context with the files written. If it fails before the run in `folder` refers to them, new files are
    deleted; errors have the location of rows in memory.
    """
    new = list[Path]()
    try:
        for rows in kept:
            if rows.write():
                new.append(rows.path)
        yield
    except BaseException as error:
        _delete_unused(new, folder)
        named = error
        for rows in kept:
            named = rows.named(named) if isinstance(named, AlbertineError) else named
        if named is error:
            raise
        raise named from error.__cause__


def _delete_unused(files: Sequence[Path], folder: Path) -> None:
    """Delete files that the settings of a run do not name, and the empty folders of a refused run."""
    with suppress(OSError):
        settings, lock = folder / "settings.yaml", folder / "lock"
        text = settings.read_text(encoding="utf-8") if settings.is_file() else ""
        for file in files:
            if file.name not in text:
                file.unlink(missing_ok=True)
        if files and not any((folder / "data").iterdir()):
            (folder / "data").rmdir()
            if [path.name for path in folder.iterdir()] == ["lock"] and not lock.stat().st_size:  # not held
                lock.unlink()
            folder.rmdir()


def _line(fields: Mapping[str, Any]) -> str:
    line = json.dumps(dict(fields), ensure_ascii=False, default=_text)
    return line.replace("\ufeff", "\\ufeff") + "\n"  # readers drop it where it is not escaped


def _is_json(value: Any) -> bool:
    """Whether a value can be written as JSON."""
    try:
        _line({"": value})
    except (TypeError, ValueError):
        return False
    return True


def _text(value: Any) -> str:
    """Text for a value without a form in JSON. Raises TypeError."""
    if isinstance(value, UUID | PurePath):
        return str(value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise TypeError(f"{kind_of_value(value)} is no text")
