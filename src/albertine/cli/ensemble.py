"""`albertine ensemble`: several tuned runs as one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from albertine.cli import show
from albertine.cli.inputs import runs_and_settings, splits
from albertine.cli.options import Dev, DeviceOption, Json, OwnFile, RunPrecision, Runs, Test


def ensemble(
    runs: Runs,
    pick: Annotated[
        int | None,
        typer.Option("--pick", min=1, help="Take so many runs at most, picked on dev; default: all."),
    ] = None,
    rule: Annotated[
        Literal["greedy", "best"] | None,
        typer.Option(
            "--rule", help="How to --pick: the best together (greedy, the default), or the best alone."
        ),
    ] = None,
    dev: Dev = False,
    test: Test = False,
    file: OwnFile = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for predictions and report; default: beside the runs."),
    ] = None,
    device: DeviceOption = "cpu",
    precision: RunPrecision = None,
    json: Json = False,
) -> None:
    """Score several tuned runs as one model by their mean."""
    chosen = splits(dev, test, file)
    if rule is not None and pick is None:
        raise typer.BadParameter("belongs to --pick", param_hint="--rule")
    _, found = runs_and_settings(runs, file, device, precision, dev=None if pick is None else True)
    from albertine.core.files import writable_folder
    from albertine.tasks import ensemble as ensembles
    from albertine.tasks.rescore import check_no_run

    folder = output or ensembles.ensemble_folder(found)
    check_no_run(folder)
    with writable_folder(folder):
        whole = ensembles.ensemble(found, pick=pick, rule=rule or "greedy", splits=chosen, device=device)
    page, warning = ensembles.write_ensemble(folder, whole), ensembles.warning(whole)
    show.notes(found[0].notes([one.split for one in whole.found]))
    if json:
        show.as_json(ensembles.ensemble_data(whole, page))
        return
    names = [one.split for one in whole.found]
    columns = (f"{whole.family.metrics[0]}, members: {whole.rule}", "taken", *names)
    show.table(columns, ensembles.rows(whole))
    if warning:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(f"predictions and report: {folder}")
