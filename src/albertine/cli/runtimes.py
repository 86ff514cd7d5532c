"""The part of `albertine doctor` that compares the ways to compute a model that has an export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from albertine.cli import show
from albertine.core.processors import usable_threads
from albertine.errors import ModelError
from albertine.tasks.runtime_comparison import SHAPES, Way


def compared(name: str) -> dict[str, Any] | None:
    """Measure a model that has an export, and keep the result for `--runtime auto`; None: it has none.

    Raises:
        AlbertineError: the export is of other weights, or float32 cannot be computed.
    """
    from albertine.interop.model_names import model_folder
    from albertine.interop.runtimes import export_of, fastest, record
    from albertine.tasks.runtime_comparison import compare

    try:
        folder = model_folder(name).absolute()
    except ModelError:  # a corpus, a run without a model
        return None
    if (export := export_of(folder)) is None:
        return None
    typer.echo("measuring the ways to compute it", err=True)
    ways = compare(folder, export)
    usable = [way for way in ways if not way.refused]
    first = usable[0].timed
    found: dict[str, Any] = {
        "threads": usable_threads(),
        "ways": [_as_data(way, first.relative_to(way.timed)) for way in usable],
        "left_out": {way.name: way.refused for way in ways if way.refused},
    }
    try:
        found["recorded"] = str(record(folder, export, [way.timed for way in usable], {"model": name}))
    except (OSError, KeyError) as error:  # a cache folder that cannot be written; an export without a report
        found["not_recorded"] = str(error)
        return found
    precisions = dict.fromkeys(["auto", *(way.precision for way in usable)])
    chosen = {precision: fastest(folder, export, precision) for precision in precisions}
    found["fastest"] = {precision: runtime for precision, runtime in chosen.items() if runtime is not None}
    return found


def print_compared(name: str, found: dict[str, Any]) -> None:
    """The comparison as a table, and what `--runtime auto` will choose."""
    rows: list[Sequence[object]] = [
        (
            way["way"],
            *(f"{way['milliseconds'][shape]:.1f}" for shape in SHAPES),
            f"{way['speed']:.2f}",
            f"{way['same']:.0%}",
            f"{way['greatest_difference']:.1e}",
        )
        for way in found["ways"]
    ]
    columns = ("ms", *SHAPES, f"speed, {found['ways'][0]['way']} = 1", "alike", "difference")
    show.table(columns, rows, title=f"{name}, {found['threads']} threads")
    for way, why in found["left_out"].items():
        typer.echo(f"left out: {way} ({why})")
    for precision, runtime in found.get("fastest", {}).items():
        typer.echo(f"--runtime auto --precision {precision}: {runtime}")
    if "recorded" in found:
        typer.echo(f"recorded: {found['recorded']}")
    else:
        typer.echo(f"not recorded, so that --runtime auto changes nothing: {found['not_recorded']}", err=True)


def _as_data(way: Way, speed: float) -> dict[str, Any]:
    return {
        "way": way.name,
        "milliseconds": way.timed.milliseconds,
        "speed": speed,
        "same": way.same,
        "greatest_difference": way.difference,
    }
