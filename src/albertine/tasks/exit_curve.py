"""Scores of a tuned classifier by rules of early exit, with the layers and the time that each takes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albertine.analysis.html_report import Section, Table, write_page
from albertine.analysis.plots import Panel, save_panels, svg_of
from albertine.core.devices import on_cpu, parse_device
from albertine.core.exit_rule import ExitRule
from albertine.errors import DataError, SettingsError
from albertine.evaluation.metrics import metric_sign, score
from albertine.tasks.early_exit import ExitingClassify, with_exit
from albertine.tasks.encoded import Encoded
from albertine.tasks.rescore import Split, TunedRun, model_of

CONFIDENCES = (0.7, 0.8, 0.9, 0.95, 0.99)
ROUNDS = 4
"""Times that everything is computed in turn; the time of a rule is the least of its times, without the
first."""


@dataclass(frozen=True)
class ExitPoint:
    """What a rule of early exit gives.

    Attributes:
        rule: such as `patience=2`; `all layers` without one.
        score: of the predictions. layers: the mean of a text. seconds: to predict all texts.
        left: how many texts leave after each layer, from the first on.
    """

    rule: str
    score: float
    layers: float
    seconds: float
    left: tuple[int, ...]


@dataclass(frozen=True)
class ExitCurve:
    """The rules of early exit of a run.

    Attributes:
        run: its name. split: which of its files. metric: of the scores. examples: how many texts.
        points: without a rule first, then by patience, then by confidence.
    """

    run: str
    split: str
    metric: str
    examples: int
    points: tuple[ExitPoint, ...]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @property
    def whole(self) -> ExitPoint:
        """That without early exit."""
        return self.points[0]

    def fastest(self, loss: float = 0.002) -> ExitPoint:
        """The rule that takes the least time of those that lose at most `loss` of the score."""
        sign = metric_sign(self.metric)
        enough = [p for p in self.points if sign * (self.whole.score - p.score) <= loss]
        return min(enough, key=lambda point: point.seconds)


@on_cpu()
def exit_curve(
    run: TunedRun,
    split: Split = "dev",
    *,
    rules: Sequence[ExitRule] = (),
    device: str = "cpu",
    update: Callable[[int, int], None] = lambda done, total: None,
) -> ExitCurve:
    """Scores, mean layers and times of a run's model by rules of early exit.

    Args:
        rules: default: every patience that the depth allows, and `CONFIDENCES`.
        update: called with the passes over the data that are done, and all.

    Raises:
        ModelError: the model has no head after every layer. SettingsError: the run has no such file.
        DataError: the file has no labels.
    """
    if (data := run.splits.get(split)) is None:
        raise SettingsError(f"has no {split} file", where=run.name, remedy="Name one: --file FILE")
    if data.targets is None:
        raise DataError("has no labels to score predictions by", where=f"the {split} file of {run.name}")
    model = model_of(run).to(parse_device(device))
    depth = model.base.config.plan.depth
    if not rules:
        rules = [ExitRule(patience=n) for n in range(1, depth - 1)]
        rules += [ExitRule(confidence=value) for value in CONFIDENCES]
    families = [with_exit(run.family, rule, run.model_folder) for rule in rules]
    every = [run.family, *families]
    seconds = [float("inf")] * len(every)
    answers: list[Any] = [None] * len(every)
    for number in range(ROUNDS):
        for place, family in enumerate(every):
            if isinstance(family, ExitingClassify):
                family.layers_used.clear()
            begin = time.perf_counter()
            outputs = family.predict(model, data)
            if number:  # the first time prepares kernels for new numbers of rows
                seconds[place] = min(seconds[place], time.perf_counter() - begin)
            answers[place] = family.answers(outputs, data)
            update(number * len(every) + place + 1, ROUNDS * len(every))
    metric = run.family.metrics[0]
    gold = run.family.gold(data)
    points = []
    for family, own, took in zip(every, answers, seconds, strict=True):
        counts = _layers(family, data, depth)
        mean = sum(d * count for d, count in counts.items()) / len(data.examples)
        left = tuple(counts[d] for d in range(1, depth + 1))
        rule = str(family.rule) if isinstance(family, ExitingClassify) else "all layers"
        points.append(ExitPoint(rule, score(gold, own, family.metrics)[metric], mean, took, left))
    return ExitCurve(run.name, split, metric, len(data.examples), tuple(points))


def _layers(family: Any, data: Encoded, depth: int) -> Counter[int]:
    """How many texts have left after each layer, in the last pass over the data."""
    if not isinstance(family, ExitingClassify):
        return Counter({depth: len(data.examples)})
    return family.layers_used


def table(found: ExitCurve) -> Table:
    """The points, one in a row."""
    whole = found.whole
    rows = [
        (
            one.rule,
            f"{one.score:.4f}",
            f"{one.layers:.2f}",
            f"{whole.seconds / one.seconds:.2f}",
            f"{whole.layers / one.layers:.2f}",
            " ".join(f"{count / found.examples:.0%}" for count in one.left),
        )
        for one in found.points
    ]
    columns = ("rule", found.metric, "layers", "times as fast", "by layers alone", "texts leaving by layer")
    return Table(columns, rows)


def in_words(found: ExitCurve) -> str:
    """The rule to take, in a sentence."""
    best = found.fastest()
    words = f"{found.examples:,} texts of the {found.split} file. "
    if best is found.whole:
        return f"{words}No rule is faster without losing more than 0.2 points."
    gain = found.whole.seconds / best.seconds
    return (
        f"{words}With --exit {best.rule} a text takes {best.layers:.1f} of {found.whole.layers:.0f} layers, "
        f"{gain:.2f} times as fast, and the score changes by "
        f"{100 * (best.score - found.whole.score):+.1f} points."
    )


def save_exits(path: Path, found: Sequence[ExitCurve]) -> Path:
    """Draw scores over mean layers and over time into a PNG or SVG.

    Raises:
        RunError: matplotlib is not installed.
    """
    axes: dict[str, Callable[[ExitCurve, ExitPoint], float]] = {
        "mean layers": lambda curve, point: point.layers,
        "time, of that of all layers": lambda curve, point: point.seconds / curve.whole.seconds,
    }
    panels = []
    for x, at in axes.items():
        curves = {}
        for one in found:
            for kind in ("patience", "confidence"):
                points = [one.whole, *(p for p in one.points if p.rule.startswith(kind))]
                name = kind if len(found) == 1 else f"{one.run}, {kind}"
                curves[name] = sorted((at(one, p), p.score) for p in points)
        panels.append(Panel(found[0].metric, curves, x=x))
    return save_panels(path, panels, title=title(found))


def title(found: Sequence[ExitCurve]) -> str:
    """The heading of figures and reports."""
    return f"Early exit: {found[0].run if len(found) == 1 else f'{len(found)} runs'}"


def write_exits(path: Path, found: Sequence[ExitCurve]) -> Path:
    """Write the report as one HTML file.

    Raises:
        RunError: matplotlib is not installed, or the file cannot be written.
    """
    text = (
        "A text leaves after the layer at which its prediction is settled: when further layers predict the "
        "same (patience), or when the prediction is probable enough (confidence). Times are the least of "
        f"{ROUNDS - 1}, taken in turn."
    )
    figure = svg_of(lambda file: save_exits(file, found))
    sections = [Section("Score over layers and time", [text], figures=[figure], alt="Scores by rule")]
    sections += [Section(f"Values of {one.run}", [in_words(one)], table(one)) for one in found]
    return write_page(path, title(found), sections)
