"""Checks of a request before its content is read: its token, its size, and that it is JSON."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertine.errors import SettingsError
from albertine.tasks.http.errors import HttpError, invalid

CHUNKS = 65_536
"""Pieces in which a body may arrive: each costs time, however small it is."""
FIELDS = 100
"""Most fields of an object in a body: each unknown one would be an error of its own."""


@dataclass(frozen=True)
class ServingLimits:
    """Limits of a server.

    Attributes:
        body_bytes: of a request. header_seconds, body_seconds: in which its head, and then its body, must
            have arrived. idle_seconds: for which a connection stays open without a request.
        queue_tokens, queue_items: that wait, of all requests together; also the most of one request.
        deadline_seconds: from a request's arrival to its answer.
        auto_truncate: whether inputs that are too long are truncated where a request does not set `truncate`.
        hosts, origins: further names of the server in the Host header, and the sites whose pages may send
            requests (see `albertine.serving.origins`).
    """

    body_bytes: int = 2 * 1024 * 1024
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    idle_seconds: float = 75.0
    queue_tokens: int = 262_144
    queue_items: int = 4096
    deadline_seconds: float = 30.0
    auto_truncate: bool = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(file: Path | None, variable: str) -> bytes | None:
    """The token of a file, or several, one a line, else of a variable; neither a byte-order mark nor blank
    characters around a line belong to it.

    Raises:
        SettingsError: it is empty.
    """
    if file is None:
        token = os.environ.get(variable, "").strip()
    else:
        token = file.read_text(encoding="utf-8-sig", errors="replace").strip()
    if not token and (file is not None or variable in os.environ):
        raise SettingsError("holds no token", where=file or variable, remedy="Write one there, or name none")
    token = "\n".join(line.strip() for line in token.splitlines() if line.strip())
    return token.encode("utf-8", "surrogateescape") or None  # a variable may hold any bytes


def authorized(given: str | None, token: bytes | None) -> bool:
    """Whether a request may pass: its header holds a token, after `Bearer` or alone.

    Args:
        given: the header's bytes as Latin-1, which is how Starlette reads them.
        token: one or more in UTF-8, one a line; None: any request passes.
    """
    return token is None or token_number(given, token) is not None


def token_number(given: str | None, token: bytes) -> int | None:
    """Which of the tokens a header holds; None: none of them. They are compared in a time that does not
    depend on how much of one is right. Arguments as of `authorized`."""
    scheme, _, rest = (given or "").partition(" ")
    token_text = rest.strip() if scheme.lower() == "bearer" else (given or "").strip()
    # Of a token beyond ASCII some clients send the bytes in UTF-8, others in Latin-1.
    in_utf8 = token_text.encode("latin-1", "surrogateescape")
    in_latin1 = token_text.encode("utf-8", "surrogateescape")
    found = None
    for number, one in enumerate(token.splitlines()):
        if hmac.compare_digest(in_utf8, one) | hmac.compare_digest(in_latin1, one):
            found = number
    return found


async def read_body(stream: AsyncIterator[bytes], headers: Mapping[str, str], limits: ServingLimits) -> bytes:
    """The bytes of a body, never more than the limit, whatever its Content-Length is.

    Raises:
        HttpError: 413 too many bytes or pieces; 400 compressed; 408 too slow.
    """
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpError(400, "compressed_body", "bodies are taken uncompressed")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limits.body_bytes:
        raise _too_large(limits)
    try:
        return await asyncio.wait_for(_joined(stream, limits), limits.body_seconds)
    except TimeoutError:
        message = f"the body took longer than {limits.body_seconds:g} s"
        # Closed, as a client that sends a byte now and then would hold the connection forever.
        raise HttpError(408, "slow_body", message, headers={"connection": "close"}) from None


async def _joined(stream: AsyncIterator[bytes], limits: ServingLimits) -> bytes:
    parts, size = [], 0
    async for part in stream:
        parts.append(part)
        size += len(part)
        if size > limits.body_bytes or len(parts) > CHUNKS:
            raise _too_large(limits)
    return b"".join(parts)


def _too_large(limits: ServingLimits) -> HttpError:
    return HttpError(
        413,
        "body_too_large",
        f"the body has more than {limits.body_bytes:,} bytes, or came in more than {CHUNKS:,} pieces",
        details={"limit": limits.body_bytes},
    )


def read_json(body: bytes) -> dict[str, Any]:
    """The object that a body holds.

    Raises:
        HttpError: 400, it is no JSON, or not only that; 422, it is no object, one of too many fields, or a
            text in it holds half a character.
    """
    try:
        found = json.loads(body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
        if b"\\u" in body:  # else no half can be in it, since UTF-8 has none
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError:
        raise HttpError(400, "not_utf8", "the body is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise HttpError(
            400, "not_json", f"the body is not JSON: {error.msg}, line {error.lineno} column {error.colno}"
        ) from None
    except UnicodeEncodeError:
        raise invalid("not_unicode", "the body holds half a character (a lone surrogate)") from None
    except (ValueError, RecursionError):  # more digits, or lists inside each other, than Python reads
        raise HttpError(400, "not_json", "the body is not JSON that can be read") from None
    if not isinstance(found, dict):
        raise HttpError(422, "invalid_type", "the body is not a JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > FIELDS:
        raise invalid("too_many_fields", f"an object has more than {FIELDS} fields", limit=FIELDS)
    found = dict(pairs)
    if len(found) < len(pairs):
        raise HttpError(400, "duplicate_key", "an object names a key twice")
    return found


def _no_number(name: str) -> Any:
    raise HttpError(400, "not_json", f"{name} is not a number in JSON")
