"""What the server refuses, as the one body that every route answers with (native), or OpenAI's on `/v1/*`.

Status, kind and the advice to try again are one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from albertine.errors import AlbertineError, NotFinite
from albertine.serving.queue import Overload, TooLate

TYPES: dict[int, tuple[str, str]] = {
    400: ("Syntax", "invalid_request_error"),
    401: ("Unauthorized", "authentication_error"),
    403: ("Forbidden", "permission_error"),
    404: ("NotFound", "not_found_error"),
    405: ("NotFound", "invalid_request_error"),
    408: ("Timeout", "timeout_error"),
    413: ("TooLarge", "invalid_request_error"),
    422: ("Validation", "invalid_request_error"),
    429: ("Overloaded", "rate_limit_error"),
    499: ("Cancelled", "invalid_request_error"),
    500: ("Backend", "server_error"),
    503: ("Unhealthy", "server_error"),
    504: ("Timeout", "server_error"),
}
"""Every status with its `error_type` on native routes and its `type` on OpenAI's."""
AGAIN, NEVER = {"x-should-retry": "true"}, {"x-should-retry": "false"}


class Refusal(Exception):
    """An answer other than what was asked for.

    Attributes:
        status: of HTTP, one of `TYPES`. code: what a program goes by. message: what a person reads.
        details: further data. headers: such as when to ask again.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code)  # not the message, which may quote what was sent
        self.status, self.code, self.message = status, code, message
        self.details, self.headers = dict(details or {}), dict(headers or {})

    def body(self, request_id: str, *, openai: bool) -> dict[str, Any]:
        """What is sent."""
        native, theirs = TYPES[self.status]
        if openai:
            param = self.details.get("field")
            error = {"message": self.message, "type": theirs, "param": param, "code": self.code}
            return {"error": error, "request_id": request_id}
        return {
            "error": self.message,
            "error_type": native,
            "code": self.code,
            "details": self.details,
            "request_id": request_id,
        }


def invalid(code: str, message: str, **details: Any) -> Refusal:
    """422: what was sent is JSON, and means nothing here."""
    return Refusal(422, code, message, details=details)


def refusal_of(error: BaseException, index: int) -> Refusal:
    """What a client is told of the error of one of its items."""
    told = {"index": index}
    if isinstance(error, Refusal):
        return error
    if isinstance(error, Overload):
        headers = {"retry-after": str(error.retry_after), **AGAIN}
        return Refusal(429, error.reason, "there is more to do than the server can take in", headers=headers)
    if isinstance(error, TooLate):
        return Refusal(504, "deadline", "the answer did not come in time", details=told, headers=NEVER)
    if isinstance(error, NotFinite):
        return Refusal(
            500, "non_finite_output", "the model gave no finite numbers", details=told, headers=NEVER
        )
    if isinstance(error, AlbertineError):
        advice = f". {error.remedy}" if error.remedy else ""
        return Refusal(422, "not_answerable", f"{error.what}{advice}", details=told)
    return Refusal(500, "internal", "the server failed; its log says where", details=told, headers=NEVER)
