"""Errors of the model and of the queue as HTTP errors: status, code and the advice to try again."""

from __future__ import annotations

from albertine.errors import AlbertineError, NotFinite
from albertine.serving.queue import Overload, TooLate
from albertine.tasks.http.errors import HttpError

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
