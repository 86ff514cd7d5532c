"""Figures, tables and report of layer statistics, of one model or several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albertine.analysis.html_report import Section, Table, write_page
from albertine.analysis.layers import Estimate, LayerStatistics
from albertine.analysis.plots import HeatMap, Panel, save_panels, svg_of


class Quantity(NamedTuple):
    """A quantity of `LayerStatistics`.

    Attributes:
        name: of the field. axis: quantity and unit at an axis. column: its name in a table.
        form: of a number. first: layer of the first value. explained: in a report.
    """

    name: str
    axis: str
    column: str
    form: str
    first: int
    explained: str


QUANTITIES = (
    Quantity(
        "distance",
        "L2 distance, input to output",
        "L2 distance",
        ".2f",
        1,
        "L2 distance between the input and the output of a layer, mean over tokens.",
    ),
    Quantity(
        "cosine",
        "cosine, input to output",
        "cosine",
        ".3f",
        1,
        "Their cosine similarity, mean over tokens.",
    ),
    Quantity(
        "angle",
        "angle, input to output, degrees",
        "angle",
        ".1f",
        1,
        "Angle between the input and the output of a layer, the arc cosine of their cosine similarity, mean "
        "over tokens. Figure 1 of the ALBERT paper shows this and the distance.",
    ),
    Quantity("norm", "L2 norm of the states", "norm", ".2f", 0, "L2 norm of a state, mean over tokens."),
    Quantity(
        "anisotropy",
        "cosine of tokens of different texts",
        "anisotropy",
        ".3f",
        0,
        "Anisotropy: cosine of tokens of different texts, mean over pairs; 0 for directions that are evenly "
        "distributed, 1 where all tokens have the same (Ethayarajh 2019).",
    ),
    Quantity(
        "effective_rank",
        "effective rank of a text",
        "effective rank",
        ".1f",
        0,
        "Effective rank of the states of a text: the exponential of the entropy of their singular values, at "
        "most the number of its tokens (Roy and Vetterli 2007).",
    ),
    Quantity(
        "curvature",
        "curvature, degrees",
        "curvature",
        ".1f",
        1,
        "Curvature: angle between the steps of a token into a layer and out of it; 0 degrees is a straight "
        "path over the layers, 180 degrees a path that goes back.",
    ),
)
FIGURE_1 = ("distance", "angle")
TABLED = ("cosine",)
"""In tables alone: a figure has the angle in its place."""


def panels(found: Sequence[LayerStatistics], names: Sequence[str] | None = None) -> list[Panel]:
    """A panel for each quantity, with a curve and the band of its interval for each model."""
    chosen = [q for q in QUANTITIES if (q.name not in TABLED if names is None else q.name in names)]
    made = []
    start = " or ".join(dict.fromkeys("zeros" if one.zero_start else "embeddings" for one in found))
    for q in chosen:
        curves, bands = {}, {}
        for one in found:
            estimate: Estimate = getattr(one, q.name)
            known = np.flatnonzero(np.isfinite(estimate.mean))
            if not len(known):
                continue
            at = (q.first + known).astype(float).tolist()
            mean, low, high = (x[known] for x in (estimate.mean, estimate.low, estimate.high))
            curves[one.model] = list(zip(at, mean.tolist(), strict=True))
            if np.isfinite(low).all():
                bands[one.model] = list(zip(at, low.tolist(), high.tolist(), strict=True))
        if curves:
            made.append(Panel(q.axis, curves, bands, x=f"layer (0: {start})" if not q.first else "layer"))
    return made


def heat_maps(found: Sequence[LayerStatistics]) -> list[HeatMap]:
    """The CKA matrix of each model."""
    return [HeatMap(one.model, one.cka, "layer", "layer", label="linear CKA") for one in found]


def save_layers(path: Path, found: Sequence[LayerStatistics]) -> Path:
    """Draw all quantities, and the CKA matrix of each model, into a PNG or SVG.

    Raises:
        RunError: matplotlib is not installed.
    """
    return save_panels(path, [*panels(found), *heat_maps(found)], title=title(found), columns=3)


def save_figure_1(path: Path, found: Sequence[LayerStatistics]) -> Path:
    """Draw Figure 1 of the ALBERT paper: L2 distance and angle of each layer. Raises as `save_layers`."""
    return save_panels(path, panels(found, FIGURE_1), title="Input and output of each layer")


def title(found: Sequence[LayerStatistics]) -> str:
    if len(found) == 1:
        return f"Layers of {found[0].model}"
    return f"Layers of {len(found)} models"


def table(one: LayerStatistics) -> Table:
    """Mean and half of the interval of every quantity for each layer, and CKA with the layer before."""
    cka_before = [math.nan, *np.diagonal(one.cka, 1).tolist()]
    if one.zero_start:
        cka_before[1] = math.nan
    start = "0 (initial state, zeros)" if one.zero_start else "0 (embeddings)"
    rows = [
        [
            layer or start,
            *(_cell(one, q, layer) for q in QUANTITIES),
            _number(cka_before[layer], ".3f"),
        ]
        for layer in range(one.layers + 1)
    ]
    columns = [q.column for q in QUANTITIES]
    return Table(["layer", *columns, "CKA with the layer before"], rows)


def _cell(one: LayerStatistics, q: Quantity, layer: int) -> str:
    estimate: Estimate = getattr(one, q.name)
    i = layer - q.first
    if not 0 <= i < len(estimate.mean) or math.isnan(estimate.mean[i]):
        return ""
    half = (estimate.high[i] - estimate.low[i]) / 2
    text = _number(estimate.mean[i], q.form)
    return text if math.isnan(half) else f"{text} ± {_number(half, q.form)}"


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else f"{value:{form}}"


def read_in_words(one: LayerStatistics) -> str:
    """What was read, and what ± means."""
    texts = "1 text" if one.texts == 1 else f"{one.texts:,} texts"
    words = f"{texts}, {one.tokens:,} tokens, CKA over {one.cka_tokens:,} of them"
    return f"{words}; ± is half of the 95 % interval of the mean over texts" if one.texts > 1 else words


def sections(found: Sequence[LayerStatistics]) -> list[Section]:
    """The parts of a report.

    Raises:
        RunError: matplotlib is not installed.
    """
    by_name = {q.name: q for q in QUANTITIES}
    figure_1 = svg_of(lambda path: save_figure_1(path, found))
    others = panels(found, [q.name for q in QUANTITIES if q.name not in (*FIGURE_1, *TABLED)])
    rest = svg_of(lambda path: save_panels(path, others, title="States", columns=2))
    cka = svg_of(lambda path: save_panels(path, heat_maps(found), title="Similarity of layers"))
    return [
        Section(
            "Input and output of each layer",
            [by_name[name].explained for name in FIGURE_1]
            + ["A band is the 95 % interval of the mean over texts."],
            figures=[figure_1],
            alt="L2 distance and angle between input and output of each layer",
        ),
        Section(
            "States of each layer",
            [q.explained for q in QUANTITIES if q.name not in (*FIGURE_1, *TABLED)],
            figures=[rest],
            alt="norm, anisotropy, effective rank and curvature of each layer",
        ),
        Section(
            "Similarity of layers",
            [
                "Linear CKA between the states of two layers, 1 for states that are equal but for rotation "
                "and scale (Kornblith et al. 2019)."
            ],
            figures=[cka],
            alt="linear CKA between all layers",
        ),
        *(Section(f"Values of {one.model}", [f"{read_in_words(one)}."], table(one)) for one in found),
    ]


def write_layers(path: Path, found: Sequence[LayerStatistics]) -> Path:
    """Write the report. Raises RunError where matplotlib is not installed or the file cannot be written."""
    return write_page(path, title(found), sections(found))
