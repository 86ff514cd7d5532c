"""Error analysis of a run's predictions: confusion matrix, calibration, accuracy by group, worst mistakes."""

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
"""Fields of a prediction that hold the input."""

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction.

    Attributes:
        name: id of the example. right: gold answer. predicted: answer of the model.
        confidence: probability of the prediction, or None for a number.
        inputs: the texts by field.
    """

    name: str
    right: str
    predicted: str
    confidence: float | None
    inputs: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """The entry in report.json."""
        return {
            "name": self.name,
            "right": self.right,
            "said": self.predicted,
            "confidence": self.confidence,
            "asked": self.inputs,
        }


@dataclass(frozen=True)
class ErrorAnalysis:
    """An error analysis; what does not apply to a task is empty.

    Attributes:
        count: examples with a gold answer.
        labels, confusion: the classes, and counts (classes, classes) by gold and predicted class.
        bins: predictions by confidence.
        groups: examples and accuracy of every group of the data.
        mistakes: worst first: wrong answers of highest confidence, or numbers with the largest error.
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
    """Analyze the lines of a predictions file.

    Classes and options (lines with `probabilities`, of all classes or of the top ones) and numbers are
    analyzed; of other answers only the count is reported.

    Args:
        classes: known classes in the order of their ids; others are appended in order of occurrence.
        worst: maximum number of mistakes.
    """
    lines = [line for line in predictions if "label" in line]
    scored = [line for line in lines if isinstance(line["label"], str | int) and "probabilities" in line]
    named = bool(scored) and isinstance(scored[0]["probabilities"], Mapping)
    seen = [*classes, *(name for line in scored for name in _classes(line))] if named else []
    labels = tuple(dict.fromkeys(seen))
    right = [line["label"] == line["prediction"] for line in scored]
    return ErrorAnalysis(
        count=len(lines),
        labels=labels,
        confusion=confusion([s["label"] for s in scored], [s["prediction"] for s in scored], labels)
        if named
        else np.zeros((0, 0), dtype=np.int64),
        bins=reliability([_confidence(line) for line in scored], right) if scored else [],
        groups=_groups(scored),
        mistakes=_most_confident(scored, worst) if scored else _largest_errors(lines, worst),
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


def _most_confident(lines: Sequence[Line], most: int) -> list[Mistake]:
    wrong = [line for line in lines if line["label"] != line["prediction"]]
    return [
        _mistake(s, _answer(s, s["label"]), _answer(s, s["prediction"]), _confidence(s))
        for s in sorted(wrong, key=_confidence, reverse=True)[:most]
    ]


def _largest_errors(lines: Sequence[Line], most: int) -> list[Mistake]:
    numbers = [line for line in lines if isinstance(line["label"], float | int)]
    off = sorted(numbers, key=lambda s: -abs(s["label"] - s["prediction"]))[:most]
    return [_mistake(s, f"{s['label']:g}", f"{s['prediction']:.3f}", None) for s in off]


def _answer(line: Line, given: str | int) -> str:
    options = line.get("options")
    return str(options[given]) if isinstance(given, int) and options else str(given)


def _mistake(line: Line, right: str, predicted: str, confidence: float | None) -> Mistake:
    inputs = {
        field: " / ".join(map(str, line[field])) if isinstance(line[field], list) else str(line[field])
        for field in TEXTS
        if line.get(field)
    }
    return Mistake(str(line["id"]), right, predicted, confidence, inputs)
