"""Files that survive a crash: written beside, flushed to the disk, renamed into place."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from glob import escape
from pathlib import Path
from typing import Any

from albertine.core.released import released_path_or
from albertine.errors import AlbertineError, RunError, SettingsError

_BLOCK = 4 << 20
FILE_MODE = 0o666
"""Of new files, before the umask: as those of any other program, so that a group that shares a folder goes on
with what one of it began."""

EMPTY_PATH = ("an empty word names no file or folder", "Name one; the folder that you stand in is `.`")
"""Of a path that would be that folder, as `"$OUT"` is where nobody set it: what is wrong, and what to do."""


def is_run_checkpoint(folder: Path) -> bool:
    """Whether a folder is a checkpoint of a run, such as RUN/checkpoints/step-6."""
    names = ("manifest.json", "state.json", "model.safetensors")
    return all((folder / name).is_file() for name in names) and not (folder / "config.json").is_file()


def run_of_checkpoint(folder: Path) -> Path | None:
    """The folder of the run that a checkpoint lies in; None where it was moved out of it."""
    folder = folder.resolve()
    return folder.parent.parent if folder.parent.name == "checkpoints" else None


def write_durably(path: Path, *pieces: bytes | memoryview) -> None:
    """Write a new file and flush it to the disk. The file must not exist."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
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


