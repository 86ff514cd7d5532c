"""Where the units of a study are computed: processes of this machine, or tasks of a Ray cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol

from albertine.core.processors import usable_cores, usable_threads
from albertine.errors import MissingExtra, RunError
from albertine.study.work import LOG

EngineName = Literal["local", "ray"]
GRACE_SECONDS = 60.0
"""For a unit to save its run after SIGTERM."""
CONNECT_SECONDS = 10.0
"""For a cluster to accept a connection."""


class Engine(Protocol):
    """Computes units.

    Attributes:
        slots: units at once.
    """

    slots: int

    def submit(self, folder: Path) -> Future[int]:
        """Begin the unit in a folder; the exit code of its process, negative: the signal that killed it."""
        ...

    def close(self) -> None:
        """End all units that run, each after saving its run."""
        ...


def threads_of(name: EngineName, parallel: int | None) -> int:
    """Threads of a unit: an equal share of those of this machine, on Ray one."""
    return 1 if name == "ray" else max(1, usable_threads() // (parallel or 1))


def engine(name: EngineName, parallel: int | None) -> Engine:
    """The engine of a name.

    Args:
        parallel: units at once; default: one here, and as many as the cluster has cores on Ray.

    Raises:
        MissingExtra: Ray is not installed. RunError: there is no cluster at RAY_ADDRESS.
    """
    return RayEngine(parallel) if name == "ray" else LocalEngine(parallel or 1)


class LocalEngine:
    """Processes of this machine, with an equal share of its threads each."""

    def __init__(self, parallel: int) -> None:
        self.slots = parallel
        self._threads = threads_of("local", parallel)
        self._pool = ThreadPoolExecutor(parallel)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def submit(self, folder: Path) -> Future[int]:
        return self._pool.submit(self._run, folder)

    def _run(self, folder: Path) -> int:
        process = begin(folder, self._threads)
        self._running.add(process)
        if self._closed:
            process.terminate()
        try:
            return process.wait()
        finally:
            self._running.discard(process)
            _let_go(process)

    def close(self) -> None:
        self._closed = True
        for process in tuple(self._running):
            _end(process)
        self._pool.shutdown(cancel_futures=True)


class RayEngine:
    """Tasks of a Ray cluster, one core each: the one that RAY_ADDRESS names, else of this machine.

    The folder of the study must be on a disk that all of its machines have under the same path.
    """

    def __init__(self, parallel: int | None) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra(
                "a study on Ray needs ray, which is not installed",
                remedy="pip install 'albertine[ray]', or leave --engine ray out: --parallel N runs N cells "
                "at once on this machine",
            ) from error
        self._ray = ray
        self._began = not ray.is_initialized()
        if self._began:
            _connect(ray, parallel)
        resources = ray.cluster_resources()
        self.slots = parallel or max(1, int(resources.get("CPU", 1)))
        needs = {"num_cpus": 1, "num_gpus": 1 if resources.get("GPU") else 0}
        # A task whose process is killed is begun again, and its run goes on where it was saved.
        self._task = ray.remote(**needs, max_retries=3)(_in_a_process)
        self._tasks: list[Any] = []

    def submit(self, folder: Path) -> Future[int]:
        task = self._task.remote(str(folder.absolute()))
        self._tasks.append(task)
        future: Future[int] = task.future()
        return future

    def close(self) -> None:
        for task in self._tasks:
            with suppress(Exception):  # it is done, or its node is gone
                self._ray.cancel(task)
        if self._began:
            self._ray.shutdown()


def _connect(ray: Any, parallel: int | None) -> None:
    """Connect to the cluster that RAY_ADDRESS names. Without it, begin one of this machine, which ends with
    this process; "local" leaves alone another that runs here.

    Raises:
        RunError: there is none at that address.
    """
    address = os.environ.get("RAY_ADDRESS") or "local"
    cores = {"num_cpus": parallel or usable_cores()} if address == "local" else {}
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():  # since Ray itself tries for minutes
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(address=address, include_dashboard=False, log_to_driver=False, **cores)
    except (ValueError, OverflowError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise RunError(
            f"Ray has no cluster at RAY_ADDRESS={address} ({reason})",
            remedy="Give the address of a cluster that runs, such as 10.0.0.1:6379, or unset RAY_ADDRESS: "
            "then one of this machine is begun",
        ) from error


def _in_a_process(folder: str) -> int:
    """One unit in a process of its own, as here: of a Ray worker that is killed, it ends by its pipe."""
    process = begin(Path(folder), threads_of("ray", None))
    try:
        return process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        _let_go(process)


def begin(folder: Path, threads: int) -> subprocess.Popen[bytes]:
    """The process that computes the unit in a folder; its output is appended to the unit's log."""
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    variables.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # decision 008
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "albertine.study.worker", str(folder.absolute())],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=variables,
            start_new_session=True,  # Ctrl-C reaches the study, which ends its units
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _let_go(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
