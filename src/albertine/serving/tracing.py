"""Spans of requests by OpenTelemetry, if the extra `otel` is installed and the environment names an exporter.

Nothing of OpenTelemetry is imported otherwise. Names of attributes: OpenTelemetry semantic conventions for
HTTP spans. Nothing of a request's body is in a span.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from albertine import __version__
from albertine.errors import MissingExtra, SettingsError
from albertine.serving.models import split_path
from albertine.serving.request_context import Phases, RequestContext

log = logging.getLogger("albertine.serving")
EXPORTERS = "OTEL_TRACES_EXPORTER"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP = "http/protobuf"
NANOSECONDS = 1_000_000_000


def exporter_names() -> list[str]:
    """The exporters that the environment names: `otlp`, also by an endpoint alone, or `console`.

    Raises:
        SettingsError: another one.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    given = os.environ.get(EXPORTERS, "").strip()
    if not given:
        return ["otlp"] if any(os.environ.get(name) for name in ENDPOINTS) else []
    names = [name.strip() for name in given.split(",") if name.strip() not in ("", "none")]
    if unknown := [name for name in names if name not in ("otlp", "console")]:
        raise SettingsError(
            f"there is no exporter `{unknown[0]}`", where=EXPORTERS, remedy="Give otlp, console or none"
        )
    return names


def tracer_provider() -> Any | None:
    """The provider of tracers that the variables OTEL_* describe; None if they name no exporter.

    Its sampler, resource and batches are read from the environment by OpenTelemetry's own classes.

    Raises:
        MissingExtra: OpenTelemetry is not installed. SettingsError: an exporter that is not supported.
    """
    if not (names := exporter_names()):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import (
            BatchSpanProcessor,
            ConsoleSpanExporter,
            SimpleSpanProcessor,
        )
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"variables OTEL_… request traces, which need {error.name}",
            remedy="pip install 'albertine[otel]', or set OTEL_SDK_DISABLED=true",
        ) from error
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), HTTP)
    if "otlp" in names and protocol != HTTP:
        raise SettingsError(
            f"traces are sent by {HTTP}, and {protocol} was set",
            where=PROTOCOLS[1],
            remedy=f"Set it to {HTTP}, and the endpoint to the port for HTTP, such as http://localhost:4318",
        )
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    own = {"service.version": __version__} | ({} if named else {"service.name": "albertine"})
    provider = TracerProvider(resource=Resource.create(own), shutdown_on_exit=False)
    if "otlp" in names:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    if "console" in names:
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
    return provider


class Tracing:
    """Middleware with a span for every request to the model, a child of that which `traceparent` names, and
    spans of its tokenising, its wait in the queue and its computation.

    Args:
        provider: of tracers. posted: paths of requests to the model.
    """

    def __init__(self, app: ASGIApp, provider: Any, posted: Collection[str]) -> None:
        from opentelemetry import propagate, trace

        self._app, self._posted = app, frozenset(posted)
        self._tracer = provider.get_tracer("albertine.serving", __version__)
        self._extract: Callable[..., Any] = propagate.extract
        self._trace = trace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, path = split_path(scope.get("path", ""))
        if scope["type"] != "http" or scope["method"] != "POST" or path not in self._posted:
            await self._app(scope, receive, send)
            return
        trace, status = self._trace, 500
        # All with the clock of the model's thread, to which the system's is added once.
        offset = time.time_ns() - int(NANOSECONDS * time.monotonic())
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        span = self._tracer.start_span(
            f"POST {path}",
            context=self._extract(headers),
            kind=trace.SpanKind.SERVER,
            attributes={
                "http.request.method": "POST",
                "http.route": path,
                "url.path": scope["path"],
                "url.scheme": scope.get("scheme", "http"),
            },
        )

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, answered)
        finally:
            if span.is_recording():
                self._describe(span, scope.get("state", {}), status, offset)
            span.end()

    def _describe(self, span: Any, state: dict[str, Any], status: int, offset: int) -> None:
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)
        if "id" in state:
            span.set_attribute("albertine.request_id", state["id"])
        context: RequestContext | None = state.get("context")
        if context is None:
            return
        span.set_attribute("albertine.model", context.service.model.name)
        for name in ("inputs", "tokens", "truncated"):
            span.set_attribute(f"albertine.{name}", getattr(context, name))
        within = self._trace.set_span_in_context(span)
        for phases in context.phases:
            for name, begin, end in _spans(phases):
                child = self._tracer.start_span(name, context=within, start_time=offset + _in_ns(begin))
                child.end(offset + _in_ns(end))


def _spans(phases: Phases) -> list[tuple[str, float, float]]:
    """Names, begins and ends of the parts of an answer; of those that were reached. The computation ends with
    the answer, the wait begins after the tokenising: texts of one answer may wait while others of it are
    computed."""
    measured = phases.began + phases.tokenizing
    found = [("tokenise", phases.began, measured)] if phases.tokenizing else []
    if phases.computed:
        found.append(("queue", measured, measured + phases.waited))
        found.append(("compute", phases.ended - phases.computed, phases.ended))
    return found


def _in_ns(seconds: float) -> int:
    return int(NANOSECONDS * seconds)
