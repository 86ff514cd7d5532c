"""Plots in one style: PNG files by matplotlib, and curves in a terminal by braille characters.

Matplotlib has no font with Chinese characters. One of the machine is used; without any, names are replaced by
numbers (`legible`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.errors import RunError, SettingsError
from albertine.text.formats import display_width

Curve = Sequence[tuple[float, float]]
"""Points (x, y) in order of x."""

COLOURS = ("#1f5fa8", "#c8501e", "#3a7d44", "#7a4d9e", "#8a6d1b")
LONGEST = 32
"""Longest name in a plot, in terminal columns; a Chinese character has two."""
_STROKES = ("-", "--", "-.", ":")  # for more curves than colours
_DOTS = (
    (0x01, 0x08),
    (0x02, 0x10),
    (0x04, 0x20),
    (0x40, 0x80),
)  # braille bits by row, then column, of a cell
_OWN = "DejaVu Sans"  # part of matplotlib
_CHINESE = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti SC",
    "Microsoft YaHei",
    "SimHei",
    "Arial Unicode MS",
    "Droid Sans Fallback",
)


def save_curves(
    path: Path,
    curves: Mapping[str, Curve],
    *,
    title: str,
    x: str = "step",
    y: str = "loss",
    levels: Mapping[str, float] | None = None,
    borders: Sequence[float] = (),
) -> Path:
    """Draw curves into a PNG.

    Args:
        path: the file; its folder is created.
        curves: by name. Points that are not finite leave a gap.
        levels: horizontal lines by name, such as a baseline.
        borders: positions of vertical lines, each the end of a stage.

    Raises:
        RunError: matplotlib is not installed.
    """
    with drawing(path, title) as axes:
        for index, (name, points) in enumerate(curves.items()):
            turn, place = divmod(index, len(COLOURS))
            stroke = {"color": COLOURS[place], "ls": _STROKES[turn % len(_STROKES)], "lw": 1.6}
            marker = "o" if len(points) <= 12 else None
            axes.plot(*_columns(points), label=shown(name), marker=marker, ms=4, **stroke)
        for name, level in (levels or {}).items():
            axes.axhline(level, label=shown(name), color="#777777", lw=1.0, ls="--")
        for index, border in enumerate(borders):
            name = "_" if index else "end of a stage"  # with a leading underscore it is not in the legend
            axes.axvline(border, label=name, color="#bbbbbb", lw=0.8, zorder=0)
        if all(float(at).is_integer() for points in curves.values() for at, _ in points):
            axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)  # steps are integers
        axes.set(xlabel=x, ylabel=y)
        axes.grid(color="#dddddd", lw=0.6)
        if len(curves) > len(COLOURS):  # inside, it would cover the curves
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        elif curves or levels:
            axes.legend(frameon=False)
    return path


def check_picture(path: Path) -> None:
    """Check the output of a plot before its data is computed.

    Raises:
        SettingsError: it is not the name of a PNG file. RunError: matplotlib is not installed.
    """
    if path.suffix.lower() != ".png" or path.is_dir():
        raise SettingsError(
            "is not the name of a PNG file", where=path, remedy="End it in .png, such as picture.png"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise _absent() from error


@contextmanager
def drawing(path: Path, title: str, size: tuple[float, float] = (7.0, 4.2)) -> Iterator[Any]:
    """Axes to draw on; the file is written on exit.

    Args:
        path: the file; its folder is created. size: in inches, at 150 dots per inch.

    Raises:
        RunError: matplotlib is not installed.
    """
    try:
        # The Agg canvas needs no display, and without pyplot there is no global state.
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _absent() from error
    # A name with two dollar signs would be parsed as TeX.
    with rc_context({"font.family": list(_fonts()), "text.parse_math": False}):
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.set_title(shown(title))
        axes.spines[["top", "right"]].set_visible(False)
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _absent() -> RunError:
    return RunError("matplotlib is not installed", remedy="pip install 'albertine[plots]'")


@lru_cache
def _fonts() -> tuple[str, ...]:
    """Fonts in order of preference for each character."""
    from matplotlib.font_manager import findfont

    for name in _CHINESE:
        try:
            findfont(name, fallback_to_default=False)
        except ValueError:
            continue
        return _OWN, name
    return (_OWN,)


def _missing(text: str) -> set[str]:
    """The characters of a text that no font has."""
    try:
        from matplotlib.font_manager import findfont, get_font
    except ImportError as error:
        raise _absent() from error
    fonts = [get_font(findfont(name)) for name in _fonts()]
    return {c for c in text if not c.isspace() and not any(f.get_char_index(ord(c)) for f in fonts)}


def shown(text: str) -> str:
    """A text with runs of characters that no font has replaced by an ellipsis."""
    missing = _missing(text)
    signs = ["…" if c in missing else c for c in text]
    return "".join(c for i, c in enumerate(signs) if c != "…" or signs[max(0, i - 1)] != "…" or i == 0)


def legible(names: Sequence[str]) -> dict[str, str]:
    """The label of each name in a plot: the name, or #1, #2, ... where it is too long or no font has its
    characters.

    Raises:
        RunError: matplotlib is not installed.
    """
    return {
        name: f"#{i}" if display_width(name) > LONGEST or _missing(name) else name
        for i, name in enumerate(names, 1)
    }


def _columns(points: Curve) -> tuple[list[float], list[float]]:
    return [p[0] for p in points], [p[1] if math.isfinite(p[1]) else math.nan for p in points]


def terminal_curve(
    points: Curve, *, width: int = 64, height: int = 10, x: str = "step", y: str = "loss"
) -> str:
    """A curve as lines of text: braille characters of two by four dots, with the ranges of both axes.

    Args:
        points: those that are not finite are ignored.
        width, height: of the plot in characters, without the labels at its left.

    Returns:
        height + 2 lines, or one line if there is nothing to draw.
    """
    finite = [(a, b) for a, b in points if math.isfinite(a) and math.isfinite(b)]
    if not finite:
        return f"(no {y} to draw yet)"
    first, last = min(a for a, _ in finite), max(a for a, _ in finite)
    values = _resample(finite, 2 * width, first, last)
    low, high = (bound(v for v in values if v is not None) for bound in (min, max))
    cells = [[0] * width for _ in range(height)]
    previous: int | None = None
    for column, value in enumerate(values):
        if value is None:
            continue
        row = round((4 * height - 1) * (high - value) / (high - low)) if high > low else 2 * height
        # A steep segment is drawn in all rows between its ends, so that the curve is connected.
        start = row if previous is None else previous
        for r in range(min(row, start), max(row, start) + 1):
            cells[r // 4][column // 2] |= _DOTS[r % 4][column % 2]
        previous = row
    labels = [f"{high:.3g}", *[""] * (height - 2), f"{low:.3g}"] if height > 1 else [f"{high:.3g}"]
    margin = max(map(len, labels))
    lines = [y]
    lines += [
        f"{label:>{margin}} ┤{''.join(chr(0x2800 + bits) for bits in line)}"
        for label, line in zip(labels, cells, strict=True)
    ]
    ends = f"{first:g}", f"{last:g} {x}"
    lines.append(" " * (margin + 2) + ends[0] + ends[1].rjust(width - len(ends[0])))
    return "\n".join(lines)


def _resample(points: Curve, columns: int, first: float, last: float) -> list[float | None]:
    """The mean of the points in each column, with linear interpolation over empty columns."""
    sums, counts = [0.0] * columns, [0] * columns
    for a, b in points:
        column = round((columns - 1) * (a - first) / (last - first)) if last > first else 0
        sums[column] += b
        counts[column] += 1
    known = [i for i in range(columns) if counts[i]]
    values: list[float | None] = [sums[i] / counts[i] if counts[i] else None for i in range(columns)]
    for left, right in pairwise(known):
        start, end = sums[left] / counts[left], sums[right] / counts[right]
        for i in range(left + 1, right):
            values[i] = start + (end - start) * (i - left) / (right - left)
    return values


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
