"""`/metrics`, for Prometheus. Every metric is there, at zero, before the first request."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from albertine.serving.queue import TokenQueue

if TYPE_CHECKING:
    from albertine.tasks.predictor import Predictor

SECONDS = tuple(15e-6 * 1.5**i for i in range(35))
"""As text-embeddings-inference has them: 15 µs to 15 s."""
SIZES = tuple(float(2**i) for i in range(17))
REASONS = ("queue_full", "forecast", "deadline", "cancelled", "non_finite_output", "exception")


class ServerMetrics:
    """Counters of one server, in a registry of their own.

    Args:
        routes: every path; others are counted as `other`.
    """

    def __init__(self, routes: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        mine: dict[str, Any] = {"namespace": "albertine", "registry": self.registry}
        own = ["model"]
        self.routes = frozenset(routes)
        self._requests = Counter("requests", "Requests answered.", ["route", "code"], **mine)
        self._total = Histogram("total_seconds", "Of a request.", buckets=SECONDS, **mine)
        self.items = Counter("items", "Questions computed.", [*own, "task"], **mine)
        self.tokens = Counter("tokens", "Tokens, by what became of them.", [*own, "what"], **mine)
        self.rejects = Counter("rejects", "Questions that got no answer.", [*own, "reason"], **mine)
        self.wait = Histogram("wait_seconds", "In the queue.", own, buckets=SECONDS, **mine)
        self.step = Histogram("step_seconds", "Of a step.", own, buckets=SECONDS, **mine)
        self.step_tokens = Histogram("step_tokens", "Of a step.", own, buckets=SIZES, **mine)
        self.step_items = Histogram("step_items", "Of a step.", own, buckets=SIZES, **mine)
        self.queue_tokens = Gauge("queue_tokens", "Tokens that wait.", own, **mine)
        self.queue_items = Gauge("queue_items", "Questions that wait.", own, **mine)
        self.layers = Gauge(
            "exit_layers",
            "Texts computed, trials included, by the layers they passed.",
            [*own, "layers"],
            **mine,
        )
        self.model_info = Gauge("model_info", "The models.", [*own, "sha"], **mine)
        for route in sorted(self.routes):
            self._requests.labels(route, "200")
        self.rejects.labels("", "draining")

    def text(self) -> tuple[bytes, str]:
        """All of it, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def request(self, route: str, code: int, seconds: float) -> None:
        self._requests.labels(route if route in self.routes else "other", str(code)).inc()
        self._total.observe(seconds)

    def draining(self) -> None:
        """Count a request that was refused because the server ends, whatever its model."""
        self.rejects.labels("", "draining").inc()


class ModelMetrics:
    """The counters of one model.

    Args:
        name: of the model. tasks: their names.
    """

    def __init__(self, server: ServerMetrics, name: str, tasks: Iterable[str]) -> None:
        self.server, self._name, self._tasks = server, name, tuple(tasks)

    def show(self, sha: str, queue: TokenQueue, predictor: Predictor) -> None:
        """Let `/metrics` show this model, its digest and its queue, from now on instead of another of its
        name."""
        server = self.server
        for one in (server.wait, server.step, server.step_tokens, server.step_items):
            one.labels(self._name)
        for task in self._tasks:
            server.items.labels(self._name, task)
        for what in ("computed", "truncated", "cancelled"):
            server.tokens.labels(self._name, what)
        for reason in REASONS:
            server.rejects.labels(self._name, reason)
        server.queue_tokens.labels(self._name).set_function(lambda: queue.tokens)
        server.queue_items.labels(self._name).set_function(lambda: queue.questions)
        server.layers.remove_by_labels({"model": self._name})
        if predictor.exits:
            for d in range(1, predictor.model.config.plan.depth + 1):
                server.layers.labels(self._name, str(d)).set_function(
                    partial(predictor.layers_used.__getitem__, d)
                )
        server.model_info.remove_by_labels({"model": self._name})
        server.model_info.labels(self._name, sha).set(1)

    def remove(self) -> None:
        """Let `/metrics` show nothing of this name any more."""
        server = self.server
        every = (
            *(server.items, server.tokens, server.rejects, server.queue_tokens, server.queue_items),
            *(server.wait, server.step, server.step_tokens, server.step_items, server.model_info),
            server.layers,
        )
        for one in every:
            one.remove_by_labels({"model": self._name})

    def step(self, kind: Hashable, items: int, tokens: int, seconds: float) -> None:
        self.server.items.labels(self._name, str(getattr(kind, "task", kind))).inc(items)
        self.server.tokens.labels(self._name, "computed").inc(tokens)
        # By name each time: a child would count on, unseen, once the metrics of a name were removed.
        self.server.step.labels(self._name).observe(seconds)
        self.server.step_tokens.labels(self._name).observe(tokens)
        self.server.step_items.labels(self._name).observe(items)

    def waited(self, seconds: float) -> None:
        self.server.wait.labels(self._name).observe(seconds)

    def truncated(self, tokens: int) -> None:
        self.server.tokens.labels(self._name, "truncated").inc(tokens)

    def dropped(self, tokens: int, reason: str, questions: int) -> None:
        """Count tokens and questions that left the queue without being computed."""
        self.server.tokens.labels(self._name, "cancelled").inc(tokens)
        self.failed(reason, questions)

    def failed(self, reason: str, count: int = 1) -> None:
        self.server.rejects.labels(self._name, reason).inc(count)
