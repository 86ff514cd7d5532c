"""`albertine study`: tables and figures of papers, computed again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from albertine.cli import show
from albertine.cli.options import Json, Overrides
from albertine.study import DATA, DEFAULT_SCALE, OUTPUT

if TYPE_CHECKING:
    from albertine.study.runner import TrialStatus

Name = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="A YAML file, or the name of a study in the package, such as sharing."
    ),
]
NameOrResults = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="As of `study run`; or the results of an earlier report, NAME.json, without any runs.",
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", help="Folder of all studies, which have equal cells in common.")
]
Data = Annotated[Path, typer.Option("--data", help="Folder of the texts and data sets that the study names.")]
Scale = Annotated[
    str, typer.Option("--scale", help="Size of models and runs: two-core, or another of the study.")
]


def run(
    study: Name,
    overrides: Overrides = None,
    output: Output = Path(OUTPUT),
    data: Data = Path(DATA),
    scale: Scale = DEFAULT_SCALE,
    parallel: Annotated[
        int | None,
        typer.Option(
            "--parallel",
            min=1,
            help="Cells at once, each with an equal share of the cores; default: 1, on Ray as many as it "
            "has cores.",
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(
            "--engine", help="local: processes of this machine; ray: a cluster, RAY_ADDRESS or one here."
        ),
    ] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cells and their runs, and stop.")
    ] = False,
) -> None:
    """Compute the cells of a study. The same command goes on with what was interrupted, and tries again what
    failed.

    The studies of the package: albertine study run sharing --data FOLDER. Settings of a study are changed as
    seeds=[1,2] or budget.steps=500.
    """
    from albertine import study as studies

    if dry_run:
        _print_plan(study, overrides or [], data, scale)
        return
    try:
        found = studies.run(
            study,
            overrides or [],
            output=output,
            data=data,
            scale=scale,
            parallel=parallel,
            engine=engine,
            update=lambda line: typer.echo(line, err=True),
        )
    except (KeyboardInterrupt, SystemExit):
        show.stopped("auto")
        raise
    _print(found)
    failed = [one for one in found if one.state != "done"]
    if failed:
        typer.echo(f"{len(failed)} of {len(found)} cells are not done; the same command tries them again.")
        raise typer.Exit(1)
    options = {"--output": (output, OUTPUT), "--data": (data, DATA), "--scale": (scale, DEFAULT_SCALE)}
    words = ["albertine", "study", "report", study, *(overrides or [])]
    for name, (value, usual) in options.items():
        words += [] if str(value) == usual else [name, str(value)]
    typer.echo(f"Next: {join(words)}")


def status(
    study: Name,
    overrides: Overrides = None,
    output: Output = Path(OUTPUT),
    data: Data = Path(DATA),
    scale: Scale = DEFAULT_SCALE,
    json: Json = False,
) -> None:
    """State of every cell of a study.

    Done, running, failed or waiting, with every seed.
    """
    from albertine import study as studies

    found = studies.status(study, overrides or [], output=output, data=data, scale=scale)
    if json:
        show.as_json([{**asdict(one), "folder": one.folder and str(one.folder)} for one in found])
    else:
        _print(found)


def report(
    study: NameOrResults,
    overrides: Overrides = None,
    output: Output = Path(OUTPUT),
    data: Data = Path(DATA),
    scale: Scale = DEFAULT_SCALE,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Folder of the reports; default: reports in that of the studies."),
    ] = None,
    json: Json = False,
) -> None:
    """Write the report of a study.

    Tables, figures, and for each conclusion whether it holds.
    """
    from albertine import study as studies
    from albertine.study.study_report import difference_in_words

    found = studies.report(study, overrides or [], output=output, data=data, scale=scale, to=to)
    if json:
        show.as_json(found)
        return
    rows = [(one["claim"], difference_in_words(one), one["verdict"]) for one in found["verdicts"]]
    show.table(("conclusion", "found", "verdict"), rows)
    if found["missing"]:
        typer.echo(f"{len(found['missing'])} cells have no results yet.")
    typer.echo(f"report: {found['report']}\npage: {found['page']}\nresults: {found['results']}")


def _print(found: list[TrialStatus]) -> None:
    from albertine.training.progress import clock

    rows = []
    for one in found:
        steps = "" if one.step is None else f"{one.step:,}" + (f" of {one.steps:,}" if one.steps else "")
        left = clock(one.left) if one.state == "running" else ""
        rows.append((one.cell, one.seed, one.state, f"{one.done} of {one.units}", steps, left))
    show.table(("cell", "seed", "state", "parts done", "update", "left"), rows)
    for one in found:
        if one.state == "failed":
            typer.echo(f"failed: {one.cell}, seed {one.seed}: {one.reason} ({one.folder})")


def _print_plan(study: str, overrides: list[str], data: Path, scale: str) -> None:
    from collections import Counter

    from albertine.study.definition import read_study
    from albertine.study.units import plan_of

    plan = plan_of(read_study(study, scale, overrides), data)
    rows = [
        (cell.name, ", ".join(f"{key}={value}" for key, value in cell.changes.items())) for cell in plan.cells
    ]
    show.table(("cell", "settings"), rows, title=plan.study.title)
    counts = Counter(unit.kind.replace("_", " ") for unit in plan.units.values())
    typer.echo(
        f"{len(plan.trials)} cells with seeds: {', '.join(f'{n} {kind}' for kind, n in counts.items())}"
    )


GROUP = "Compute a table of a paper again, and check its conclusions."
COMMANDS = (run, status, report)
