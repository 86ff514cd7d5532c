"""The models of a server by name: loaded, replaced and unloaded while it answers."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import TypeVar

from albertine.core.memory import MEGABYTE, resident_bytes, trim_memory
from albertine.errors import AlbertineError, ModelError, SettingsError
from albertine.interop.model_files import files_of_model
from albertine.interop.model_names import model_folder
from albertine.serving.golden import check_golden
from albertine.serving.limits import ServingLimits
from albertine.serving.metrics import ServerMetrics
from albertine.serving.model_tasks import ServedModel
from albertine.serving.service import GRACE, Service
from albertine.serving.worker import Worker
from albertine.tasks.http.errors import HttpError, invalid
from albertine.tasks.predictor import Predictor

T = TypeVar("T")
log = logging.getLogger("albertine.serving")
NAME = re.compile(r"[\w.-]{1,64}")
"""Names of models that are loaded by a request: they stand in addresses and in the log."""
PREFIX = "/models/"
"""In addresses before the name of a model, behind which stands the path of a route."""
POLL = 0.02
"""Seconds between two looks at whether the last request of a replaced model has ended."""
RELEASE = 0.5
"""Seconds after which the memory of a model that has ended is given back."""


class Models:
    """All models of a server. The first one's name is that of requests without a name, also while it is
    unloaded.

    Attributes:
        worker: computes for all. metrics: of all. draining: set as the server is about to end: nothing new is
            taken in. running: requests to models that are being answered.

    Args:
        open_model: makes the predictor of a folder, a released model or a name on the hub.
        memory_megabytes: most memory of the process; None: no limit. routes: every path, for the metrics.
    """

    def __init__(
        self,
        limits: ServingLimits,
        routes: Iterable[str],
        open_model: Callable[[str], Predictor] = Predictor,
        *,
        memory_megabytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits, self._open, self._most, self._clock = limits, open_model, memory_megabytes, clock
        self.worker, self.metrics = Worker(clock), ServerMetrics(routes)
        self.draining, self.running = False, 0
        self._services: dict[str, Service] = {}
        self._first: str | None = None
        self._loading = Lock()
        self._changing: set[str] = set()
        self._retired: set[asyncio.Task[None]] = set()
        if memory_megabytes is not None and resident_bytes() is None:
            raise SettingsError("--memory-megabytes: this system does not say what memory a process takes")

    # ---- which are there

    @property
    def services(self) -> list[Service]:
        return list(self._services.values())

    def find(self, name: str | None = None) -> Service:
        """The service of a model; of the first where no name is given.

        Raises:
            HttpError: 404, there is none of this name; 503, there is none at all.
        """
        if (found := self._services.get(self._first or "" if name is None else name)) is not None:
            return found
        if name is None:
            why = "no model is loaded; load one with PUT /v1/models/NAME"
            if self._first is not None:
                why = (
                    f"the model of requests without a name, `{self._first}`, is not loaded; name another, or "
                )
                why += f"load it with PUT /v1/models/{self._first}"
            raise HttpError(503, "no_model", why)
        known = ", ".join(f"`{one}`" for one in self._services) or "none"
        raise HttpError(404, "model_not_found", f"there is no model `{name:.100}`; there is {known}")

    @contextmanager
    def using(self, name: str | None) -> Iterator[Service]:
        """`find`, for a request: until it is left, the service does not end."""
        service = self.find(name)
        service.running += 1
        try:
            yield service
        finally:
            service.running -= 1

    async def ready(self, services: Sequence[Service]) -> bool:
        """Whether each of these models answers, and there is one."""
        if self.draining or not services:
            return False
        return all(await asyncio.gather(*(service.ready() for service in services)))

    # ---- their threads

    def start(self) -> None:
        self.worker.start()

    def stop(self, patience: float) -> bool:
        """Finish what waits, and take nothing more; whether that was done within so many seconds."""
        for service in self.services:
            service.close()
        return self.worker.stop(patience)

    @property
    def computing(self) -> bool:
        """Whether a thread still computes, as it may after `stop`."""
        return (
            self._loading.locked()
            or self.worker.running
            or any(service.tokenizing for service in self.services)
        )

    # ---- changes

    def add(self, name: str, model: str) -> Service:
        """Load a model before the server answers.

        Raises:
            AlbertineError: it cannot be served. SettingsError: there is one of this name, or no memory.
        """
        if name in self._services:
            raise SettingsError(f"two models have the name {name}", remedy="Name them: A=folder B=folder")
        try:
            service = in_own_thread(lambda: self._made(name, model)).result()
        except HttpError as error:  # no memory
            raise SettingsError(error.message) from None
        self.put(service)
        return service

    def put(self, service: Service) -> None:
        """Answer requests by this service, from now on instead of another of its name."""
        self._services[service.model.name] = service
        self._first = self._first or service.model.name
        service.metrics.show(service.sha, service.queue, service.model.predictor)
        self.worker.add(service.engine)

    async def load(self, name: str, model: str) -> Service:
        """Load a model while the server answers. One of the same name is replaced once the new one has given
        its golden answers (`albertine.serving.golden`), and ends after its last request.

        Raises:
            HttpError: 409, this name is being changed; 422, the name is not valid, or the model cannot be
                served or gives other answers; 507, it does not fit in the memory. The old one stays.
        """
        if not NAME.fullmatch(name):
            raise invalid("invalid_name", "a name is 1 to 64 letters, digits, dots, dashes and underscores")
        with self._change(name):
            if self._most is not None and self._retired:  # whose memory is about to be free
                await asyncio.wait(self._retired, timeout=self.limits.deadline_seconds)
            try:
                service = await asyncio.wrap_future(in_own_thread(lambda: self._made(name, model)))
            except BaseException:
                self._release_soon()
                raise
            self.worker.add(service.engine)
            try:
                await check_golden(service, service.model.predictor.path)
            except BaseException:
                await self._ended(service)
                if name not in self._services:
                    service.metrics.remove()
                self._release_soon()
                raise
            before = self._services.get(name)
            self.put(service)
            log.info("%s is now %s", name, service.sha)
            if before is not None:
                self._retire(before)
        return service

    async def unload(self, name: str) -> None:
        """Take a model away; requests that it has are answered.

        Raises:
            HttpError: 404, there is none of this name; 409, it is being changed.
        """
        with self._change(name):
            service = self.find(name)
            del self._services[name]
            log.info("%s is unloaded", name)
            self._retire(service)
            service.metrics.remove()

    @contextmanager
    def _change(self, name: str) -> Iterator[None]:
        if name in self._changing:
            raise HttpError(409, "model_changing", f"`{name}` is being loaded or unloaded")
        self._changing.add(name)
        try:
            yield
        except AlbertineError as error:
            raise invalid("model_not_loaded", str(error)) from None
        finally:
            self._changing.discard(name)

    def _made(self, name: str, model: str) -> Service:
        with self._loading:  # one at a time: two would both find the memory free
            self._check_memory(size_on_disk(model))
            served = ServedModel(self._open(model), name)
            service = Service(served, self.limits, self.worker, self.metrics, clock=self._clock)
            self._check_memory(0)
            return service

    def _check_memory(self, more: int) -> None:
        """
        Raises:
            HttpError: 507, the process would have more memory than it may.
        """
        if self._most is None:
            return
        needed = ((resident_bytes() or 0) + more) // MEGABYTE
        if needed > self._most:
            release_memory()
            needed = ((resident_bytes() or 0) + more) // MEGABYTE
        if needed > self._most:
            raise HttpError(
                507,
                "out_of_memory",
                f"the server would take {needed:,} MB of memory, and may take {self._most:,}; unload a "
                "model, or start it with a larger --memory-megabytes",
                details={"needed": needed, "limit": self._most},
            )

    def _retire(self, service: Service) -> None:
        async def retire() -> None:
            until = self._clock() + self.limits.deadline_seconds + GRACE
            while service.running and self._clock() < until:
                await asyncio.sleep(POLL)
            await self._ended(service)
            if service.model.name not in self._services.keys() | self._changing:
                service.metrics.remove()  # again: its last requests were counted
            self._release_soon()

        task = asyncio.ensure_future(retire())
        self._retired.add(task)  # the loop alone would keep no reference
        task.add_done_callback(self._retired.discard)

    async def _ended(self, service: Service) -> None:
        await asyncio.to_thread(service.stop, self.limits.deadline_seconds)

    def _release_soon(self) -> None:
        """Give the memory of a model back once the calls that still hold it have returned."""
        loop = asyncio.get_running_loop()
        loop.call_later(RELEASE, lambda: loop.run_in_executor(None, release_memory))


def split_path(path: str) -> tuple[str | None, str]:
    """The model that a path names, if it does, and the path of the route: `/models/A/embed` is `/embed` of
    A."""
    if not path.startswith(PREFIX):
        return None, path
    name, slash, rest = path.removeprefix(PREFIX).partition("/")
    return name, slash + rest or "/"


def in_own_thread(make: Callable[[], T]) -> Future[T]:
    """What a function makes, in a thread that then ends.

    OpenMP keeps threads for each thread that has computed. If the calling one had, there would be more of
    them than processors beside those of the worker, and libgomp would let all sleep between operations, which
    makes a short text take twice as long.
    """
    made: Future[T] = Future()

    def run() -> None:
        made.set_running_or_notify_cancel()  # cancelling the waiter does not cancel it
        try:
            made.set_result(make())
        except BaseException as error:
            made.set_exception(error)

    Thread(target=run, name="albertine loading", daemon=True).start()
    return made


def size_on_disk(model: str) -> int:
    """Bytes of the files of a model; 0 where it has yet to be downloaded."""
    folder = Path(model)
    with suppress(ModelError):
        folder = folder if folder.is_dir() else model_folder(model)
        return sum(path.stat().st_size for path in files_of_model(model_folder(folder)))
    return 0


def release_memory() -> None:
    """Return the memory of a model that has gone to the system."""
    gc.collect()
    trim_memory()
