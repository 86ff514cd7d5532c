"""What a task asks about: one text or a pair, and the right answer where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Example:
    """One question to a model.

    Attributes:
        name: how predictions name it: its id in the file, or its number from 0.
        text, pair: the first text and, where there are two, the second.
        label: the right answer in the form of its family: a class, a score from 0 to 1 or of any size, a set
            of classes, `Entity`s, `Triple`s, or a text; None where the file does not tell.
        where: `file:line`, for messages.
    """

    name: str
    text: str
    pair: str | None
    label: Any
    where: str
