"""The web application: routes, and for every request its token, its id, its line in the log and its metrics.
Nothing of a request's body is ever logged."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from albertine.serving import routes
from albertine.serving.error_responses import guarded
from albertine.serving.json_output import as_json, in_parts
from albertine.serving.limits import ServingLimits, authorized, read_body, read_json, token_number
from albertine.serving.model_routes import model_routes
from albertine.serving.models import PREFIX, Models, split_path
from albertine.serving.origins import check_browser, check_host
from albertine.serving.page import PREFIX_HELP, page_handlers
from albertine.serving.request_context import RequestContext
from albertine.serving.routes import Handler
from albertine.serving.view_routes import model_facts
from albertine.tasks.http.errors import HttpError, invalid

log = logging.getLogger("albertine.serving")

Endpoint = Callable[[Request], Awaitable[Response]]
LIVE = "/health/live"
HEALTH = ("/health", "/health/ready", LIVE)
MODELS = "/v1/models"
CHANGES = ("PUT", "DELETE")
"""Methods that load and unload the model of a path below `MODELS`."""
GOT = (MODELS, "/info", "/analyze/model", *HEALTH, "/metrics")
PAGE = page_handlers()
"""Handlers of the files of the page."""
SENT_ACROSS = [
    *("authorization", "content-type", "x-request-id"),
    *(f"x-stainless-{name}" for name in ("arch", "lang", "os", "package-version", "retry-count")),
    *(f"x-stainless-{name}" for name in ("runtime", "runtime-version", "timeout")),
]
"""Headers that a page of an allowed site may send; those of OpenAI's client among them."""
READ_ACROSS = [
    *("x-request-id", "x-model-sha", "x-truncated-inputs", "x-warning", "retry-after", "x-should-retry"),
    *(f"x-compute-{name}" for name in ("type", "time", "characters", "tokens")),
    *(f"x-{name}-time" for name in ("total", "tokenization", "queue", "inference")),
]
"""Headers of an answer that it may read."""
ID = re.compile(r"[\w.-]{1,64}", re.ASCII)  # other letters would go back in other bytes
FEW, SHORT = 64, 32_768
"""Texts, and bytes of a request, whose answer is written at once; others in parts, by another thread."""


def paths() -> tuple[str, ...]:
    """All paths; those of `POST` first, those of the page last."""
    return tuple(dict.fromkeys((*routes.handlers(), *GOT, *PAGE)))


def application(
    models: Models,
    token: bytes | None = None,
    host: str = "localhost",
    traces: Any | None = None,
    admin_token: bytes | None = None,
) -> Starlette:
    """The application that answers for models.

    Args:
        token: that every request but to `/health/live` and for the files of the page must send, or several,
            one a line, each of a client; None: no token, but pages of other sites are refused
            (`albertine.serving.origins`). host: name or address that the server listens on.
        traces: provider of tracers (`albertine.serving.tracing`); None: no traces.
        admin_token: of requests that load and unload models; None: there are none.
    """
    posted = {path: _posted(models, handler, token) for path, handler in routes.handlers().items()}
    # `POST` to these is answered by `Guard` itself: the way through Starlette takes a tenth of the time of a
    # short request.
    middleware = [
        Middleware(Guard, models=models, token=token, host=host, posted=posted, admin_token=admin_token)
    ]
    if models.limits.origins:
        crossing = Middleware(
            CORSMiddleware,
            allow_origins=models.limits.origins,
            allow_methods=["GET", "POST"],
            allow_headers=SENT_ACROSS,
            expose_headers=READ_ACROSS,
        )
        middleware.insert(0, crossing)
    if traces is not None:
        from albertine.serving.tracing import Tracing

        middleware.insert(0, Middleware(Tracing, provider=traces, posted=frozenset(posted)))
    app = Starlette(
        routes=[
            Route("/", PAGE["/"], methods=["GET", "POST"]),
            *(Route(path, handler) for path, handler in PAGE.items() if path != "/"),
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posted.items() if path != "/"),
            *model_routes(models, MODELS),
            Route("/info", _got(models, routes.info)),
            Route("/analyze/model", _got(models, model_facts)),
            Route("/health", _health(models)),
            Route("/health/ready", _health(models)),
            Route(LIVE, lambda request: PlainTextResponse("alive\n")),
            Route("/metrics", lambda request: Response(*_metrics(models))),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: _unknown, HttpError: _error_response},
    )
    # A path with a slash too many is not there: a redirect would name the address before a proxy wrongly.
    app.router.redirect_slashes = False
    return app


