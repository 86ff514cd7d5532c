"""Errors of the model, of the queue and of the program as HTTP errors: status, code and the advice to try
again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from albertine.errors import AlbertineError, NotFinite
from albertine.serving.engine import traceback_without_text
from albertine.serving.queue import Overload, TooLate
from albertine.tasks.http.errors import HttpError

log = logging.getLogger("albertine.serving")
AGAIN, NEVER = {"x-should-retry": "true"}, {"x-should-retry": "false"}


def http_error_of(error: BaseException, index: int) -> HttpError:
    """The HTTP error of one question of a request, by its number."""
    details = {"index": index}
    if isinstance(error, HttpError):
        return error
    if isinstance(error, Overload):
        headers = {"retry-after": str(error.retry_after), **AGAIN}
        return HttpError(
            429, error.reason, "there is more to do than the server can take in", headers=headers
        )
    if isinstance(error, TooLate):
        return HttpError(504, "deadline", "the answer did not come in time", details=details, headers=NEVER)
    if isinstance(error, NotFinite):
        return HttpError(
            500, "non_finite_output", "the model gave no finite numbers", details=details, headers=NEVER
        )
    if isinstance(error, AlbertineError):
        advice = f". {error.remedy}" if error.remedy else ""
        return HttpError(422, "not_answerable", f"{error.what}{advice}", details=details)
    return HttpError(500, "internal", "the server failed; see its log", details=details, headers=NEVER)


async def guarded(respond: Callable[[], Awaitable[Response]]) -> Response:
    """The response; unexpected errors become HTTP 500, since Starlette would log their messages, which may
    quote the request."""
    try:
        return await respond()
    except HttpError:
        raise
    except ClientDisconnect:
        raise HttpError(499, "client_left", "the client has left") from None
    except Exception as error:
        log.error("a request failed: %s", traceback_without_text(error))
        raise HttpError(500, "internal", "the server failed; see its log", headers=NEVER) from None
