"""`albertine report`: a report on tuned runs as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from albertine.cli import show
from albertine.cli.options import Json


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Folders of finished runs; those of `evaluate` and `ensemble` too."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the report.")],
    json: Json = False,
) -> None:
    """Write a report on tuned runs from what they left. No model is asked.

    Runs whose names differ in their seed alone are one task."""
    from albertine.evaluation.report import best_run, spreads, write_report
    from albertine.evaluation.runs import Run, read_run, without_seed

    tasks: dict[str, list[Run]] = {}
    for run in map(read_run, runs):
        tasks.setdefault(without_seed(run.name), []).append(run)
    page = write_report(output, ", ".join(tasks), tasks)
    known = {name: spreads(own) for name, own in tasks.items()}
    if json:
        told = {name: {metric: one.told() for metric, one in own.items()} for name, own in known.items()}
        show.as_json({"report": str(page), "tasks": told})
        return
    rows = []
    for name, own in tasks.items():
        metric = own[0].metrics[0]
        spread = known[name].get(metric)
        rows.append((name, metric, len(own), f"{spread.median:.4f}" if spread else "", best_run(own).name))
    show.table(("task", "metric", "runs", "median", "best run"), rows)
    typer.echo(f"report: {page}")
