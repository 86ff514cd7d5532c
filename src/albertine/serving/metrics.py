"""`/metrics`, for Prometheus. Every metric is there, at zero, before the first request."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

SECONDS = tuple(15e-6 * 1.5**i for i in range(35))
"""As text-embeddings-inference has them: 15 µs to 15 s."""
SIZES = tuple(float(2**i) for i in range(17))
REASONS = ("queue_full", "forecast", "deadline", "cancelled", "draining", "non_finite_output", "exception")


class ServerMetrics:
    """Counters of one server, in a registry of their own.

    Args:
        routes: every path; others are counted as `other`.
    """

    def __init__(self, model: str, sha: str, tasks: Iterable[str], routes: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        mine = {"namespace": "albertine", "registry": self.registry}
        self.routes = frozenset(routes)
        self._requests = Counter("requests", "Requests answered.", ["route", "code"], **mine)  # type: ignore[arg-type]
        self._items = Counter("items", "Questions computed.", ["task"], **mine)  # type: ignore[arg-type]
        self._tokens = Counter("tokens", "Tokens, by what became of them.", ["what"], **mine)  # type: ignore[arg-type]
        self._rejects = Counter("rejects", "Questions that got no answer.", ["reason"], **mine)  # type: ignore[arg-type]
        self._total = Histogram("total_seconds", "Of a request.", buckets=SECONDS, **mine)  # type: ignore[arg-type]
        self._wait = Histogram("wait_seconds", "In the queue.", buckets=SECONDS, **mine)  # type: ignore[arg-type]
        self._step = Histogram("step_seconds", "Of a step.", buckets=SECONDS, **mine)  # type: ignore[arg-type]
        self._step_tokens = Histogram("step_tokens", "Of a step.", buckets=SIZES, **mine)  # type: ignore[arg-type]
        self._step_items = Histogram("step_items", "Of a step.", buckets=SIZES, **mine)  # type: ignore[arg-type]
        self.queue_tokens = Gauge("queue_tokens", "Tokens that wait.", **mine)  # type: ignore[arg-type]
        self.queue_items = Gauge("queue_items", "Questions that wait.", **mine)  # type: ignore[arg-type]
        Gauge("model_info", "The model.", ["model", "sha"], **mine).labels(model, sha).set(1)  # type: ignore[arg-type]
        for route in sorted(self.routes):
            self._requests.labels(route, "200")
        for task in tasks:
            self._items.labels(task)
        for what in ("computed", "truncated", "cancelled"):
            self._tokens.labels(what)
        for reason in REASONS:
            self._rejects.labels(reason)

    def text(self) -> tuple[bytes, str]:
        """All of it, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def request(self, route: str, code: int, seconds: float) -> None:
        self._requests.labels(route if route in self.routes else "other", str(code)).inc()
        self._total.observe(seconds)

    def step(self, kind: Hashable, items: int, tokens: int, seconds: float) -> None:
        self._items.labels(str(getattr(kind, "task", kind))).inc(items)
        self._tokens.labels("computed").inc(tokens)
        self._step.observe(seconds)
        self._step_tokens.observe(tokens)
        self._step_items.observe(items)

    def waited(self, seconds: float) -> None:
        self._wait.observe(seconds)

    def truncated(self, tokens: int) -> None:
        self._tokens.labels("truncated").inc(tokens)

    def dropped(self, tokens: int, reason: str, questions: int) -> None:
        """Count tokens and questions that left the queue without being computed."""
        self._tokens.labels("cancelled").inc(tokens)
        self.failed(reason, questions)

    def failed(self, reason: str, count: int = 1) -> None:
        self._rejects.labels(reason).inc(count)
