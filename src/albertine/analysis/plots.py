"""Plots in one style: PNG and SVG files by matplotlib, and curves in a terminal by braille characters.

Curves differ in lightness, line style and marker beside their hue, so that they can be distinguished in
greyscale and by colour-blind readers. The text of an SVG is text in the fonts of its reader. A PNG is drawn
with fonts of this machine, of which few have Chinese characters; without one, names are replaced by numbers
(`legible`).
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.errors import RunError, SettingsError
from albertine.text.formats import display_width

Curve = Sequence[tuple[float, float]]
"""Points (x, y) in order of x."""
Band = Sequence[tuple[float, float, float]]
"""Intervals (x, low, high) in order of x."""

COLOURS = ("#123f73", "#d4731c", "#0b6f65", "#9c1f3f", "#7b6fc4")
INK, PAPER, GRID = "#1b1f24", "#fefefe", "#dddddd"
"""Of text and axes, of the background and of grid lines. No curve has them, so that a page can replace them
and `COLOURS` by its own (`html_report.inline`)."""
LONGEST = 32
"""Longest name in a plot, in terminal columns; a Chinese character has two."""
_STROKES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v")
_MARKED = 30
"""Most points of a curve with a marker at each."""
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
_SVG_FONTS = "'DejaVu Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"


@dataclass(frozen=True)
class Panel:
    """Curves in one part of a figure.

    Attributes:
        y: quantity and unit. curves: by name; points that are not finite leave a gap.
        bands: intervals of curves, by the same names. x: as y.
        log: logarithmic y axis; its labels are values, and values that are not positive are left out.
        levels: horizontal lines by name, such as a baseline.
        borders: positions of vertical lines, each the end of a stage.
    """

    y: str
    curves: Mapping[str, Curve]
    bands: Mapping[str, Band] = field(default_factory=dict)
    x: str = "layer"
    log: bool = False
    levels: Mapping[str, float] = field(default_factory=dict)
    borders: Sequence[float] = ()


@dataclass(frozen=True)
class HeatMap:
    """A matrix in one part of a figure.

    Attributes:
        title: of this part. values: (rows, columns). x, y: quantities of columns and rows.
        low, high: values of the lightest and the darkest colour. label: of the colours.
        columns, rows: names of the columns and rows; empty: their numbers from 0.
        origin: "lower" has the first row at the bottom, "upper" at the top.
    """

    title: str
    values: NDArray[Any]
    x: str = ""
    y: str = ""
    low: float = 0.0
    high: float = 1.0
    label: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    origin: str = "lower"


@dataclass(frozen=True)
class Bars:
    """Horizontal bars in one part of a figure, each of several parts, with their sum at the end.

    Attributes:
        values: parts of a bar by name, by the name of the bar. x: quantity and unit.
    """

    x: str
    values: Mapping[str, Mapping[str, float]]


def save_curves(
    path: Path,
    curves: Mapping[str, Curve],
    *,
    title: str,
    x: str = "step",
    y: str = "loss",
    levels: Mapping[str, float] | None = None,
    borders: Sequence[float] = (),
    bands: Mapping[str, Band] | None = None,
    log: bool = False,
) -> Path:
    """Draw curves into a PNG or SVG.

    Args:
        path: the file; its folder is created.
        curves, levels, borders, bands, log: as in `Panel`.

    Raises:
        RunError: matplotlib is not installed.
    """
    panel = Panel(y, curves, bands or {}, x, log, levels or {}, borders)
    with drawing(path, title) as axes:
        _draw_panel(axes, panel, list(curves), path)
        if len(curves) > len(COLOURS):  # inside, it would cover the curves
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        elif curves or levels:
            axes.legend(frameon=False)
    return path


def save_panels(
    path: Path, panels: Sequence[Panel | HeatMap | Bars], *, title: str, columns: int | None = None
) -> Path:
    """Draw several panels with one legend into a PNG or SVG. A name has the same colour in all panels.

    Args:
        columns: panels in a row, default at most 3.

    Raises:
        RunError: matplotlib is not installed.
    """
    columns = min(3, len(panels)) if columns is None else columns
    rows = math.ceil(len(panels) / columns)
    names = list(dict.fromkeys(name for p in panels if isinstance(p, Panel) for name in p.curves))
    size = (max(7.0, 4.3 * columns), 3.3 * rows + (0.8 if len(names) > 1 else 0.5))
    with figure_file(path, size) as figure:
        figure.suptitle(shown(title, path), fontsize=12)
        legend: dict[str, Any] = {}
        for place, panel in enumerate(panels, 1):
            axes = figure.add_subplot(rows, columns, place)
            if isinstance(panel, HeatMap):
                _draw_heat(axes, panel, path)
                continue
            axes.spines[["top", "right"]].set_visible(False)
            if isinstance(panel, Bars):
                _draw_bars(axes, panel, path)
            else:
                _draw_panel(axes, panel, names, path)
            handles, labels = axes.get_legend_handles_labels()
            legend |= dict(zip(labels, handles, strict=True))
        if len(legend) > 1:
            figure.legend(
                legend.values(),
                legend.keys(),
                frameon=False,
                loc="outside lower center",
                ncols=max(1, min(len(legend), int(size[0] * 8 / max(map(display_width, legend))))),
            )
    return path


def _draw_panel(axes: Any, panel: Panel, names: Sequence[str], path: Path) -> None:
    """Curves, their bands, levels and the names of both axes.

    Args:
        names: of all curves in the figure, in the order of the styles.
    """
    for name, points in panel.curves.items():
        style = _style(names.index(name))
        if name in panel.bands:
            at, low, high = zip(*panel.bands[name], strict=True)
            axes.fill_between(at, low, high, color=style["color"], alpha=0.18, lw=0, zorder=1)
        marker = _MARKERS[names.index(name) % len(_MARKERS)] if len(points) <= _MARKED else None
        axes.plot(*_columns(points), label=shown(name, path), marker=marker, ms=4, **style)
    for name, level in panel.levels.items():
        axes.axhline(level, label=shown(name, path), color="#777777", lw=1.0, ls=(0, (5, 3)))
    for index, border in enumerate(panel.borders):
        name = "_" if index else "end of a stage"  # with a leading underscore it is not in the legend
        axes.axvline(border, label=name, color="#bbbbbb", lw=0.8, zorder=0)
    if all(float(at).is_integer() for points in panel.curves.values() for at, _ in points):
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)  # steps are integers
    if panel.log:
        _logarithmic(axes)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.grid(color=GRID, lw=0.6)


def _style(index: int) -> dict[str, Any]:
    """Colour and line style of a curve; the pairs of the first twenty differ."""
    turn, place = divmod(index, len(COLOURS))
    return {"color": COLOURS[place], "ls": _STROKES[(place + turn) % len(_STROKES)], "lw": 1.6}


def _logarithmic(axes: Any) -> None:
    """A logarithmic y axis whose labels are values: powers of ten, also their double and fivefold where it
    spans few, and evenly spaced values below one."""
    from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log", nonpositive="mask")
    low, high = axes.get_ylim()
    decades = math.log10(high / low) if 0 < low < high else 1.0
    subs = (1.0,) if decades > 3 else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(LogLocator(subs=subs) if decades >= 1 else AutoLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def number(value: float) -> str:
    """A value at an axis: 0.002, 500, 20,000; 1e-6 where decimals would be long."""
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _draw_heat(axes: Any, heat: HeatMap, path: Path) -> None:
    rows, columns = heat.values.shape
    image = axes.imshow(
        heat.values, cmap="Blues", vmin=heat.low, vmax=heat.high, origin=heat.origin, interpolation="nearest"
    )
    axes.figure.colorbar(image, ax=axes, shrink=0.8, label=heat.label)
    axes.set_title(shown(heat.title, path), fontsize=10)
    for axis, count, names in ((axes.xaxis, columns, heat.columns), (axes.yaxis, rows, heat.rows)):
        if names:
            axis.set_ticks(range(count), [shown(name, path) for name in names])
        else:
            axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    if heat.columns:
        axes.tick_params(axis="x", rotation=90)
    axes.set(xlabel=heat.x, ylabel=heat.y)
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)


def _draw_bars(axes: Any, bars: Bars, path: Path) -> None:
    parts = list(dict.fromkeys(part for own in bars.values.values() for part in own))
    ends = np.zeros(len(bars.values))
    for index, part in enumerate(parts):
        widths = np.array([own.get(part, 0.0) for own in bars.values.values()])
        single = len(parts) == 1  # a colour that no part in another panel has
        colour = "#777777" if single else COLOURS[index % len(COLOURS)]
        label = "_" if single else shown(part, path)
        axes.barh(range(len(ends)), widths, left=ends, height=0.62, color=colour, label=label, zorder=2)
        ends = ends + widths
    for place, end in enumerate(ends):
        at = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        axes.annotate(number(float(f"{end:.4g}")), (end, place), **at)
    axes.set_yticks(range(len(ends)), [shown(name, path) for name in bars.values])
    axes.set_ylim(len(ends) - 0.4, -0.6)
    axes.set_xlim(0, 1.18 * max(*ends, 1e-9))
    axes.set_xlabel(bars.x)
    axes.grid(axis="x", color=GRID, lw=0.6, zorder=0)
    axes.tick_params(left=False)


def check_picture(path: Path) -> None:
    """Check the output of a plot before its data is computed.

    Raises:
        SettingsError: it is not the name of a PNG or SVG file, or cannot be written there. RunError:
            matplotlib is not installed.
    """
    if path.suffix.lower() not in (".png", ".svg") or path.is_dir():
        raise SettingsError(
            "is not the name of a PNG or SVG file",
            where=path,
            remedy="End it in .png or .svg, such as picture.svg",
        )
    check_writable(path)
    check_matplotlib()


def check_matplotlib() -> None:
    """
    Raises:
        RunError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise _absent() from error


