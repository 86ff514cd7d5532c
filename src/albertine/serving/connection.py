"""A connection of a client: how long it may do nothing, how many there may be, and what is answered to what
is no request. The rest is uvicorn's."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from albertine.serving.limits import ServingLimits
from albertine.tasks.http.errors import HttpError

QUEUE = 2048
"""Connections that the system keeps until they are accepted."""
AT_ONCE, SPARE = 32, 32
"""Connections that are accepted in one round of the event loop, and files that the process opens besides."""
ROUNDS = 5
"""Rounds from accepting a connection too many until the file of the one that is ended for it is closed."""
PROBES, PAUSE = 2, 0.1
"""How often, and after how many seconds each, a client that sends no more is checked for having left."""
SLOW = "the request did not arrive in time"


class Room:
    """How many connections may be open, and which are ended when there are more.

    Attributes:
        most: connections. at_once: those that are accepted in one round of the event loop.
    """

    def __init__(self, files: int | None = None) -> None:
        """
        Args:
            files: number that may still be opened; None: the system's limit.
        """
        free = _free_files() if files is None else files
        self.at_once = max(1, min(AT_ONCE, free // (2 * ROUNDS)))
        self.most = max(1, free - ROUNDS * self.at_once - min(SPARE, free // 4))
        self.open = 0
        # Those that wait, the oldest first: for the rest of a request, and for a request to begin.
        self.incomplete: dict[Connection, None] = {}
        self.idle: dict[Connection, None] = {}

    def make(self) -> None:
        """End what waits longest, as long as there are too many: first requests that have not arrived whole,
        then connections without one. What is being answered is never ended."""
        while self.open > self.most and (waiting := self.incomplete or self.idle):
            next(iter(waiting)).end()


def _free_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = len(os.listdir("/dev/fd"))
    except OSError:
        used = SPARE
    return max(1, soft - used) if soft != resource.RLIM_INFINITY else 1 << 20


class Connection(H11Protocol):
    """A connection with bounds on the time that a client takes.

    A client that ends its side after a request, as `nc -N` does, still gets the answer.
    """

    limits: ServingLimits
    room: Room

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._state, self._timer = "", None
        self._ended_by_client = self._counted = False

    _timer: asyncio.TimerHandle | None

    # ---- what happens to it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.room.open += 1
        self._counted = True
        self._look()
        self.room.make()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._leave()

    def end(self) -> None:
        """Close at once, without an answer."""
        self._leave()
        self.transport.abort()

    def _leave(self) -> None:
        """No longer count as open."""
        self._enter("")
        self.room.open -= self._counted
        self._counted = False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._ended_by_client and not self._answering and not self.transport.is_closing():
            self.transport.close()
        self._look()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Whether the connection stays open for an answer, though its client sends nothing any more."""
        if not self._answering or self.cycle.more_body:
            return None
        self._ended_by_client = True
        self._probe(PROBES)
        return True

    def _probe(self, times: int) -> None:
        """Find out whether a client that ended its side has left altogether, which looks the same until
        something is sent to it; then its answer is not computed. An interim answer is one that every client
        of HTTP/1.1 skips."""
        waiting = self._answering and not self.cycle.response_started and not self.transport.is_closing()
        if times and waiting and self.scope["http_version"] != "1.0":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.loop.call_later(PAUSE, self._probe, times - 1)

    # ---- how long it may take

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _look(self) -> None:
        """Update the state of the connection. Time limits count from the beginning of a state: single bytes
        do not extend it."""
        if self.transport.is_closing():
            self._enter("")
        elif self._answering:
            self._enter("answering")
        elif self.conn.their_state is h11.SEND_BODY:
            self._enter("body")  # of a request that was answered before it had arrived whole
        elif self.cycle is None or self.conn.trailing_data[0]:
            self._enter("head")
        else:
            self._enter("idle")

    def _enter(self, state: str) -> None:
        if state == self._state:
            return
        self._state = state
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.room.incomplete.pop(self, None)
        self.room.idle.pop(self, None)
        seconds = {
            "head": self.limits.header_seconds,
            "body": self.limits.body_seconds,
            "idle": self.limits.idle_seconds,
        }.get(state)
        if seconds is not None:
            (self.room.idle if state == "idle" else self.room.incomplete)[self] = None
            self._timer = self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        if self._state == "head" and self.conn.trailing_data[0]:
            self._refuse(HttpError(408, "slow_head", SLOW))
        else:
            self.transport.close()

    # ---- what is no request

    def send_400_response(self, msg: str) -> None:
        self._refuse(HttpError(400, "not_http", "what was sent is not an HTTP request"))

    def _refuse(self, error: HttpError) -> None:
        """Answer to what never became a request, and close."""
        body = json.dumps(error.body(secrets.token_hex(8), openai=False)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with suppress(h11.LocalProtocolError):
                head = h11.Response(status_code=error.status, headers=headers)
                for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def connections(limits: ServingLimits, room: Room) -> type[Connection]:
    """The class of connections of one server."""
    return type("BoundedConnection", (Connection,), {"limits": limits, "room": room})