def make_folder(path: Path) -> None:
    """Make a folder, and those it lies in, so that they are there after a loss of power."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


@contextlib.contextmanager
def writable_folder(path: Path) -> Iterator[None]:
    """A folder that can be written to, made before the work and not behind it; where that fails, a new one
    does not stay.

    Raises:
        RunError: it cannot be made, or others may write there alone.
    """
    new = not path.exists()
    with os_errors_as_run_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        yield
    except BaseException:
        if new:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def sync_tree(folder: Path) -> None:
    """Flush a folder and everything in it."""
    for path in sorted(folder.rglob("*")):
        if not path.is_symlink():
            sync_folder(path)  # opened for reading, a file is flushed as a folder is
    sync_folder(folder)


def replace_durably(path: Path, *pieces: bytes | memoryview, writer: str = "new") -> None:
    """Put a file in place of another so that a reader finds the old or the new one, never a part; on any
    error nothing is left beside it.

    Args:
        writer: a word of its own for each of those that may write the same file at once.
    """
    beside = path.with_name(f".{path.name}.{writer}")
    beside.unlink(missing_ok=True)
    try:
        write_durably(beside, *pieces)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def to_json(tree: Any, **how: Any) -> str:
    """As `json.dumps` in any script, null in place of NaN and infinity, which JSON has no form for."""
    how = {"ensure_ascii": False} | how
    try:
        return json.dumps(tree, allow_nan=False, **how)
    except ValueError:
        return json.dumps(_with_null(tree), allow_nan=False, **how)


def _with_null(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _with_null(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_with_null(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def write_json(path: Path, tree: Mapping[str, Any]) -> None:
    """`replace_durably` with a mapping as indented JSON, for people too."""
    replace_durably(path, (to_json(tree, indent=2) + "\n").encode())


MAX_JSON = 1 << 28
"""Bytes of a JSON file that a run writes."""


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a regular file: not those of a pipe or a device, which may never come or never end.

    Args:
        most: how many bytes such a file may have.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would be waited for
    try:
        facts = os.fstat(handle)
        if stat.S_ISDIR(facts.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, and no regular file", str(path))
        if facts.st_size > most:
            raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file; empty where there is no file, or none that holds one."""
    try:
        found = json.loads(read_regular(path, MAX_JSON).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextlib.contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill; on success it takes the place of `path`, on failure it vanishes and `path` stays.

    Three names beside `path` say how far an exchange is, and survive a kill: `.NAME.part` is half-written or
    half-deleted and is never read; `.NAME.new` and `.NAME.old` are whole. Between the two renames `path` is
    absent, and `resolve_folder` tells readers where it is; `recover` puts it back.

    Raises:
        RunError: another writer is at work on the same folder.
        OSError: the file system refuses; `path` is as it was.
    """
    path = Path(os.path.realpath(path))  # a link to a folder stays a link
    make_folder(path.parent)
    recover(path)
    part, new, old = _beside(path)
    part.mkdir()
    with _claimed(part, path):
        try:
            yield part
            sync_tree(part)
            os.rename(part, new)
            if path.exists():
                os.rename(path, old)
            os.rename(new, path)
            sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                if old.is_dir() and not path.exists():
                    os.rename(old, path)
                _discard(new, part)
                _remove(part)
            raise
    _discard(old, part)


def user_path(path: str | Path, *, instead: str = "Write it to a file, and give the path") -> Path:
    """A path that a person writes, with `~` for the home folder; a name of nobody stays as it is.

    Args:
        instead: the remedy where a text is given in its place.

    Raises:
        SettingsError: it is empty, a text that no file can be named by, or something else, such as the result
            of a run or a model.
    """
    if path == "":
        raise SettingsError(EMPTY_PATH[0], remedy=EMPTY_PATH[1])
    if not isinstance(path, str | os.PathLike):
        remedy = "Give a name or a path; that of a run is the `folder` of its result"
        raise SettingsError(f"a {type(path).__name__} is no name of a file or folder", remedy=remedy)
    if isinstance(path, str) and is_text_not_path(path):
        shown = " ".join(path[:60].split())
        raise SettingsError(
            f"`{shown} …` is a text of {len(path):,} characters, and the name of a file or folder is wanted",
            remedy=instead,
        )
    return Path(os.path.expanduser(path))


def is_text_not_path(name: str) -> bool:
    """Whether a word is no name of a file: of several lines, or longer than names can be, and not there."""
    longest = max(len(part.encode(errors="replace")) for part in name.split("/"))
    return ("\n" in name or longest > 255 or len(name) > 4095) and not os.path.lexists(name)


def resolve_folder(path: Path) -> Path:
    """Where a reader finds a folder that a person names: at `path`, or at the whole copy beside it where a
    kill in `replaced_folder` left none there, or, if `path` is the name of a released model, in the package.
    `path` itself if there is none of them."""
    found = _whole(path)
    return found if os.path.lexists(found) else released_path_or(found)


def _whole(path: Path) -> Path:
    if not os.path.lexists(path) and path.name:
        _, new, old = _beside(path)
        return next((whole for whole in (new, old) if whole.is_dir()), path)
    return path


def recover(path: Path) -> None:
    """Finish what a kill interrupted in `replaced_folder`, and remove its leftovers. For writers only.

    Raises:
        RunError: it was not killed, it is at work.
    """
    part, new, old = _beside(path)
    _remove_left(part)
    if part.is_dir():
        with _claimed(part, path):
            _remove(part)
    if (found := _whole(path)) != path:  # never `resolve_folder`: what it finds elsewhere stays there
        os.rename(found, path)
        sync_folder(path.parent)
    for rest in (new, old):
        _discard(rest, part)


def remove_folder(path: Path) -> None:
    """Delete a folder so that a kill leaves it whole or not there, never a part under its name."""
    part, _, _ = _beside(path)
    _remove(part)
    _discard(path, part)


def _beside(path: Path) -> tuple[Path, Path, Path]:
    part, new, old = (path.with_name(f".{path.name}.{stage}") for stage in ("part", "new", "old"))
    return part, new, old


def _discard(folder: Path, part: Path) -> None:
    if folder.is_dir():
        os.rename(folder, part)  # first, for what is half-deleted must not pass for whole
        _remove(part)


def _remove_left(part: Path) -> None:
    for left in part.parent.glob(f"{escape(part.stem)}.*.left.part"):
        shutil.rmtree(left, ignore_errors=True)


def _remove(part: Path) -> None:
    """Delete what is half-written or half-deleted; what cannot be deleted is put out of the way."""
    _remove_left(part)
    shutil.rmtree(part, ignore_errors=True)
    if part.is_dir():  # a network keeps a file that somebody reads, and another's folder keeps what is in it
        with contextlib.suppress(OSError):
            os.rename(part, part.with_name(f"{part.stem}.{time.time_ns()}.left.part"))


@contextlib.contextmanager
def _claimed(part: Path, path: Path) -> Iterator[None]:
    """Hold a lock on a half-written folder; it ends with the process, so a leftover is nobody's."""
    handle = os.open(part, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise RunError(
            "is being written by another process", where=path, remedy="Wait for it, or name another folder"
        ) from error
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def os_errors_as_run_errors(where: Path) -> Iterator[None]:
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
                remedy="Free some space and repeat the command; it goes on from what was saved",
            ) from error
        raise RunError(
            f"cannot be written ({error.strerror or error})",
            where=where,
            remedy="Check the disk and the permissions",
        ) from error


def check_disk_space(folder: Path, needed: int, purpose: str = "the run") -> None:
    """Check that the disk of `folder` has `needed` bytes free.

    Args:
        purpose: what is to be written, for the message.

    Raises:
        RunError: the disk has less space.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(
            f"the disk has {free / 1e6:,.0f} MB free and {purpose} needs {needed / 1e6:,.0f} MB",
            where=folder,
            remedy="Free some space or choose a folder on another disk",
        )