def check_writable(path: Path) -> None:
    """Check that a file can be written, by a temporary file in its folder, or in the nearest folder above it
    that exists.

    Raises:
        SettingsError: it cannot.
    """
    folder = path.absolute().parent
    while not os.path.lexists(folder):
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        writable = not path.exists() or os.access(path, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise SettingsError(
            "cannot be written",
            where=path,
            remedy=f"Check {folder} and its permissions, or name another file",
        )


@contextmanager
def drawing(path: Path, title: str, size: tuple[float, float] = (7.0, 4.2)) -> Iterator[Any]:
    """Axes to draw on; the file is written on exit.

    Args:
        path: a PNG or SVG file; its folder is created. size: in inches; a PNG has 150 dots per inch.

    Raises:
        RunError: matplotlib is not installed.
    """
    with figure_file(path, size) as figure:
        axes = figure.add_subplot()
        axes.set_title(fill(shown(title, path), int(8.5 * size[0])))
        axes.spines[["top", "right"]].set_visible(False)
        yield axes


@contextmanager
def figure_file(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """A figure, written to the file on exit; arguments and errors of `drawing`."""
    try:
        # The Agg canvas needs no display, and without pyplot there is no global state.
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _absent() from error
    text = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    )
    style = {
        **text,
        "font.family": list(_fonts()),
        "text.parse_math": False,  # a name with two dollar signs would be parsed as TeX
        "figure.facecolor": PAPER,
        "axes.facecolor": "none",
        "svg.fonttype": "none",
        "svg.hashsalt": "albertine",  # else ids differ between equal figures
    }
    with rc_context(style), warnings.catch_warnings():
        # The text of an SVG may have characters that only its reader's fonts have.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _is_svg(path):
            figure.savefig(path)
            return
        figure.savefig(path, metadata={"Date": None})
        drawn = path.read_text(encoding="utf-8")
        families = ", ".join(f"'{name}'" for name in _fonts())
        path.write_text(drawn.replace(families, _SVG_FONTS), encoding="utf-8")


def svg_of(draw: Callable[[Path], object]) -> str:
    """The SVG that a function draws into the file that it is called with.

    Raises:
        RunError: matplotlib is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figure.svg")
        draw(path)
        return path.read_text(encoding="utf-8")


def _is_svg(path: Path) -> bool:
    return path.suffix.lower() == ".svg"


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


def shown(text: str, path: Path | None = None) -> str:
    """A text with runs of characters that no font has replaced by an ellipsis; in an SVG, which is shown with
    the fonts of its reader, the whole text.

    Args:
        path: of the figure; None: as in a PNG.
    """
    if path is not None and _is_svg(path):
        return text
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
        axes.set_yticks(range(len(values)), [shown(name, path) for name in values])
        axes.set_ylim(len(values) - 0.4, -0.6)
        every = [x for own in values.values() for x in own]
        least, most = min(0.0, *every), max(1.0, *every)
        axes.set_xlim(least - (0.04 * most if least < 0 else 0), 1.1 * most)
        axes.set_xlabel(x)
        axes.grid(axis="x", color=GRID, lw=0.6, zorder=0)
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
        axes.grid(color=GRID, lw=0.6, zorder=0)
        axes.legend(
            frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2
        )  # bars may be anywhere
    return path
