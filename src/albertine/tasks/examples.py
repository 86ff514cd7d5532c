"""Examples of a task: a text or a pair of texts, and a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Example:
    """One example.

    Attributes:
        name: its name in predictions: its id in the file, or its number from 0.
        text, pair: the first text, and the second one if there are two.
        label: in the form of its family: a class, a score, a set of classes, `Entity`s, `Triple`s, or a text;
            None if the file has none.
        where: `file:line`, for messages.
    """

    name: str
    text: str
    pair: str | None
    label: Any
    where: str
