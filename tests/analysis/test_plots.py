"""Curves as PNG files and in the terminal."""

from __future__ import annotations

import errno
import math
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from albertine.analysis.html_report import DARK
from albertine.analysis.plots import (
    COLOURS,
    PAPER,
    HeatMap,
    Panel,
    check_picture,
    number,
    save_curves,
    save_panels,
    save_reliability,
    terminal_curve,
)
from albertine.errors import SettingsError
from albertine.pretraining.run import draw_curves
from albertine.training.run_folder import RunFolder

pytestmark = pytest.mark.pictures


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved in a test, as they were drawn."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    return figures


def dots(line: str) -> list[int]:
    """The columns of a line that hold braille dots."""
    drawing = line.split("┤")[1]
    return [i for i, character in enumerate(drawing) if character != "\u2800"]


def test_a_falling_line_runs_from_corner_to_corner() -> None:
    lines = terminal_curve([(x, 39.0 - x) for x in range(40)], width=20, height=5, y="loss").split("\n")
    assert len(lines) == 7 and lines[0] == "loss"
    assert [min(dots(line)) for line in lines[1:-1]] == sorted(min(dots(line)) for line in lines[1:-1])
    assert dots(lines[1])[0] == 0 and dots(lines[5])[-1] == 19
    assert {i for line in lines[1:-1] for i in dots(line)} == set(range(20)), "the line has a gap"
    assert lines[1].startswith("39 ┤") and lines[5].startswith(" 0 ┤")
    assert lines[-1].split() == ["0", "39", "step"]


def test_a_jump_stays_connected() -> None:
    lines = terminal_curve([(0, 0.0), (1, 0.0), (1.01, 10.0), (2, 10.0)], width=10, height=6).split("\n")
    assert all(dots(line) for line in lines[1:-1])


@pytest.mark.parametrize("points", [[(1, 5.0)], [(1, 5.0), (2, 5.0)]])
def test_flat_or_single(points: list[tuple[float, float]]) -> None:
    assert sum(bool(dots(line)) for line in terminal_curve(points).split("\n")[1:-1]) == 1


def test_points_that_are_not_finite_are_left_out() -> None:
    drawn = terminal_curve([(1, 1.0), (2, math.nan), (3, math.inf), (4, 2.0)])
    assert drawn == terminal_curve([(1, 1.0), (4, 2.0)])
    assert terminal_curve([(1, math.nan)]) == "(no loss to draw yet)"


def test_png(tmp_path: Path) -> None:
    path = tmp_path / "图 1" / "loss.png"
    save_curves(
        path, {"training": [(1, 3.0), (2, math.inf), (3, 2.0)]}, title="Loss", levels={"unigram": 2.5}
    )
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert path.stat().st_size > 5_000


def test_borders_part_a_picture(tmp_path: Path) -> None:
    curves = {"training": [(1, 3.0), (9, 2.0)]}
    plain, parted = tmp_path / "plain.png", tmp_path / "parted.png"
    save_curves(plain, curves, title="Loss")
    save_curves(parted, curves, title="Loss", borders=[3, 5])
    assert parted.read_bytes() != plain.read_bytes()


def test_a_legend_explains_the_borders_once(drawn: list[Figure], tmp_path: Path) -> None:
    save_curves(tmp_path / "loss.png", {"training": [(1, 3.0), (9, 2.0)]}, title="Loss", borders=[3, 5])
    assert [text.get_text() for text in drawn[0].axes[0].get_legend().get_texts()] == [
        "training",
        "end of a stage",
    ]


def test_a_picture_of_a_run_has_units(drawn: list[Figure], tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "mlm_loss": 3.0, "mlm_accuracy": 0.1}\n')
    draw_curves(RunFolder(tmp_path), {})
    assert [one.axes[0].get_ylabel() for one in drawn] == ["loss, nats", "share that is right"]


def test_no_label_overlaps_the_bars_of_confidence(drawn: list[Figure], tmp_path: Path) -> None:
    save_reliability(
        tmp_path / "sure.png", [(0.2, 0.3, 1, 0.26, 1.0), (0.9, 1.0, 9, 0.97, 0.9)], title="Sure"
    )
    drawn[0].draw_without_rendering()
    axes = drawn[0].axes[0]
    legend = axes.get_legend().get_window_extent()
    assert not any(legend.overlaps(bar.get_window_extent()) for bar in axes.patches)
    assert not legend.overlaps(axes.xaxis.get_tightbbox())


