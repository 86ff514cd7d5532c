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
    """Write a report on tuned or pretraining runs.

    Tuned runs whose names differ in their seed alone are one task; what `evaluate` left is another. Of a
    pretraining run it is one HTML file: curves, held-out scores, guesses, layers."""
    from albertine.evaluation.report import best_run, read_tasks, report_data, spreads, write_report
    from albertine.evaluation.runs import RECORD

    if any(not (run / RECORD).is_file() and (run / "final").is_dir() for run in runs):
        from albertine.pretraining.run_report import report_pretraining

        if (page := report_pretraining(runs, output)) is not None:
            show.as_json({"report": str(page), "tasks": {}}) if json else typer.echo(f"report: {page}")
            return

    tasks = read_tasks(runs)
    page = write_report(output, ", ".join(tasks), tasks)
    if json:
        show.as_json(report_data(page, tasks))
        return
    rows = []
    for name, own in tasks.items():
        metric = own[0].metrics[0]
        spread = spreads(own).get(metric)
        rows.append((name, metric, len(own), f"{spread.median:.4f}" if spread else "", best_run(own).name))
    show.table(("task", "metric", "runs", "median", "best run"), rows)
    typer.echo(f"report: {page}")
