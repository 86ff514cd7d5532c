"""Reading the files of a task, compressed or in a tar: their paths, bytes, lines and JSON."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertine.errors import DataError
from albertine.tasks.readers.values import plain
from albertine.text.lines import TextLines, check_encoding, decoding_error, detect_encoding
from albertine.text.streams import HEAD_BYTES, ByteStream, Limits, decompressed, tar_members

PACKED = ("", ".xz", ".gz", ".zst", ".bz2")
LIMITS = Limits()
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class NotThere(DataError):
    """A file of a data set is not in its folder."""


class NoRow(DataError):
    """A JSON value that should be a row and is not."""


@dataclass(frozen=True)
class ArchiveMember:
    """A file in a tar: the archive, and its name in there."""

    archive: Path
    name: str

    def __str__(self) -> str:
        return f"{self.archive}:{self.name}"


File = Path | ArchiveMember


def find(folder: Path, name: str, archive: str | None = None) -> File:
    """The file of that name in a folder, compressed or not.

    Args:
        name: may begin with the name of a subfolder, or of `folder` itself.
        archive: name of a tar that may contain the file; checked when it is read.

    Raises:
        NotThere: there is no such file.
    """
    inner, _, own = name.rpartition("/")
    for place in (name, *([own] if inner and folder.name == inner else ())):
        if (path := _packed(folder / place)) is not None:
            return path
    if archive is not None and (path := _packed(folder / archive)) is not None:
        return ArchiveMember(path, name)
    there = sorted(p.name for p in folder.iterdir())[:8] if folder.is_dir() else []
    raise NotThere(
        f"has no {name}" + (f"; it has {', '.join(there)}" if there else ""),
        where=folder,
        remedy="Name the folder of this data set; its files keep their original names and may be compressed",
    )


def _packed(path: Path) -> Path | None:
    packed = (path.with_name(f"{path.name}{ending}") for ending in PACKED)
    return next((path for path in packed if path.is_file()), None)


@contextmanager
def unpacked(path: File) -> Iterator[ByteStream]:
    """The bytes of a file, out of its compression and its archive.

    Raises:
        NotThere: its archive lacks it. DataError: it cannot be opened.
    """
    if isinstance(path, ArchiveMember):
        with unpacked(path.archive) as stream:
            for member in tar_members(stream, LIMITS):
                if member.name.rpartition(":")[2].removeprefix("./") == path.name:
                    yield decompressed(member, LIMITS)
                    return
        raise NotThere(f"has no {path.name}", where=path.archive)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            remedy = "Write its content to a file first"
            raise DataError(
                "is a pipe or a device, which can be read once or never ends", where=path, remedy=remedy
            )
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"cannot be opened ({error.strerror})", where=path) from error
    except ValueError as error:
        raise DataError(f"is no name of a file ({error})", where=path) from error
    with file:
        yield decompressed(ByteStream(file, str(path)), LIMITS)


def text_lines(
    path: File, encoding: str = "utf-8", prefix: str | None = "task."
) -> Iterator[tuple[str, str]]:
    """The lines of a text file, compressed or not, each with `file:line`.

    Args:
        prefix: before the name of the setting `encoding` in messages; None: there is no such setting.
    """
    with unpacked(path) as stream, own_words(prefix):
        lines = TextLines(stream, detect_encoding(stream, encoding), LIMITS)
        for line in lines:
            yield f"{path}:{lines.number}", line


@contextmanager
def own_words(prefix: str | None) -> Iterator[None]:
    """Errors of the text reader with the setting `encoding` in place of the flag `--encoding` of other verbs.

    Args:
        prefix: before the name of the setting; None: there is no such setting.
    """
    try:
        yield
    except (NotThere, NoRow):
        raise
    except DataError as error:
        name = f"{prefix}encoding"
        remedy = (error.remedy or "").replace(" where a command has that option", "")
        if prefix is None and "--encoding" in remedy:
            remedy = "Convert it to UTF-8"
        remedy = remedy.replace("--encoding ", f"{name}=").replace("--encoding", name)
        raise DataError(error.what, where=error.where, remedy=remedy or None) from error


def whole_json(path: File, encoding: str = "utf-8", prefix: str = "task.") -> Any:
    """The one JSON value that a file holds, compressed or not.

    Args:
        prefix: as in `text_lines`.

    Raises:
        DataError: missing, too large, or not JSON in that encoding.
    """
    with unpacked(path) as stream:
        return parsed(whole(stream), str(path), encoding, prefix)


def parsed(content: bytes, where: str, encoding: str = "utf-8", prefix: str = "task.") -> Any:
    """JSON from bytes, which are UTF-8 if they begin with its byte order mark. Arguments as `whole_json`.

    Raises:
        DataError: with the line of the error.
    """
    with own_words(prefix):
        text = _decoded(content, where, encoding)
    try:
        tree = json.loads(text)
        return plain(tree, where) if _SURROGATE.search(text) else tree
    except json.JSONDecodeError as error:
        raise DataError(f"is not JSON ({error.msg})", where=f"{where}:{error.lineno}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON ({error})", where=where) from error


def _decoded(content: bytes, where: str, encoding: str) -> str:
    name = "utf-8-sig" if content.startswith(codecs.BOM_UTF8) else check_encoding(encoding)
    try:
        return content.decode(name)
    except UnicodeError as error:
        start, reason = getattr(error, "start", 0), getattr(error, "reason", str(error))
        line, begin = content.count(b"\n", 0, start) + 1, max(0, start - HEAD_BYTES // 2)
        raise decoding_error(where, line, content[begin : begin + HEAD_BYTES], name, reason) from error


def whole(stream: ByteStream) -> bytes:
    """All of a stream of bounded size."""
    parts, size = [], 0
    while block := stream.read():
        parts.append(block)
        size += len(block)
        if size > LIMITS.in_memory_bytes:
            raise DataError(f"is larger than {LIMITS.in_memory_bytes:,} bytes", where=stream.name)
    return b"".join(parts)
