"""Starts further processes of a run on this machine.

On a CPU two processes with one thread each train a small model faster than one process with two threads: its
many short products leave little work for a second thread, but a second process computes half of the
sequences.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from albertine.core.processors import usable_cores
from albertine.errors import ProcessError

GRACE = 20.0
"""Seconds that a process has to end by itself."""
READY = "ALBERTINE_READY"
"""Environment variable with the file descriptor to which a process writes before the rendezvous."""


GONE = re.compile(
    r"\A(?!.*\bCUDA error\b).*(?:connection|connect to|\bby peer\b|broken pipe|recvvalue|timed? ?out)",
    re.IGNORECASE | re.DOTALL,
)
"""Matches the error of a collective or the store after another process has ended or does not answer; not an
error of this process' own GPU, such as "CUDA error: the launch timed out"."""


class PartnerEnded(ProcessError):
    """Another process of the run has ended."""


def started() -> bool:
    """Whether this process is one of several already, started by `torchrun` or by `together`."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def threads_each(count: int) -> int:
    """Threads of each of `count` processes that share the usable cores."""
    return max(1, usable_cores() // count)


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def together(count: int, arguments: Sequence[str]) -> Iterator[None]:
    """Within, this is rank 0 of `count` processes of one run, as if `torchrun` had started them.

    The others have no output, and have ended on exit.

    Args:
        arguments: of `albertine` in the other processes.

    Raises:
        PartnerEnded: another process ended with an error, which ended the work of this one.
    """
    names = {"WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    shared = {name: str(value) for name, value in names.items()}
    others = _others
    try:
        for rank in range(1, count):
            others.append(_ChildProcess(arguments, {**shared, **_place(rank)}))
        os.environ.update({**shared, **_place(0)})
        yield
    except BaseException as error:
        # The error of a collective does not have the cause in the other process.
        known = isinstance(error, (RuntimeError, PartnerEnded)) and GONE.search(f"{error} {error.__cause__}")
        last = None
        if known or isinstance(error, RuntimeError):
            last = _first_failure(others, GRACE if known else 1.0)
        for other in others:
            other.process.kill()  # it writes no files, and may be waiting for this one
        if last is None:
            raise
        raise _ended(last) from error
    finally:
        for name in (*shared, *_place(0)):
            os.environ.pop(name, None)
        while others:
            others.pop().end()


def meet() -> None:
    """Wait for the processes that `together` started, before torch's rendezvous, which neither handles
    signals nor notices the end of another process.

    Raises:
        PartnerEnded: another process has ended.
    """
    if (ready := os.environ.pop(READY, None)) is not None:
        os.write(int(ready), b"!")
        os.close(int(ready))
    for other in _others:
        if not other.ready():
            raise _ended(_first_failure([other], 1.0) or "before the run began")


def _ended(how: str) -> PartnerEnded:
    remedy = "The same command resumes from the last checkpoint; fewer --processes need less memory"
    return PartnerEnded(f"another process of the run ended {how}", remedy=remedy)


def _place(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)}


class _ChildProcess:
    """Another process of the run, and its output."""

    def __init__(self, arguments: Sequence[str], names: Mapping[str, str]) -> None:
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._ready, its = os.pipe()
        # -P: modules are imported from the working directory only if this process does so, too.
        here = {"", os.getcwd()} & set(sys.path[:1])
        try:
            self.process = subprocess.Popen(
                [sys.executable, *([] if here else ["-P"]), "-m", "albertine", *arguments],
                env={**os.environ, **names, READY: str(its)},
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                pass_fds=(its,),
            )
        finally:
            os.close(its)

    def ready(self) -> bool:
        """Wait until it reaches the rendezvous; False if it has ended instead."""
        return os.read(self._ready, 1) != b""

    def end(self) -> None:
        """Wait for its end for `GRACE` seconds, then kill it."""
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()
        os.close(self._ready)

    def failed(self) -> str | None:
        """Its exit status and last line of output; None if it runs or has ended without an error."""
        if (code := self.process.poll()) is None:
            return None
        self.output.seek(0)
        lines = self.output.read().decode("utf-8", "replace").split("\n")
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return ": ".join([how, *[line for line in lines if line.strip()][-1:]]) if code else None


_others: list[_ChildProcess] = []
"""The processes that this one has started."""


def _first_failure(others: Sequence[_ChildProcess], seconds: float) -> str | None:
    """`failed` of the first process that ends with an error within some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        for other in others:
            if (how := other.failed()) is not None:
                return how
        if time.monotonic() > deadline or all(other.process.poll() == 0 for other in others):
            return None
        time.sleep(0.05)
