"""What the predictions of a run show beyond its scores: which class is taken for which, how far confidence
can be trusted, how parts of the data fare, and the worst mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.evaluation.calibration import Bin, reliability
from albertine.evaluation.confusion import confusion
from albertine.evaluation.metrics import accuracy

WORST = 10
TEXTS = ("text", "pair", "passage", "question", "options")
"""Fields of a line of predictions that hold what was asked."""

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Mistake:
    """A wrong answer.

    Attributes:
        confidence: the probability of the answer, or None where the model gave a number.
        asked: the texts by field.
    """

    name: str
    right: str
    said: str
    confidence: float | None
    asked: Mapping[str, str]


@dataclass(frozen=True)
class ErrorAnalysis:
    """What the predictions show; what does not apply to a task is empty.

    Attributes:
        count: examples whose right answer is known.
        labels, confusion: the classes, and counts (classes, classes) by right and predicted class.
        bins: answers by confidence.
        groups: examples and accuracy of every part of the data.
        mistakes: the worst ones, the worst first: the surest of the wrong answers, or the numbers that are
            furthest off.
    """

    count: int
    labels: tuple[str, ...]
    confusion: NDArray[np.int64]
    bins: list[Bin]
    groups: dict[str, tuple[int, float]]
    mistakes: list[Mistake]


def analyze_errors(
    predictions: Sequence[Line], classes: Sequence[str] = (), worst: int = WORST
) -> ErrorAnalysis:
    """Look at the lines of a predictions file.

    Classes and options are understood (a line has `probabilities`, of all classes or of the likeliest), and
    numbers; other kinds of answers only by their number.

    Args:
        classes: in the order of their numbers, as far as they are known; others follow as they turn up.
    """
    lines = [line for line in predictions if "label" in line]
    sure = [line for line in lines if isinstance(line["label"], str | int) and "probabilities" in line]
    named = bool(sure) and isinstance(sure[0]["probabilities"], Mapping)
    seen = [*classes, *(name for line in sure for name in _classes(line))] if named else []
    labels = tuple(dict.fromkeys(seen))
    right = [line["label"] == line["prediction"] for line in sure]
    return ErrorAnalysis(
        count=len(lines),
        labels=labels,
        confusion=confusion([s["label"] for s in sure], [s["prediction"] for s in sure], labels)
        if named
        else np.zeros((0, 0), dtype=np.int64),
        bins=reliability([_confidence(line) for line in sure], right) if sure else [],
        groups=_groups(sure),
        mistakes=_surest(sure, worst) if sure else _furthest(lines, worst),
    )


def _classes(line: Line) -> list[str]:
    return [*line["probabilities"], line["label"], line["prediction"]]


def _confidence(line: Line) -> float:
    return float(line["probabilities"][line["prediction"]])


def _groups(lines: Sequence[Line]) -> dict[str, tuple[int, float]]:
    parts: dict[str, list[Line]] = {}
    for line in lines:
        if line.get("group"):
            parts.setdefault(str(line["group"]), []).append(line)
    return {
        name: (len(own), accuracy([s["label"] for s in own], [s["prediction"] for s in own]))
        for name, own in parts.items()
    }


def _surest(lines: Sequence[Line], most: int) -> list[Mistake]:
    wrong = [line for line in lines if line["label"] != line["prediction"]]
    return [
        _mistake(s, _answer(s, s["label"]), _answer(s, s["prediction"]), _confidence(s))
        for s in sorted(wrong, key=_confidence, reverse=True)[:most]
    ]


def _furthest(lines: Sequence[Line], most: int) -> list[Mistake]:
    numbers = [line for line in lines if isinstance(line["label"], float | int)]
    off = sorted(numbers, key=lambda s: -abs(s["label"] - s["prediction"]))[:most]
    return [_mistake(s, f"{s['label']:g}", f"{s['prediction']:.3f}", None) for s in off]


def _answer(line: Line, given: str | int) -> str:
    options = line.get("options")
    return str(options[given]) if isinstance(given, int) and options else str(given)


def _mistake(line: Line, right: str, said: str, confidence: float | None) -> Mistake:
    asked = {
        field: " / ".join(map(str, line[field])) if isinstance(line[field], list) else str(line[field])
        for field in TEXTS
        if line.get(field)
    }
    return Mistake(str(line["id"]), right, said, confidence, asked)
