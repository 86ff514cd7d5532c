"""Curves as PNG files and in the terminal."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from albertine.analysis.plots import save_curves, save_reliability, terminal_curve
from albertine.pretraining.run import draw_curves
from albertine.training.run_folder import RunFolder

pytestmark = pytest.mark.pictures


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved in a test, as they were drawn."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_: figures.append(figure))
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
