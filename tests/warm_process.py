"""Processes of the command that begin with torch imported.

They are forks of a process that waits: the imports take most of the time of a short command. A test of the
start or the end of the interpreter needs `subprocess`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import IO

PRELOADED = [
    "albertine.cli.app",
    "albertine.cli.pretrain",
    "albertine.cli.serve",
    "albertine.pretraining.run",
    "albertine.serving.server",
    "albertine.tasks.predictor",
]


class WarmProcess:
    """`albertine ARGUMENTS` in a forked process; has what tests use of `subprocess.Popen`.

    Args:
        environment: all environment variables of the process; those of this one by default.
        code: Python code that is executed before the command.
        new_session: whether the process leads a session, and so a group, of its own.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        code: str = "",
        new_session: bool = False,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        (out, its_out), (err, its_err) = context.Pipe(duplex=False), context.Pipe(duplex=False)
        environment = dict(os.environ if environment is None else environment)
        self._process = context.Process(
            target=_run,
            args=(
                list(arguments),
                environment,
                str(folder or Path.cwd()),
                code,
                new_session,
                its_out,
                its_err,
            ),
        )
        self._process.start()
        self.stdout, self.stderr = _reader(out), _reader(err)
        its_out.close()
        its_err.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("albertine", timeout or 0.0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What is printed to standard output and to standard error until the process ends."""
        printed = ["", ""]

        def read(number: int, stream: IO[str]) -> None:
            printed[number] = stream.read()

        readers = [Thread(target=read, args=one) for one in enumerate((self.stdout, self.stderr))]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return printed[0], printed[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def _reader(connection: Connection) -> IO[str]:
    handle = os.dup(connection.fileno())
    connection.close()
    return os.fdopen(handle, encoding="utf-8", errors="replace")


def _run(
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
    code: str,
    new_session: bool,
    out: Connection,
    err: Connection,
) -> None:
    if new_session:
        os.setsid()
    for number, name, connection in ((1, "stdout", out), (2, "stderr", err)):
        os.dup2(connection.fileno(), number)
        connection.close()
        setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", buffering=1))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    exec(code, {})
    from albertine.cli.app import run

    raise SystemExit(run(arguments))
