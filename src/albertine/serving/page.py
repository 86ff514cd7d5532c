"""The page that the server sends to browsers, and the list of routes: static files with headers that forbid
every foreign resource.

The files hold no data of the model and no secret: the script of the page sends the same requests as any other
client, with the token where one is required.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).with_name("page")
INDEX = "index.html"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    # Stored, and compared by its tag at every use: a server of another version may have the same address.
    "cache-control": "no-cache",
}
PREFIX_HELP = (
    "The page works below any path of a proxy that removes this path before it forwards a request, and is "
    "opened with a slash at its end, as in https://example.com/albert/"
)
"""Remedy for a page that is requested by a path that this server does not have."""


def page_handlers() -> dict[str, Callable[[Request], Awaitable[Response]]]:
    """Handlers of `GET` and `HEAD` for the files of the page by their paths; `/` is the page itself."""
    others = sorted(file for file in FOLDER.iterdir() if file.suffix in TYPES and file.name != INDEX)
    files = {"/": FOLDER / INDEX} | {f"/page/{file.name}": file for file in others}
    found = {path: _handler(_content(file), TYPES[file.suffix]) for path, file in files.items()}
    own = tuple((path, TYPES[file.suffix]) for path, file in files.items() if path != "/")
    return found | {
        "/docs": _handler(cache(lambda: _interface(own, page=True)), "text/html"),
        "/openapi.json": _handler(cache(lambda: _interface(own, page=False)), "application/json"),
    }


def _content(file: Path) -> Callable[[], bytes]:
    content = file.read_bytes()  # now, since the file may be replaced while the server runs
    return lambda: content


def _interface(files: tuple[tuple[str, str], ...], *, page: bool) -> bytes:
    """The routes of the server as a page or as a document."""
    # At the first request, and by another thread: the schemas of all routes take a fifth of a second.
    from albertine.serving.docs_page import docs_page
    from albertine.serving.openapi import document

    found = document(files)
    return (docs_page(found) if page else json.dumps(found, ensure_ascii=False)).encode()


def _handler(read: Callable[[], bytes], kind: str) -> Callable[[Request], Awaitable[Response]]:
    """The handler of a file.

    Args:
        read: its content, always the same. kind: its media type.
    """

    async def endpoint(request: Request) -> Response:
        content = await asyncio.to_thread(read)
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = HEADERS | {"etag": tag}
        known = request.headers.get("if-none-match", "")
        # A proxy that compresses makes the tag a weak one.
        if tag in (one.strip().removeprefix("W/") for one in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    return endpoint
