"""The context of a request for its route: its body, the service, and its costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from albertine.serving.model_tasks import BatchKey
from albertine.serving.service import Service
from albertine.tasks.http.base import Truncation, characters_of


class Phases(NamedTuple):
    """The times of one answer: when it began and ended on the monotonic clock, and seconds of tokenising, of
    the longest wait in the queue and of computation, 0 where it failed before."""

    began: float
    ended: float
    tokenizing: float
    waited: float
    computed: float


@dataclass
class RequestContext:
    """A request in progress.

    Attributes:
        body: the JSON object of the request. gone: returns when the client has disconnected.
        client: its address.
        inputs: number of its inputs. tokens: computed for them, after truncation.
        truncated: number of truncated inputs. characters: of all texts.
        tokenizing, waited, computed: seconds. phases: the same of every answer, for traces.
        headers: of the response.
    """

    service: Service
    body: dict[str, Any]
    gone: Callable[[], Any]
    client: str | None = None
    began: float = field(default_factory=time.monotonic)
    inputs: int = 0
    characters: int = 0
    tokens: int = 0
    truncated: int = 0
    tokenizing: float = 0.0
    waited: float = 0.0
    computed: float = 0.0
    phases: list[Phases] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    async def answer(self, key: BatchKey, questions: Sequence[Any], truncation: Truncation) -> list[Any]:
        """The answers to questions, in their order. Raises as `Service.answer`."""
        self.inputs += len(questions)
        self.characters += sum(map(characters_of, questions))
        truncate, left = truncation.truncate, truncation.left
        began, tokenizing, computed = time.monotonic(), self.tokenizing, self.computed
        try:
            return await self.service.answer(
                key, questions, self, self.gone, truncate=truncate, left=left, client=self.client
            )
        finally:
            own = self.tokenizing - tokenizing, self.waited, self.computed - computed
            self.phases.append(Phases(began, time.monotonic(), *own))

    def response_headers(self) -> dict[str, str]:
        """Headers with token counts, and times in milliseconds."""
        seconds = {
            "x-compute-time": self.computed,
            "x-inference-time": self.computed,
            "x-queue-time": self.waited,
            "x-tokenization-time": self.tokenizing,
            "x-total-time": time.monotonic() - self.began,
        }
        counts = {
            "x-compute-characters": self.characters,
            "x-compute-tokens": self.tokens,
            "x-truncated-inputs": self.truncated,
        }
        return {
            "x-compute-type": self.service.model.device,
            **{name: f"{1000 * value:.0f}" for name, value in seconds.items()},
            **{name: str(value) for name, value in counts.items()},
            "x-model-sha": self.service.sha,
            **self.headers,
        }
