"""Plots of scores: bars of several tasks, a confusion matrix, and a reliability diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from albertine.analysis.plots import COLOURS, drawing, legible, shown

NAMED, COUNTED = 40, 16
"""Largest numbers of classes with names beside the matrix, and with counts in it."""


Slice = tuple[float, float, int, float, float]
"""A confidence bin: lower and upper bound, number of predictions, mean confidence, accuracy."""


def save_bars(
    path: Path, values: Mapping[str, Sequence[float]], *, title: str, x: str, form: str = ".3f"
) -> Path:
    """A bar for each name, of the median of its values, with a dot for each value.

    Args:
        form: format of the number at the end of a bar.

    Raises:
        RunError: matplotlib is not installed.
    """
    with drawing(path, title, (7.0, 1.4 + 0.42 * len(values))) as axes:
        for place, own in enumerate(values.values()):
            median = float(np.median(own))
            axes.barh(place, median, height=0.62, color=COLOURS[0], alpha=0.35, zorder=2)
            if len(own) > 1:
                axes.plot([min(own), max(own)], [place, place], color=COLOURS[0], lw=2.0, zorder=3)
                axes.scatter(own, [place] * len(own), s=16, color=COLOURS[0], zorder=4)
            axes.annotate(
                f"{median:{form}}",
                (max(0.0, *own), place),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        axes.set_yticks(range(len(values)), [shown(name) for name in values])
        axes.set_ylim(len(values) - 0.4, -0.6)
        every = [x for own in values.values() for x in own]
        least, most = min(0.0, *every), max(1.0, *every)
        axes.set_xlim(least - (0.04 * most if least < 0 else 0), 1.1 * most)
        axes.set_xlabel(x)
        axes.grid(axis="x", color="#dddddd", lw=0.6, zorder=0)
        axes.tick_params(left=False)
    return path


def save_matrix(path: Path, table: NDArray[np.int64], labels: Sequence[str], *, title: str) -> Path:
    """A confusion matrix: rows are correct classes, colours are shares of a row.

    Args:
        table: (classes, classes) counts.

    Raises:
        RunError: matplotlib is not installed.
    """
    size = len(labels)
    side = min(11.0, 2.8 + 0.36 * size)
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    most = float(shares.max()) or 1.0
    names = list(legible(labels).values())
    with drawing(path, title, (max(5.0, side + 0.6), max(3.6, side - 0.4))) as axes:
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=most)
        axes.figure.colorbar(image, ax=axes, shrink=0.8, label="share of the right class")
        if size <= COUNTED:
            for i, j in np.ndindex(size, size):
                if table[i, j]:
                    colour = "white" if shares[i, j] > 0.55 * most else "#222222"
                    axes.text(j, i, f"{table[i, j]:,}", ha="center", va="center", fontsize=8, color=colour)
        if size <= NAMED:
            long = max(map(len, names)) > 3
            axes.set_xticks(range(size), names, rotation=45 if long else 0, ha="right" if long else "center")
            axes.set_yticks(range(size), names)
        axes.tick_params(length=0, labelsize=9 if size <= COUNTED else 7)
        kind = "" if size <= NAMED else " (number of the class)"
        axes.set(xlabel=f"predicted{kind}", ylabel=f"right{kind}")
        axes.spines[:].set_visible(False)
    return path


def save_reliability(path: Path, slices: Sequence[Slice], *, title: str) -> Path:
    """A reliability diagram: accuracy over confidence, a bar for each bin with predictions, with the
    diagonal; darker bars have more predictions.

    Raises:
        RunError: matplotlib is not installed.
    """
    most = max((count for _, _, count, _, _ in slices), default=0)
    with drawing(path, title, (5.6, 4.8)) as axes:
        axes.plot([0, 1], [0, 1], color="#777777", lw=1.0, ls="--", label="as often right as sure", zorder=3)
        for low, high, count, confidence, accuracy in slices:
            if not count:
                continue
            width = 0.92 * (high - low)
            axes.bar(
                (low + high) / 2,
                accuracy,
                width=width,
                color=COLOURS[0],
                alpha=0.15 + 0.6 * count / most,
                zorder=2,
            )
            axes.plot(confidence, accuracy, "o", color=COLOURS[1], ms=5, zorder=4)
            axes.annotate(
                f"{count:,}",
                ((low + high) / 2, 0.0),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color="white" if count > 0.6 * most else "#333333",
                zorder=5,
            )
        axes.plot([], [], "o", color=COLOURS[1], ms=5, label="mean of a bin")
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
        axes.grid(color="#dddddd", lw=0.6, zorder=0)
        axes.legend(
            frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2
        )  # bars may be anywhere
    return path
