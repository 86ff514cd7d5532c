"""The folder of a run: settings, environment, metrics, log, checkpoints, best and final model."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from logging.handlers import MemoryHandler
from pathlib import Path
from types import TracebackType
from typing import Any

from albertine.core.files import (
    FILE_MODE,
    make_folder,
    os_errors_as_run_errors,
    read_json,
    recover,
    replace_durably,
    write_json,
)
from albertine.core.settings import RunSettings, dump, with_absolute_paths
from albertine.errors import AlbertineError, RunError
from albertine.training.checkpoints import differences
from albertine.training.distributed import World

PACKAGES = ("albertine", "torch", "numpy", "safetensors", "tokenizers", "sentencepiece")
DECISIVE = ("python", "versions", "threads", "device", "cpu", "world_size")
"""Keys of the environment on which the last bits of a result depend."""

log = logging.getLogger("albertine.training")

# A POSIX lock belongs to the process, which could take it twice.
_held: set[Path] = set()


class RunFolder:
    """A run's folder, locked against other processes while entered. Before `begin` only the lock file is
    written, and a new folder is removed on exit.

    Args:
        path: holds `settings.yaml`, `environment.json`, `metrics.jsonl`, `log.txt`, `tensorboard/`,
            `plots/`, `checkpoints/`, `best/` and `final/`; made when entered.
        main: False on every rank but the main one, where entering and describing do nothing.

    Raises:
        RunError: on entering, if another process uses the folder; the message names it.
    """

    def __init__(self, path: Path, *, main: bool = True) -> None:
        self.path, self.main = path, main
        self.settings = path / "settings.yaml"
        self.environment = path / "environment.json"
        self.metrics = path / "metrics.jsonl"
        self.log = path / "log.txt"
        self.tensorboard = path / "tensorboard"
        self.plots = path / "plots"
        self.checkpoints = path / "checkpoints"
        self.best = path / "best"
        self.final = path / "final"
        self._lock_file = path / "lock"
        self._lock: int | None = None
        self._handler: logging.Handler | None = None
        self._level = logging.NOTSET
        self._new = False

    def __enter__(self) -> RunFolder:
        if not self.main:
            return self
        with os_errors_as_run_errors(self.path):
            self._new = not self.path.exists()
            make_folder(self.path)
            self._take_lock()
            try:
                for model in (self.best, self.final):
                    recover(model)
            except BaseException:
                self._release_lock(begun=False)
                raise
        self._handler = MemoryHandler(sys.maxsize, flushLevel=sys.maxsize, flushOnClose=False)
        log.addHandler(self._handler)
        self._level = log.level
        log.setLevel(logging.INFO)
        return self

    def begin(self) -> None:
        """Open `log.txt` and write the log so far; called after all checks."""
        before = self._handler
        if not isinstance(before, MemoryHandler):
            return
        with os_errors_as_run_errors(self.log):
            self._handler = _LogFile(self.log, encoding="utf-8")
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        before.setTarget(self._handler)
        before.flush()
        log.removeHandler(before)
        log.addHandler(self._handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, AlbertineError):
            log.error("the run ended: %s", error)
        elif isinstance(error, Exception):
            log.error("the run ended by a bug", exc_info=error)
        begun = not isinstance(self._handler, MemoryHandler)
        try:
            self._close_log()
        finally:
            self._release_lock(begun)

    def describe(self, settings: str, environment: Mapping[str, Any]) -> None:
        """Write the settings (YAML) and the environment; warns where a resumed run has another
        environment."""
        if not self.main:
            return
        if before := read_json(self.environment):
            changed = differences(
                {key: before.get(key) for key in DECISIVE}, {key: environment.get(key) for key in DECISIVE}
            )
            for line in changed:
                log.warning(
                    "the environment changed since the run began: %s", line.replace("checkpoint", "then")
                )
            if changed:
                log.warning(
                    "the run goes on with the same data; its last bits may differ from an uninterrupted one"
                )
        self.write_settings(settings)
        with os_errors_as_run_errors(self.path):
            write_json(self.environment, environment)

    def write_settings(self, settings: str) -> None:
        """Write the settings (YAML)."""
        with os_errors_as_run_errors(self.path):
            replace_durably(self.settings, settings.encode())

    def _take_lock(self) -> None:
        name = self._lock_file.resolve()
        if name in _held:
            raise self._in_use(f"process {os.getpid()} on {socket.gethostname()}, which is this one")
        handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(handle)
            os.close(handle)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise self._in_use(f"process {holder['pid']} on {holder['host']}") from error
            raise  # a file system without locks: refusing beats two writers
        # A POSIX lock ends with its process, so an old holder in the file is the trace of a crash.
        if (old := _holder(handle))["pid"] != "?":
            log.warning(
                "the process %s on %s that used this folder is gone; going on", old["pid"], old["host"]
            )
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        self._lock = handle
        _held.add(name)

    def _close_log(self) -> None:
        if self._handler is not None:
            log.setLevel(self._level)
            log.removeHandler(self._handler)
            with contextlib.suppress(OSError):  # reported when it was written to
                self._handler.close()
            self._handler = None

    def _release_lock(self, begun: bool) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock, 0)
                if self._new and not begun:
                    self._lock_file.unlink()
                    self.path.rmdir()
            os.close(self._lock)  # releases the lock
            _held.discard(self._lock_file.resolve())
            self._lock = None

    def _in_use(self, holder: str) -> RunError:
        return RunError(
            f"is in use by {holder}",
            where=self.path,
            remedy="Wait until it ends, stop it, or choose another name",
        )


class _LogFile(logging.FileHandler):
    """A log file that is not essential: an error of the disk is reported once, and the run continues."""

    _reported = False

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._reported:
            self._reported = True
            reason = error.strerror or str(error)
            print(
                f"{self.baseFilename}: cannot be written ({reason}); the run goes on without", file=sys.stderr
            )


def describe(folder: RunFolder, settings: RunSettings, world: World) -> None:
    """Write settings and environment of a run into its folder."""
    facts = environment(settings.seed, device=str(world.device), world_size=world.size)
    folder.describe(dump(with_absolute_paths(settings)), facts)


def environment(seed: int, *, device: str = "cpu", world_size: int = 1) -> dict[str, Any]:
    """Versions, commit, machine, threads, seed and command of this process."""
    import torch

    return {
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
        "world_size": world_size,
        "threads": torch.get_num_threads(),
        "seed": seed,
        "command": sys.argv,
    }


def _holder(handle: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(handle, 4096, 0))
        return {"pid": found["pid"], "host": found["host"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {"pid": "?", "host": "?"}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of Albertine's source, if it is a git checkout; not that of the working directory."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
