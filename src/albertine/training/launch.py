"""Several processes of one run on this machine, started by the first of them.

On a processor two processes with one thread each train a small model faster than one with two threads: its
many short products leave a second thread little to do, and half of the sequences leave a second process half
of the work.
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
"""Seconds in which a process that is no longer needed may end by itself."""
READY = "ALBERTINE_READY"
"""Names the file descriptor to which one of the others writes that it is about to meet the first."""


GONE = re.compile(
    r"\A(?!.*\bCUDA error\b).*(?:connection|connect to|\bby peer\b|broken pipe|recvvalue|timed? ?out)",
    re.IGNORECASE | re.DOTALL,
)
"""In the message of a collective or of the store when another process has ended or does not answer; not in
that of an error of this process' own GPU, such as "CUDA error: the launch timed out"."""


class PartnerEnded(ProcessError):
    """Another process of the run has ended."""


def started() -> bool:
    """Whether this process is one of several already, `torchrun`'s or ours."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def threads_each(count: int) -> int:
    """Threads of each of `count` processes that share the processors this one may use."""
    return max(1, usable_cores() // count)


def free_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def together(count: int, arguments: Sequence[str]) -> Iterator[None]:
    """Be the first of `count` processes of one run, as if `torchrun` had started them.

    The others say nothing, and have ended when this is left.

    Args:
        arguments: of `albertine`, for the others.

    Raises:
        PartnerEnded: another one ended with an error, which broke this one's work off.
    """
    names = {"WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    shared = {name: str(value) for name, value in names.items()}
    others = _others
    try:
        for rank in range(1, count):
            others.append(_Other(arguments, {**shared, **_place(rank)}))
        os.environ.update({**shared, **_place(0)})
        yield
    except BaseException as error:
        # What a collective says when a process is gone does not say why.
        known = isinstance(error, (RuntimeError, PartnerEnded)) and GONE.search(f"{error} {error.__cause__}")
        last = (
            _last_words(others, GRACE if known else 1.0) if known or isinstance(error, RuntimeError) else None
        )
        for other in others:
            other.process.kill()  # it writes nothing, and may be waiting for this one
        if last is None:
            raise
        raise _ended(last) from error
    finally:
        for name in (*shared, *_place(0)):
            os.environ.pop(name, None)
        while others:
            others.pop().end()


def meet() -> None:
    """Let the processes of a run that `together` has started wait for each other where that can still be
    interrupted, and where the end of another one is noticed: the rendezvous of torch is deaf to both.

    Raises:
        PartnerEnded: another one has ended.
    """
    if (ready := os.environ.pop(READY, None)) is not None:
        os.write(int(ready), b"!")
        os.close(int(ready))
    for other in _others:
        if not other.ready():
            raise _ended(_last_words([other], 1.0) or "before the run began")


def _ended(how: str) -> PartnerEnded:
    remedy = "The same command goes on from the last checkpoint; fewer --processes need less memory"
    return PartnerEnded(f"another process of the run ended {how}", remedy=remedy)


def _place(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)}


class _Other:
    """A process beside this one, and what it says."""

    def __init__(self, arguments: Sequence[str], names: Mapping[str, str]) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._ready, its = os.pipe()
        # Modules from the folder that a person stands in only where this process takes them from there too.
        here = {"", os.getcwd()} & set(sys.path[:1])
        try:
            self.process = subprocess.Popen(
                [sys.executable, *([] if here else ["-P"]), "-m", "albertine", *arguments],
                env={**os.environ, **names, READY: str(its)},
                stdin=subprocess.DEVNULL,
                stdout=self.said,
                stderr=self.said,
                pass_fds=(its,),
            )
        finally:
            os.close(its)

    def ready(self) -> bool:
        """Wait until it is about to meet the others; False if it has ended instead."""
        return os.read(self._ready, 1) != b""

    def end(self) -> None:
        """Wait for its end, not for long."""
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.said.close()
        os.close(self._ready)

    def failed(self) -> str | None:
        """How it ended and the last line that it said; None where it runs, or all went well."""
        if (code := self.process.poll()) is None:
            return None
        self.said.seek(0)
        lines = self.said.read().decode("utf-8", "replace").split("\n")
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return ": ".join([how, *[line for line in lines if line.strip()][-1:]]) if code else None


_others: list[_Other] = []
"""Those that this process has started."""


def _last_words(others: Sequence[_Other], seconds: float) -> str | None:
    """How the first of them ended that does so within some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        for other in others:
            if (how := other.failed()) is not None:
                return how
        if time.monotonic() > deadline or all(other.process.poll() == 0 for other in others):
            return None
        time.sleep(0.05)
