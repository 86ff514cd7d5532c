"""Files that survive a crash: written beside, flushed to the disk, renamed into place."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from albertine.errors import AlbertineError, RunError

_BLOCK = 4 << 20


def write_durably(path: Path, *pieces: bytes | memoryview) -> None:
    """Write a new file and flush it to the disk. The file must not exist."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for piece in pieces:
            rest = memoryview(piece).cast("B")
            while rest:
                rest = rest[os.write(handle, rest[:_BLOCK]) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to the disk, without which a rename may be lost with the power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Flush a folder and everything in it."""
    for path in sorted(folder.rglob("*")):
        sync_folder(path)  # opened for reading, a file is flushed as a folder is
    sync_folder(folder)


def replace_durably(path: Path, *pieces: bytes | memoryview) -> None:
    """Put a file in place of another so that a reader finds the old or the new one, never a part; on any
    error nothing is left beside it."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    try:
        write_durably(beside, *pieces)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill; on success it takes the place of `path`, on failure it vanishes and `path` stays.

    Files are flushed before the exchange. A kill between the two renames leaves the old folder as
    `.NAME.old`; the next call cleans it up.
    """
    beside, old = path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.old")
    for rest in (beside, old):
        shutil.rmtree(rest, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside.mkdir()
    try:
        with explained(path):
            yield beside
            sync_tree(beside)
            if path.exists():
                os.rename(path, old)
            os.rename(beside, path)
            sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def explained(where: Path) -> Iterator[None]:
    """Turn a failure of the file system into a RunError that says what to do."""
    try:
        yield
    except AlbertineError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                "the disk is full, and nothing was replaced",
                where=where,
                remedy="Free some space and repeat the command; it goes on from the last checkpoint",
            ) from error
        raise RunError(
            f"cannot be written ({error.strerror or error})",
            where=where,
            remedy="Check the disk and the permissions",
        ) from error


def ensure_space(folder: Path, needed: int) -> None:
    """Refuse to begin what cannot be finished.

    Args:
        needed: bytes that will be written.

    Raises:
        RunError: the disk has less room.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(
            f"the disk has {free / 1e6:,.0f} MB free and the checkpoints need {needed / 1e6:,.0f} MB",
            where=folder,
            remedy="Free some space or choose another folder",
        )
