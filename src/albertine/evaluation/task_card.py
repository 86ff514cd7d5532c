"""What a model card says of a task; families register theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TaskCard:
    """Card data of the models of a family.

    Attributes:
        pipeline: the Hub's name of the task (`pipeline_tag`); None: it has none.
        call: of config.json the call of a `Predictor` in the example of use, such as `tag("a text")`; None:
            the card has no such example.
    """

    pipeline: str | None = None
    call: Callable[[Mapping[str, Any]], str | None] = lambda config: 'predict(["a text"])'