class Guard:
    """Middleware with the checks before every route.

    Args:
        token, host, admin_token: as in `application`. posted: by path, what answers requests to a model.
    """

    def __init__(
        self,
        app: ASGIApp,
        models: Models,
        token: bytes | None,
        host: str,
        posted: Mapping[str, Endpoint],
        admin_token: bytes | None,
    ) -> None:
        self._app, self._models, self._token, self._host = app, models, token, host
        self._posted, self._admin_token = posted, admin_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Of the scope, not of `request.url`, into which a client writes by its Host header.
        name, path = split_path(scope["path"])
        bare = name is not None and scope["path"] == PREFIX + name
        if name is not None:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        request, began = Request(scope, receive), time.monotonic()
        request.state.model = name
        given = request.headers.get("x-request-id", "")
        # What a client calls its request is logged, so it may be no more than a name.
        request.state.id = given if ID.fullmatch(given) else secrets.token_hex(8)
        status, begun = 500, False

        async def answered(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message["headers"] = [*message["headers"], (b"x-request-id", request.state.id.encode())]
            await send(message)

        models = self._models
        if path.startswith(MODELS + "/"):  # any name may stand behind it
            path = MODELS
        error = self._error_of(path, request) or self._error_of_name(name, path, request)
        # Not errors: clients that retry would keep a draining server from ending.
        counted = error is None and path in self._posted and not _is_of_page(path, request)
        models.running += counted
        try:
            if error is not None:
                await _error_response(request, error)(scope, receive, answered)
            elif bare and request.method in ("GET", "HEAD"):  # the page's addresses are relative
                await RedirectResponse(f"{name}/")(scope, receive, answered)
            elif request.method == "POST" and (endpoint := self._posted.get(path)) is not None:
                try:
                    response = await endpoint(request)
                except HttpError as failure:
                    response = _error_response(request, failure)
                await response(scope, receive, answered)
            else:
                await self._app(scope, receive, answered)
        except asyncio.CancelledError:
            # uvicorn's, once the time for what is in flight is over; raised on it would be a traceback.
            if not models.draining:
                raise
            if not begun:
                await _error_response(request, self._ending())(scope, receive, answered)
        finally:
            models.running -= counted
            seconds = time.monotonic() - began
            models.metrics.request(path, status, seconds)
            known = path in self._posted or path in GOT or path in PAGE
            _log(request, path if known else "(unknown)", status, seconds)

    def _error_of_name(self, name: str | None, path: str, request: Request) -> HttpError | None:
        if name is not None:
            try:
                self._models.find(name)
            except HttpError as error:
                # These need no token, so they do not list the names of the others.
                public = self._token is not None and (path == LIVE or _is_of_page(path, request))
                return HttpError(404, error.code, f"there is no model `{name:.100}`") if public else error
        return None

    def _error_of(self, path: str, request: Request) -> HttpError | None:
        headers = request.headers
        if "transfer-encoding" in headers and ("content-length" in headers or _is_old(request)):
            # What is before or behind this server may take the rest of the body for a request of its own.
            why = "the end of the body is not clear: send Content-Length, or Transfer-Encoding by HTTP/1.1"
            return HttpError(400, "unclear_length", why, headers={"connection": "close"})
        if _is_of_page(path, request):
            return self._error_of_page(headers)
        changes = request.method in CHANGES and request.scope["path"].startswith(MODELS + "/")
        if changes and self._admin_token is not None:
            if not authorized(headers.get("authorization"), self._admin_token):
                return _unauthorized("the token of the administrator")
            return self._ending() if self._models.draining else None
        if self._token is None and path not in HEALTH:  # which probes call by any name
            limits = self._models.limits
            try:
                check_browser(request.method, headers, self._host, limits.hosts, limits.origins)
            except HttpError as error:
                return error
        if path != LIVE and not authorized(headers.get("authorization"), self._token):
            return _unauthorized("the token")
        if changes:
            # The token of clients does not suffice: a model can be any folder that the server can read.
            message = "to load and unload models, start the server with --admin-token-file"
            return HttpError(403, "no_admin_token", message)
        if self._models.draining and path in self._posted:
            return self._ending()
        return None

    def _error_of_page(self, headers: Mapping[str, str]) -> HttpError | None:
        """The files of the page hold nothing secret, so they need no token, which a browser could not send,
        and links of other sites may lead to them."""
        if self._token is not None:
            return None
        try:
            check_host(headers, self._host, self._models.limits.hosts)
        except HttpError as error:
            return error
        return None

    def _ending(self) -> HttpError:
        self._models.metrics.draining()
        headers = {"retry-after": "1", "connection": "close"}
        return HttpError(503, "draining", "the server is about to end", headers=headers)


def _unauthorized(what: str) -> HttpError:
    return HttpError(
        401,
        "unauthorized",
        f"{what} is missing or wrong; send the header `Authorization: Bearer TOKEN`",
        headers={"www-authenticate": "Bearer"},
    )


def _is_of_page(path: str, request: Request) -> bool:
    return path in PAGE and request.method in ("GET", "HEAD")


def _is_old(request: Request) -> bool:
    return bool(request.scope.get("http_version") == "1.0")


def _log(request: Request, path: str, status: int, seconds: float) -> None:
    context: RequestContext | None = getattr(request.state, "context", None)
    cost = ""
    if context is not None:
        cost = f" model={context.service.model.name} inputs={context.inputs} tokens={context.tokens}"
    if context is not None and context.truncated:
        cost += f" truncated={context.truncated}"
    quiet = path in (*HEALTH, "/metrics") and status == 200
    log.log(
        logging.DEBUG if quiet else logging.INFO,
        "%s %s %d %.0f ms%s id=%s",
        *(request.method, path, status, 1000 * seconds, cost, request.state.id),
    )


def _posted(models: Models, handler: Handler, token: bytes | None) -> Endpoint:
    """A route with a body, answered by a model."""

    async def endpoint(request: Request) -> Response:
        async def gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        async def respond() -> Response:
            body = await _body(request, models.limits)
            fields = read_json(body)
            with models.using(_model_name(request.state.model, fields)) as service:
                context = RequestContext(service, fields, gone, _client(request, token))
                request.state.context = context
                answer = await handler(context)
                few = context.inputs < FEW and len(body) < SHORT
                found = as_json(answer) if few else await asyncio.to_thread(in_parts, answer)
                headers = context.response_headers()
                return Response(found, media_type="application/json", headers=headers)

        return await guarded(respond)

    return endpoint


def _client(request: Request, token: bytes | None) -> str | None:
    """Whose request it is, for equal shares of time: that of a token where there are several, else of an
    address."""
    if token is not None and b"\n" in token:
        return f"token {token_number(request.headers.get('authorization'), token)}"
    return request.client and request.client.host


def _model_name(in_path: str | None, fields: dict[str, Any]) -> str | None:
    """The name of the model in the path or the body of a request, from which it is removed.

    Raises:
        HttpError: the two differ, or it is no text.
    """
    in_body = fields.pop("model", None)
    if in_body is not None and not isinstance(in_body, str):
        raise invalid("invalid_type", "`model` is to be a text", field="model")
    if in_path is not None and in_body and in_body != in_path:
        raise invalid(
            "two_models", f"the address names the model `{in_path}`, and the body another", field="model"
        )
    return in_path or in_body or None


async def _body(request: Request, limits: ServingLimits) -> bytes:
    """The bytes of a body. Raises as `read_body`.

    If the connection closes after the response (`connection: close`, as urllib sends, or HTTP/1.0), the rest
    of the body is read before an error is sent, within the time limit of bodies: closing a socket while bytes
    still arrive resets it, and the response is lost.
    """
    try:
        return await read_body(request.stream(), request.headers, limits)
    except HttpError as error:
        connection = request.headers.get("connection", "").lower()
        closes = "close" in connection or request.scope["http_version"] == "1.0"
        sends = "expect" not in request.headers  # a client that expects 100-continue sends nothing before it
        if closes and sends and error.code != "slow_body":
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.body_seconds):
                    async for _ in request.stream():
                        pass
        raise


