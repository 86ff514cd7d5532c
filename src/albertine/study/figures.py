"""The figures of a study's report: scores of cells with intervals over seeds, and curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from albertine.analysis.plots import COLOURS, Band, Curve, drawing, save_curves, shown
from albertine.study.metrics import metric
from albertine.study.results import values_of
from albertine.study.verdicts import Interval, interval

Draw = Callable[[Path], object]
MOST_CURVES = 10
"""Curves in one figure that are distinguishable."""


def figures_of(results: Mapping[str, Any]) -> dict[str, tuple[str, Draw]]:
    """The figures of a report by the names of their files: what each shows, and a function that draws it."""
    found: dict[str, tuple[str, Draw]] = {}
    title: dict[str, Any] = {"title": results["title"]}
    for name in dict.fromkeys(one["metric"] for one in results["conclusions"]):
        known = {cell["name"]: values_of(results, cell, name) for cell in results["cells"]}
        if rows := {cell: values for cell, values in known.items() if values}:
            caption = f"{metric(name).label}, by cell: mean, 95 % interval and every seed"
            found[name.replace(".", "-")] = caption, partial(save_intervals, rows=rows, name=name, **title)
    curves = {cell["name"]: own for cell in results["cells"] if (own := _curves(cell))}
    if 1 < len(curves) <= MOST_CURVES:
        caption = "loss on held-out text over updates, mean over seeds"
        drawn = partial(save_curves, curves=_means(curves), x="update", y="held-out loss, nats", **title)
        found["curves"] = caption, drawn
    for name in ("distance", "cosine"):
        if layers := {cell["name"]: own for cell in results["cells"] if (own := _layers(cell, name))}:
            label = metric(name).label
            caption = f"{label}, by layer: mean over texts and seeds, with the 95 % interval over seeds"
            how: dict[str, Any] = {"bands": _bands(layers), "log": name == "distance", **title}
            found[f"layers-{name}"] = (
                caption,
                partial(save_curves, curves=_means(layers), x="layer", y=label, **how),
            )
    return found


def save_intervals(path: Path, rows: Mapping[str, Sequence[float]], *, title: str, name: str) -> Path:
    """A row for each cell: a dot for every seed, and the mean with its 95 % interval.

    Raises:
        RunError: matplotlib is not installed.
    """
    kind = metric(name)
    with drawing(path, title, (7.0, 1.3 + 0.36 * len(rows))) as axes:
        for place, values in enumerate(rows.values()):
            scaled = [value * kind.factor for value in values]
            found = interval(scaled)
            if found.low is not None and found.high is not None:
                axes.plot([found.low, found.high], [place, place], color=COLOURS[0], lw=2.2, zorder=3)
                axes.scatter(scaled, [place] * len(scaled), s=14, color=COLOURS[1], zorder=4)
            axes.plot([found.mean], [place], marker="|", ms=13, mew=2.4, color=COLOURS[0], zorder=5)
        axes.set_yticks(range(len(rows)), [shown(cell) for cell in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(kind.label)
        axes.grid(color="#dddddd", lw=0.6, zorder=0)
        axes.tick_params(left=False)
    return path


Points = Mapping[float, float]
"""A curve of one seed: y by x."""


def _curves(cell: Mapping[str, Any]) -> list[Points]:
    """The held-out loss over updates, of every seed."""
    return [dict(one["curve"]) for one in cell["seeds"].values() if one.get("curve")]


def _layers(cell: Mapping[str, Any], name: str) -> list[Points]:
    """A statistic over layers from 1, or from the first that has it, of every seed."""
    found = (one["layers"][name] for one in cell["seeds"].values() if one.get("layers"))
    return [{at: one for at, one in enumerate(values, 1) if one is not None} for values in found]


def _intervals(curves: Sequence[Points]) -> dict[float, Interval]:
    """The mean over seeds and its interval, at every x that all of them have."""
    common = set(curves[0]).intersection(*curves)
    return {at: interval([one[at] for one in curves]) for at in sorted(common)}


def _means(cells: Mapping[str, Sequence[Points]]) -> dict[str, Curve]:
    return {name: [(at, one.mean) for at, one in _intervals(own).items()] for name, own in cells.items()}


def _bands(cells: Mapping[str, Sequence[Points]]) -> dict[str, Band]:
    """The intervals of those curves that have two seeds or more."""
    return {
        name: [
            (at, one.low, one.high)
            for at, one in _intervals(own).items()
            if one.low is not None and one.high is not None
        ]
        for name, own in cells.items()
        if len(own) > 1
    }
