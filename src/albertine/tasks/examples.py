"""What a classification task asks about: one text or a pair, and the gold label where there is one."""

from __future__ import annotations

from dataclasses import dataclass

Label = str | float | frozenset[str]
"""A class, a score, or any number of classes."""


@dataclass(frozen=True)
class Example:
    """One question to a model.

    Attributes:
        name: how predictions name it: its id in the file, or its number from 0.
        text, pair: the first text and, for pair tasks, the second.
        label: None where the file does not tell.
        where: `file:line`, for messages.
    """

    name: str
    text: str
    pair: str | None
    label: Label | None
    where: str
