"""The process: an address, a signal that ends it, and what is still done before it ends."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import math
import socket
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn

from albertine.errors import SettingsError
from albertine.serving.app import application
from albertine.serving.connection import QUEUE, Room, connections
from albertine.serving.limits import is_loopback
from albertine.serving.models import Models

log = logging.getLogger("albertine.serving")
READING = 60.0
"""Seconds in which a client must have read some more of its answer, or its connection ends."""
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Why a connection cannot be taken in until others end."""
LOG_AGAIN = 60.0
"""Seconds between two such messages."""


class DrainingServer(uvicorn.Server):
    """Ends as soon as nothing is being answered any more: `/health` reports it at once, and new requests are
    refused, while connections stay open for what is in flight.

    Args:
        patience: seconds for what is in flight. listening: called once callers are answered.
    """

    def __init__(
        self, config: uvicorn.Config, models: Models, patience: float, listening: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._models, self._patience, self._listening = models, patience, listening
        self._until, self._announced = float("inf"), False
        self._unread: dict[Any, tuple[int, float]] = {}
        self._given_up = 0
        self._full_logged = float("-inf")
        self.unfinished = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(QUEUE)  # asyncio took the number that it accepts at once for the length of the queue
        asyncio.get_running_loop().set_exception_handler(self._failed)
        self._listening()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The exception handler of the event loop. For connections that cannot be accepted asyncio would log
        a traceback for every entry of the backlog, each second."""
        error, now = context.get("exception"), time.monotonic()
        if not (isinstance(error, OSError) and error.errno in FULL):
            loop.default_exception_handler(context)
        elif now - self._full_logged > LOG_AGAIN:
            self._full_logged = now
            count, why = len(self.server_state.connections), str(error.strerror).lower()
            log.warning("%d connections are open, and no other can be: %s; see `ulimit -n`", count, why)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal: drain. The second: end at once."""
        if self._models.draining:
            self.should_exit = self.force_exit = True
            return
        # uvicorn would raise the signal again at the end, and the process would not end with 0.
        self._models.draining = True
        self._until = time.monotonic() + self._patience

    async def on_tick(self, counter: int) -> bool:
        """Whether it is time to end; called ten times a second."""
        leave = await super().on_tick(counter)
        self._give_up()
        if self._models.draining and not self._announced:
            self._announced = True
            log.info("ending; requests in flight: %d", self._models.running)
        left = self._models.running + len(self._unread)
        if self._models.draining and (not left or time.monotonic() > self._until):
            leave = True
        if leave:
            self.unfinished = left + self._given_up
        return leave

    def _give_up(self) -> None:
        """End connections whose clients read nothing any more: their answers would stay in memory."""
        now, before = time.monotonic(), self._unread
        self._unread = {}
        connections: set[Any] = self.server_state.connections
        for one in list(connections):
            if size := _unsent(one.transport):
                last, since = before.get(one, (size, now))
                since = since if size == last else now
                if now - since > READING:
                    log.warning("a connection was ended: its client read nothing for %g s", READING)
                    one.transport.abort()
                    self._given_up += self._models.draining
                else:
                    self._unread[one] = size, since


def _unsent(transport: Any) -> int:
    """Bytes of an answer that its client has yet to fetch; 0 once all are with the system. Until then what
    the system holds counts too, where it is known (Linux): however steadily a client reads, it takes more
    from us only once a good part of its own megabytes is gone."""
    size: int = transport.get_write_buffer_size()
    if size:
        with suppress(OSError, ValueError):
            held = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
            size += int.from_bytes(held, sys.byteorder)
    return size


def bound(host: str, port: int, *, token: bytes | None, insecure: bool) -> socket.socket:
    """A socket with its address. It does not listen yet: until the model is read, callers are to be turned
    away, not to wait.

    Raises:
        SettingsError: others could reach it and no token is required; or the address is not available.
    """
    if token is None and not insecure and not is_loopback(host):
        raise SettingsError(
            f"{host} is reached from other machines, and no token is required",
            remedy="Set ALBERTINE_TOKEN or give --token-file; or --insecure, if anyone may use it",
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With its protocol: asyncio sends small packets at once only if the protocol of a socket is TCP.
        # Without that every answer over a kept connection waits 40 ms for an acknowledgement.
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:  # the last: a name with an empty part
        raise _not_had((host, port), error) from error
    return listening


def _not_had(address: tuple[Any, ...], error: Exception) -> SettingsError:
    reason = getattr(error, "strerror", None) or str(error)
    return SettingsError(
        f"cannot listen on {address[0]} port {address[1]}: {reason.lower()}",
        remedy="Name another with --host and --port; port 0 takes a free one",
    )


def serve(
    models: Models,
    listening: socket.socket,
    token: bytes | None,
    drain_seconds: float,
    started: Callable[[], None] = lambda: None,
    *,
    host: str = "localhost",
    traces: Any | None = None,
    admin_token: bytes | None = None,
) -> int:
    """Answer until a signal comes.

    Args:
        token, host, traces, admin_token: as in `application`. started: called once callers are answered.

    Returns:
        How many requests were not finished within `drain_seconds`.
    """
    room = Room()
    config = uvicorn.Config(
        application(models, token, host, traces, admin_token),
        http=connections(models.limits, room),
        backlog=room.at_once,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,  # it would log paths with their queries; ours logs routes
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=math.ceil(models.limits.idle_seconds) + 1,  # `Connection` is there before
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    models.start()
    server = DrainingServer(config, models, drain_seconds, started)
    try:
        server.run(sockets=[listening])
    except OSError as error:  # another process took the port between `bound` and here
        raise _not_had(listening.getsockname(), error) from error
    models.stop(0.0 if server.force_exit or server.unfinished else 5.0)
    return server.unfinished
