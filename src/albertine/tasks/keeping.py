"""Rows that a program holds in memory, as a file of the run that learns from them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from albertine.errors import DataError
from albertine.files import explained, make_folder, replace_durably
from albertine.tasks.readers.table import rows_of


def kept_rows(source: Any, folder: Path, name: str) -> Path:
    """The path of a file as it is; of rows in memory that of JSON lines in `folder/data`, written once.

    Its name has a digest of its rows, so that other rows of a later call do not take its place.

    Raises:
        DataError: not rows, or of values that JSON has no word for.
    """
    if isinstance(source, str | Path):
        return Path(source)
    lines = []
    for row in rows_of(source, name=name):
        try:
            lines.append(json.dumps(dict(row.fields), ensure_ascii=False) + "\n")
        except (TypeError, ValueError) as error:
            raise DataError(
                f"has a value that cannot be kept ({error})",
                where=row.where,
                remedy="Give texts, numbers and lists of them",
            ) from error
    if not lines:
        raise DataError(f"holds no {name} examples", where=type(source).__name__)
    content = "".join(lines).encode()
    path = folder / "data" / f"{name}-{hashlib.blake2b(content, digest_size=6).hexdigest()}.jsonl"
    if not path.is_file():
        with explained(path):
            make_folder(path.parent)
            replace_durably(path, content)
    return path
