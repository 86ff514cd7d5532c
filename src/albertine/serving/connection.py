"""A connection of a client: how long it may do nothing, how many there may be, and what is answered to what
is no request. The rest is uvicorn's."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from albertine.serving.limits import ServingLimits
from albertine.tasks.http.errors import HttpError

QUEUE = 2048
"""Connections that the system keeps until they are accepted."""
AT_ONCE, SPARE = 32, 32
"""Connections that are accepted in one round of the event loop, and files that the process opens besides."""
ROUNDS = 5
"""Rounds from accepting a connection too many until the file of the one that is ended for it is closed."""
HEAD = 65_536
"""Bytes of the head of a request."""
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


class Connection(HttpToolsProtocol):
    """A connection with bounds on the time that a client takes.

    A client that ends its side after a request, as `nc -N` does, still gets the answer.
    """

    limits: ServingLimits
    room: Room

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._state, self._timer = "", None
        self._arriving, self._head = "", 0
        self._ended_by_client = self._counted = self._refused = False

    _timer: asyncio.TimerHandle | None
    _arriving: str
    """Which part of a request arrives: `head`, `body`, or nothing."""
    _head: int
    """Bytes of the head that have arrived."""

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
        self._unset_keepalive_if_required()
        while data and not self._refused:
            self._head += len(data)
            try:
                self.parser.feed_data(data)
                data = b""
            except httptools.HttpParserUpgrade as at:  # to another protocol, which is not done
                data = data[at.args[0] :]
            except httptools.HttpParserError as error:
                # Of the parser's fixed messages, which quote nothing of the request.
                code = "unclear_length" if "Transfer-Encoding" in str(error) else "not_http"
                self._refuse(HttpError(400, code, f"what was sent is not an HTTP request: {error}"))
        if self._arriving == "head" and self._head > HEAD:
            message = f"the head of the request has more than {HEAD:,} bytes"
            self._refuse(HttpError(431, "head_too_large", message))
        self._look()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arriving, self._head = "head", 0

    def on_headers_complete(self) -> None:
        self._arriving = "body"
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._arriving = ""

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
        waiting = waiting and not self.pipeline  # or it would be written into the response before
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
        elif self._arriving == "body":
            self._enter("body")  # of a request that was answered before it had arrived whole
        elif self.cycle is None or self._arriving == "head":
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
        if self._state == "head" and self._arriving == "head":
            self._refuse(HttpError(408, "slow_head", SLOW))
        else:
            self.transport.close()

    # ---- what is no request

    def _refuse(self, error: HttpError) -> None:
        """Answer to what is no request, or has no end, and close; behind requests that are being answered,
        close after their responses."""
        self._refused = True
        if self._answering:
            cycle = self.cycle
            if self.pipeline or cycle.response_started or not cycle.more_body:
                cycle.keep_alive = False
                return
            cycle.disconnected = True  # its route waits for the rest of the body
            cycle.message_event.set()
        body = orjson.dumps(error.body(secrets.token_hex(8), openai=False))
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(
            body
        )
        self.transport.write(STATUS_LINE[error.status] + head + body)
        self.transport.close()


def connections(limits: ServingLimits, room: Room) -> type[Connection]:
    """The class of connections of one server."""
    return type("BoundedConnection", (Connection,), {"limits": limits, "room": room})
