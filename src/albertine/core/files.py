"""Durable writes: to a temporary name, flushed to disk, renamed into place. Also reading and checking of
paths."""

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
"""Mode of new files before the umask, the default of other programs, so that group members can continue each
other's runs in a shared folder."""

EMPTY_PATH = ("an empty word names no file or folder", "Name one; the folder that you stand in is `.`")
"""Message and remedy for an empty path, such as "$OUT" with OUT unset, which would be the working
directory."""


def is_run_checkpoint(folder: Path) -> bool:
    """Whether a folder is a checkpoint of a run, such as RUN/checkpoints/step-6."""
    names = ("manifest.json", "state.json", "model.safetensors")
    return all((folder / name).is_file() for name in names) and not (folder / "config.json").is_file()


def run_of_checkpoint(folder: Path) -> Path | None:
    """The run folder that contains a checkpoint; None if the checkpoint was moved elsewhere."""
    folder = folder.resolve()
    return folder.parent.parent if folder.parent.name == "checkpoints" else None


def write_durably(path: Path, *parts: bytes | memoryview) -> None:
    """Write the parts to a new file and flush it to disk. The file must not exist."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        for part in parts:
            rest = memoryview(part).cast("B")
            while rest:
                rest = rest[os.write(handle, rest[:_BLOCK]) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to disk; otherwise a rename may be lost at a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and its parents durably."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


@contextlib.contextmanager
def writable_folder(path: Path) -> Iterator[None]:
    """Create a folder before the work inside the context and check that it is writable; if the work fails, a
    new empty folder is removed.

    Raises:
        RunError: it cannot be created or is not writable.
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
    """Flush a folder and everything in it to disk."""
    for path in sorted(folder.rglob("*")):
        if not path.is_symlink():
            sync_folder(path)  # works for files too
    sync_folder(folder)


def replace_durably(path: Path, *parts: bytes | memoryview, writer: str = "new") -> None:
    """Write or replace a file atomically: readers find the old or the new content. On any error no temporary
    file stays.

    Args:
        writer: suffix of the temporary file; different for processes that may write the same file at once.
    """
    beside = path.with_name(f".{path.name}.{writer}")
    beside.unlink(missing_ok=True)
    try:
        write_durably(beside, *parts)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def to_json(tree: Any, **options: Any) -> str:
    """`json.dumps` without ASCII escapes, and with null for NaN and infinity, which JSON lacks."""
    options = {"ensure_ascii": False} | options
    try:
        return json.dumps(tree, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_with_null(tree), allow_nan=False, **options)


def _with_null(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _with_null(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_with_null(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def write_json(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a mapping durably as indented JSON."""
    replace_durably(path, (to_json(tree, indent=2) + "\n").encode())


MAX_JSON_BYTES = 1 << 28
"""Of a JSON file of a run."""


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The bytes of a regular file, not of a pipe or device, which may block or never end.

    Raises:
        OSError: the file cannot be read, is not regular, or is larger than `max_bytes`.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would block
    try:
        info = os.fstat(handle)
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, and no regular file", str(path))
        if info.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file; empty if the file is missing, unreadable or holds something else."""
    try:
        found = json.loads(read_regular(path, MAX_JSON_BYTES).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextlib.contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder to fill. On success it replaces `path`; on failure it is deleted and `path` stays.

    Three names beside `path` record the state of the replacement, also after a kill: `.NAME.part` is
    half-written or half-deleted and is never read; `.NAME.new` and `.NAME.old` are complete. Between the two
    renames `path` does not exist: readers find the folder by `resolve_folder`, and `recover` restores it.

    Raises:
        RunError: another process is writing to the same folder.
        OSError: of the file system; `path` is unchanged.
    """
    path = Path(os.path.realpath(path))  # a link to a folder stays a link
    make_folder(path.parent)
    recover(path)
    part, new, old = _beside(path)
    part.mkdir()
    with _locked(part, path):
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
    """A path given by a user, with `~` expanded to the home folder; an unknown `~name` stays.

    Args:
        instead: the remedy if a text was passed in place of a path.

    Raises:
        SettingsError: it is empty, a text instead of a path, or of another type, such as the result of a run
            or a model.
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
    """Whether a string cannot be a path: several lines, or longer than file names can be; not if it
    exists."""
    longest = max(len(part.encode(errors="replace")) for part in name.split("/"))
    return ("\n" in name or longest > 255 or len(name) > 4095) and not os.path.lexists(name)


def resolve_folder(path: Path) -> Path:
    """Where to read a folder given by a user: `path`, or the complete copy beside it if a kill during
    `replaced_folder` left only that, or the released model of that name in the package; else `path`."""
    found = _whole(path)
    return found if os.path.lexists(found) else released_path_or(found)


def _whole(path: Path) -> Path:
    if not os.path.lexists(path) and path.name:
        _, new, old = _beside(path)
        return next((whole for whole in (new, old) if whole.is_dir()), path)
    return path


def recover(path: Path) -> None:
    """Finish a `replaced_folder` that was killed, and remove its temporary folders. For writers only.

    Raises:
        RunError: its process is still running.
    """
    part, new, old = _beside(path)
    _remove_left(part)
    if part.is_dir():
        with _locked(part, path):
            _remove(part)
    if (found := _whole(path)) != path:  # not `resolve_folder`, which finds released models too
        os.rename(found, path)
        sync_folder(path.parent)
    for rest in (new, old):
        _discard(rest, part)


def remove_folder(path: Path) -> None:
    """Delete a folder; after a kill it is complete or gone, never partial under its name."""
    part, _, _ = _beside(path)
    _remove(part)
    _discard(path, part)


def _beside(path: Path) -> tuple[Path, Path, Path]:
    part, new, old = (path.with_name(f".{path.name}.{stage}") for stage in ("part", "new", "old"))
    return part, new, old


def _discard(folder: Path, part: Path) -> None:
    if folder.is_dir():
        os.rename(folder, part)  # first, so that a half-deleted folder is not taken for a complete one
        _remove(part)


def _remove_left(part: Path) -> None:
    for left in part.parent.glob(f"{escape(part.stem)}.*.left.part"):
        shutil.rmtree(left, ignore_errors=True)


def _remove(part: Path) -> None:
    """Delete a half-written or half-deleted folder; what cannot be deleted is renamed."""
    _remove_left(part)
    shutil.rmtree(part, ignore_errors=True)
    if part.is_dir():  # a network file system keeps open files; files in another user's folder stay
        with contextlib.suppress(OSError):
            os.rename(part, part.with_name(f"{part.stem}.{time.time_ns()}.left.part"))


@contextlib.contextmanager
def _locked(part: Path, path: Path) -> Iterator[None]:
    """Lock a half-written folder. The kernel releases the lock with the process, so leftovers are not
    locked."""
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
    """Raise an OSError in the context as a RunError with a remedy."""
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
