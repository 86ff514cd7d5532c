"""`albertine report`: a report on tuned runs as they stand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.options import Json

if TYPE_CHECKING:
    from albertine.evaluation.runs import Run


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

    Runs whose names differ in their seed alone are one task; what `evaluate` left is another."""
    from albertine.evaluation.report import best_run, spreads, write_report
    from albertine.evaluation.runs import read_run

    folders = {folder.resolve(): folder for folder in runs}.values()
    tasks = _by_task([read_run(folder) for folder in folders])
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


def _by_task(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by the name that their seeds share; of two with the same name and seed, which are no two seeds,
    the second is a task of its own, named with its folder."""
    from albertine.evaluation.runs import without_seed

    tasks: dict[str, list[Run]] = {}
    known = set()
    for run in runs:
        name = without_seed(run.name) + (", scored again" if run.scored_again else "")
        which = (run.scored_again, run.name, run.record.get("seed"))
        tasks.setdefault(f"{name} ({run.folder})" if which in known else name, []).append(run)
        known.add(which)
    return tasks
