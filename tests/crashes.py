"""What a kill at any moment, and what a loss of power, leave on the disk."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WRITING = ("open", "write", "fsync", "close", "mkdir", "rename", "replace", "unlink", "rmdir")


class Dying:
    """Counts the calls that change the disk and ends the process at one of them, a write after half of its
    bytes.
    """

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def around(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                os._exit(9)
            return real(*args, **kwargs)

        return call


def dies_while(work: Callable[[], None], at: int) -> bool:
    """Do `work` in a forked process that dies at its call number `at`; False if it got through before."""
    child = os.fork()
    if child == 0:
        dying = Dying(at)
        for name in WRITING:
            setattr(os, name, dying.around(name, getattr(os, name)))
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), "the work failed instead of dying"
    return status == 9


def states_at_kills(work: Callable[[], object], folder: Path, copies: Path) -> list[Path]:
    """What a kill at each call of `work` that changes the disk would leave in `folder`, a write after half of
    its bytes too: copies of it, each different from the one before, in the order of the calls.

    `work` is done once, to its end, in this process: a fork for each kill would take most of the time.
    """
    found: list[Path] = []
    last: object = None
    copying = False

    def copy() -> None:
        nonlocal last, copying
        content = {
            place.relative_to(folder): place.read_bytes() if place.is_file() else None
            for place in folder.rglob("*")
        }
        if content != last:
            last, copying = content, True
            found.append(shutil.copytree(folder, copies / str(len(found)), symlinks=True))
            copying = False

    def around(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if copying:
                return real(*args, **kwargs)
            done = real(args[0], args[1][: len(args[1]) // 2]) if name == "write" else None
            copy()
            return real(*args, **kwargs) if done is None else done + real(args[0], args[1][done:])

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITING:
            patch.setattr(os, name, around(name, getattr(os, name)))
        work()
    return found


class Disk:
    """Records flushed files, and reports every rename that came too early.

    A kill leaves all that was written; a loss of power only what was flushed: the bytes of a file by an fsync
    of it, its name by an fsync of the folder it is in.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.root = root
        self.wanted: dict[str, Path] = {}  # what must be safe before anything of a name is renamed into place
        self.renamed: list[str] = []
        self.complaints: list[str] = []
        self._flushed: dict[int, object] = {}
        fsync = os.fsync

        def flush(handle: int) -> None:
            fsync(handle)
            self._flushed[os.fstat(handle).st_ino] = self._content(handle)

        monkeypatch.setattr(os, "fsync", flush)
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, real: Callable[..., None]) -> Callable[..., None]:
        def rename(source: Any, target: Any, **kwargs: Any) -> None:
            old, new = Path(source), Path(target)
            if new.parent.name.endswith(".part"):
                pass  # part of a folder that is flushed as a whole before it is renamed
            elif not new.name.endswith(".part"):  # what is renamed to be deleted need not be safe
                self.complaints += [f"{new.name} <- {line}" for line in self.lost(old)]
            elif old.name.endswith(".old"):  # but what is to be there instead must
                place = old.with_name(old.name[1 : -len(".old")])
                self.complaints += [f"{old.name} deleted, {line}" for line in self.missing(place)]
            if (first := self.wanted.get(new.name)) is not None:
                self.complaints += [f"{new.name}, {line}" for line in self.lost(first) + self.missing(first)]
            real(source, target, **kwargs)
            self.renamed.append(new.name)

        return rename

    def lost(self, path: Path) -> list[str]:
        """What a loss of power now would take from a file, or from anything in a folder."""
        found = []
        for place in [path, *(path.rglob("*") if path.is_dir() else ())]:
            flushed = self._flushed.get(place.stat().st_ino)
            if place.is_dir():
                names = flushed if isinstance(flushed, dict) else {}
                for inner in place.iterdir():
                    if names.get(inner.name) != inner.stat().st_ino:
                        found.append(f"the name {inner}")
            elif flushed != self._content(place):
                found.append(f"the bytes of {place}")
        return found

    def missing(self, path: Path) -> list[str]:
        """Folders on the way from the root to `path` in which it would not be found after a loss of power."""
        found = []
        while path != self.root:
            names = self._flushed.get(path.parent.stat().st_ino)
            if not isinstance(names, dict) or names.get(path.name) != path.stat().st_ino:
                found.append(f"the name {path}")
            path = path.parent
        return found

    @staticmethod
    def _content(place: int | Path) -> object:
        about = os.stat(place)
        if stat.S_ISDIR(about.st_mode):
            with os.scandir(place) as entries:
                return {entry.name: entry.inode() for entry in entries}
        return about.st_mtime_ns, about.st_size
