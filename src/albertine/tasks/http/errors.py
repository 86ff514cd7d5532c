"""HTTP errors, in the form of text-embeddings-inference or, on `/v1/*`, in OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES: dict[int, tuple[str, str]] = {
    400: ("Syntax", "invalid_request_error"),
    401: ("Unauthorized", "authentication_error"),
    403: ("Forbidden", "permission_error"),
    404: ("NotFound", "not_found_error"),
    405: ("NotFound", "invalid_request_error"),
    408: ("Timeout", "timeout_error"),
    409: ("Conflict", "invalid_request_error"),
    413: ("TooLarge", "invalid_request_error"),
    422: ("Validation", "invalid_request_error"),
    429: ("Overloaded", "rate_limit_error"),
    499: ("Cancelled", "invalid_request_error"),
    500: ("Backend", "server_error"),
    503: ("Unhealthy", "server_error"),
    504: ("Timeout", "server_error"),
    507: ("OutOfMemory", "server_error"),
}
"""Every status with its `error_type` on native routes and its `type` on OpenAI's."""


class HttpError(Exception):
    """An error response.

    Attributes:
        status: one of `TYPES`. code: for programs. message: for people.
        details: further data. headers: such as `retry-after`.
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
        super().__init__(code)  # not the message, which may quote the request
        self.status, self.code, self.message = status, code, message
        self.details, self.headers = dict(details or {}), dict(headers or {})

    def body(self, request_id: str, *, openai: bool) -> dict[str, Any]:
        """The JSON of the response."""
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


def invalid(code: str, message: str, **details: Any) -> HttpError:
    """422: the request is JSON, and not valid here."""
    return HttpError(422, code, message, details=details)