def test_many_curves_can_be_distinguished(drawn: list[Figure], tmp_path: Path) -> None:
    save_curves(tmp_path / "dev.png", {f"seed {i}": [(1, 0.1 * i), (2, 0.5)] for i in range(12)}, title="Dev")
    lines = drawn[0].axes[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 12


def test_no_half_steps_or_depths_stand_below_a_picture(drawn: list[Figure], tmp_path: Path) -> None:
    save_curves(tmp_path / "depth.png", {"residual": [(1, 3.0), (2, 2.0)]}, title="Depth", x="depth")
    save_curves(tmp_path / "one.png", {"training": [(1, 3.0)]}, title="One step")
    save_curves(tmp_path / "time.png", {"length": [(0.5, 3.0), (2, 2.0)]}, title="Time", x="times the middle")
    *whole, parted = (figure.axes[0].get_xticks() for figure in drawn)
    assert all(at.is_integer() for ticks in whole for at in ticks)
    assert not all(at.is_integer() for at in parted)


def test_the_names_of_many_curves_stand_beside_them(drawn: list[Figure], tmp_path: Path) -> None:
    save_curves(tmp_path / "dev.png", {f"seed {i}": [(1, 0.1 * i), (2, 0.5)] for i in range(12)}, title="Dev")
    (axes,) = drawn[0].axes
    drawn[0].draw_without_rendering()
    legend = axes.get_legend()
    assert legend is not None
    names, lines = legend.get_window_extent(), axes.get_window_extent()
    assert names.x0 >= lines.x1 and names.x1 <= drawn[0].bbox.x1 and names.height <= drawn[0].bbox.height


def linear(colour: str) -> np.ndarray:
    """Linear RGB of #rrggbb, (3,) (IEC 61966-2-1)."""
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = XYZ.sum(1)
# Machado et al. 2009, severity 1.0: protanopia, deuteranopia, tritanopia.
BLIND = (
    ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear RGB, (3,)."""
    t = XYZ @ rgb / WHITE
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    """Contrast ratio (WCAG 2.2)."""
    low, high = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("palette", "page"), [(COLOURS, PAPER), (DARK, "#15181d")])
def test_curves_can_be_distinguished_without_colour_vision(palette: tuple[str, ...], page: str) -> None:
    """Every pair differs in lightness, and more in colour, for all kinds of colour blindness; ΔE 2.3 is just
    noticeable."""
    for one, other in combinations(palette, 2):
        assert abs(lab(linear(one))[0] - lab(linear(other))[0]) >= 5, (one, other)
        for matrix in (np.eye(3), *map(np.array, BLIND)):
            seen = [lab(np.clip(matrix @ linear(colour), 0, 1)) for colour in (one, other)]
            assert float(np.linalg.norm(seen[0] - seen[1])) >= 12, (one, other)
    assert all(contrast(colour, page) >= 3 for colour in palette)


def test_an_svg_has_text_and_no_date(tmp_path: Path) -> None:
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    for path in (one, two):
        save_curves(path, {"模型甲": [(1, 3.0), (2, 2.0)]}, title="损失 $a$", y="loss, nats")
    text = one.read_text(encoding="utf-8")
    assert all(f">{name}<" in text for name in ("模型甲", "损失 $a$", "loss, nats"))
    assert one.read_bytes() == two.read_bytes()


def test_a_logarithmic_axis_is_labelled_with_values(drawn: list[Figure], tmp_path: Path) -> None:
    for least in (1e-5, 0.3, 0.9):
        curve = [(1, 1.0), (2, least), (3, 0.0)]
        save_curves(tmp_path / "x.png", {"residual": curve}, title="Depth", log=True)
        axes = drawn[-1].axes[0]
        drawn[-1].draw_without_rendering()
        assert axes.get_yscale() == "log"
        low, high = axes.get_ylim()
        labels = [t.get_text() for t in axes.get_yticklabels() if low <= t.get_position()[1] <= high]
        assert len(labels) >= 3 and all(
            float(label) == pytest.approx(tick.get_position()[1])
            for tick in axes.get_yticklabels()
            if (label := tick.get_text())
        )


@pytest.mark.parametrize(
    ("value", "text"), [(0.002, "0.002"), (20000, "20,000"), (1e-6, "1e-6"), (0.0, "0"), (2.5, "2.5")]
)
def test_numbers_of_an_axis(value: float, text: str) -> None:
    assert number(value) == text


def test_an_interval_is_a_band_around_its_curve(drawn: list[Figure], tmp_path: Path) -> None:
    curves = {"a": [(1, 2.0), (2, 3.0)], "b": [(1, 1.0), (2, 1.0)]}
    bands = {"b": [(1, 0.5, 1.5), (2, 0.8, 1.2)]}
    save_curves(tmp_path / "x.png", curves, title="Bands", bands=bands)
    axes = drawn[0].axes[0]
    (band,) = axes.collections
    corners = {(float(x), float(y)) for x, y in band.get_paths()[0].vertices}
    assert {(1, 0.5), (1, 1.5), (2, 0.8), (2, 1.2)} <= corners
    colour = axes.get_lines()[1].get_color()
    assert to_hex(band.get_facecolor()[0]) == colour


def test_a_name_has_one_style_in_all_panels(drawn: list[Figure], tmp_path: Path) -> None:
    panels = [
        Panel("norm", {"a": [(0, 1.0)], "b": [(0, 2.0)]}),
        HeatMap("b", np.eye(3)),
        Panel("distance", {"b": [(1, 2.0)]}),
    ]
    save_panels(tmp_path / "x.png", panels, title="Two models")
    figure = drawn[0]
    plots = {axes.get_ylabel(): axes.get_lines() for axes in figure.axes if axes.get_lines()}
    assert plots["norm"][1].get_color() == plots["distance"][0].get_color()
    assert plots["norm"][1].get_marker() == plots["distance"][0].get_marker()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


@pytest.mark.parametrize("name", ["x.pdf", "x", "folder.svg", "file/x.png", "file/deeper/x.svg"])
def test_a_path_that_cannot_be_a_figure_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(SettingsError, match=r"is not the name of a PNG or SVG file|cannot be written"):
        check_picture(tmp_path / name)


def test_a_folder_without_permission_is_found_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    check_picture(tmp_path / "new" / "x.svg")
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(SettingsError, match=r"x\.svg: cannot be written\. Check .* and its permissions"):
        check_picture(tmp_path / "new" / "x.svg")
