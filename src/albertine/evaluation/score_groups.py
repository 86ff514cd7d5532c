"""Metrics that an official script computes together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Script = Callable[[Any, Any], Mapping[str, float]]
"""(right answers, predictions) → scores by name, in [0, 1]."""


@dataclass(frozen=True)
class OneScore:
    """One score of a script as a metric; `metrics.score` runs the script once for all requested metrics."""

    script: Script
    name: str

    def __call__(self, gold: Any, predicted: Any) -> float:
        return self.script(gold, predicted)[self.name]
