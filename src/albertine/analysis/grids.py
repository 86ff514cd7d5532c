"""Figures of many cells: attention maps of all layers and heads, and tokens over depth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.analysis.plots import GRID, figure_file, shown
from albertine.text.formats import display_width


def word(token: str) -> str:
    """A token as it is shown: without its mark of a beginning word, where more is left."""
    return token.lstrip("▁Ġ") or token


def save_map_grid(path: Path, maps: NDArray[Any], tokens: Sequence[str], *, title: str, label: str) -> Path:
    """Draw attention maps as small multiples: a row for each layer, a column for each head, one colour scale,
    that of a square root, so that small weights can be seen.

    Args:
        maps: (layers, heads, L, L). tokens: names of the L rows and columns, drawn at the outer maps where
            there is room.
        label: of the colours.

    Raises:
        RunError: matplotlib is not installed.
    """
    layers, heads, length = maps.shape[:3]
    side = min(max(0.9, 0.12 * length), 2.4, 14 / heads)
    named = side / length >= 0.09
    words = [word(token) for token in tokens]
    margin = 0.5 + (0.075 * max(map(display_width, words)) if named else 0.0)
    with figure_file(path, (side * heads + margin + 0.8, side * layers + margin + 0.9)) as figure:
        from matplotlib.colors import PowerNorm

        figure.suptitle(shown(title, path), fontsize=11)
        axes = figure.subplots(layers, heads, squeeze=False)
        norm = PowerNorm(0.5, 0.0, max(float(maps.max()), 1e-6))
        names = [shown(one, path) for one in words]
        for (row, column), one in np.ndenumerate(axes):
            image = one.imshow(maps[row, column], cmap="Blues", norm=norm, interpolation="nearest")
            one.tick_params(length=0, labelsize=6)
            one.spines[:].set(lw=0.4, color=GRID)
            left, bottom = named and not column, named and row == layers - 1
            one.set_yticks(range(length) if left else [], names if left else [])
            one.set_xticks(range(length) if bottom else [], names if bottom else [], rotation=90)
            if not column:
                one.set_ylabel(f"layer {row + 1}", fontsize=7)
            if not row:
                one.set_title(f"head {column + 1}", fontsize=7)
        colours = figure.colorbar(image, ax=axes, shrink=min(1.0, 2.5 / (side * layers)), aspect=14)
        colours.set_label(label, fontsize=7)
        colours.ax.tick_params(labelsize=6)
    return path


def save_token_grid(
    path: Path,
    tokens: Sequence[Sequence[str]],
    values: NDArray[Any],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    x: str,
    label: str,
    border: int | None = None,
) -> Path:
    """Draw a table of tokens whose cells are coloured by a value from 0 to 1, on the scale of its square
    root.

    Args:
        tokens: of each row the tokens of its cells. values: (rows, columns). rows, columns: their names.
        border: draw a line after this column.

    Raises:
        RunError: matplotlib is not installed.
    """
    words = [[word(token) for token in row] for row in tokens]
    width = max(display_width(one) for row in words for one in row)
    cell = min(max(0.35, 0.085 * width + 0.1), 1.4)
    margin = 0.09 * max(map(display_width, rows)) + 1.6
    size = max(0.1 * display_width(title), cell * len(columns) + margin), 0.26 * len(rows) + 1.2
    with figure_file(path, size) as figure:
        from matplotlib.colors import PowerNorm

        figure.suptitle(shown(title, path), fontsize=11)
        axes = figure.add_subplot()
        norm = PowerNorm(0.5, 0.0, 1.0)
        image = axes.imshow(values, cmap="Blues", norm=norm, aspect="auto", interpolation="nearest")
        for (row, column), value in np.ndenumerate(values):
            colour = "white" if norm(value) > 0.6 else "#222222"
            text = shown(words[row][column], path)
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), [shown(name, path) for name in rows])
        axes.tick_params(length=0, labelsize=7)
        axes.set_xlabel(x, fontsize=8)
        axes.spines[:].set_visible(False)
        if border is not None:
            axes.axvline(border + 0.5, color="#777777", lw=1.0, ls="--")
        colours = figure.colorbar(image, ax=axes, shrink=0.9, aspect=14)
        colours.set_label(label, fontsize=7)
        colours.ax.tick_params(labelsize=6)
    return path