def _got(models: Models, handler: Handler) -> Endpoint:
    """A route without a body."""

    async def endpoint(request: Request) -> Response:
        async def respond() -> Response:
            with models.using(request.state.model) as service:
                context = RequestContext(service, {}, request.receive)
                return Response(as_json(await handler(context)), media_type="application/json")

        return await guarded(respond)

    return endpoint


def _error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    body = error.body(request.state.id, openai=request.scope["path"].startswith("/v1/"))
    return Response(as_json(body), error.status, headers=error.headers, media_type="application/json")


def _unknown(request: Request, error: Exception) -> Response:
    """A path or a method that is not there."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = dict(error.headers or {}).get("Allow", "")
        error = HttpError(
            405, "method_not_allowed", f"this route takes {allowed}", headers={"allow": allowed}
        )
    else:
        message = f"there is no such route; there are {', '.join(paths())}"
        if "text/html" in request.headers.get("accept", ""):  # a browser, by an address of somebody
            message += f". {PREFIX_HELP}"
        error = HttpError(404, "no_route", message)
    return _error_response(request, error)


def _health(models: Models) -> Callable[[Request], Awaitable[Response]]:
    """Of all models, or of the one that the address names."""

    async def endpoint(request: Request) -> Response:
        name = request.state.model
        services = models.services if name is None else [models.find(name)]
        if await models.ready(services):
            state = "degraded" if any(one.engine.not_finite for one in services) else "ready"
            return Response(as_json({"status": state}), media_type="application/json")
        state = "draining" if models.draining else "not_ready" if services else "no_model"
        return _error_response(request, HttpError(503, state, "the server does not answer questions now"))

    return endpoint


def _metrics(models: Models) -> tuple[bytes, int, None, str]:
    text, kind = models.metrics.text()
    return text, 200, None, kind
