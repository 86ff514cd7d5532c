"""`albertine analyze exits`: the score of a tuned classifier by rules of early exit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.analyze_options import Html, Plot, check_outputs
from albertine.cli.inputs import runs_and_settings
from albertine.cli.options import DeviceOption, Json, OwnFile, RunPrecision, Runs

if TYPE_CHECKING:
    from albertine.tasks.rescore import Split


def exits(
    runs: Runs,
    test: Annotated[bool, typer.Option("--test", help="The test file; default: the dev file.")] = False,
    file: OwnFile = None,
    device: DeviceOption = "cpu",
    precision: RunPrecision = None,
    plot: Plot = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Score, mean layers and time by rules of early exit.

    Of classifiers tuned with training.exits=true; the rule to choose is for `predict --exit` and
    `serve --exit`."""
    if file is not None and test:
        raise typer.BadParameter("is a file of the run, and --file names another", param_hint="--test")
    check_outputs(plot, html)
    _, found = runs_and_settings(runs, file, device, precision)
    from albertine.tasks.exit_curve import exit_curve, in_words, save_exits, table, write_exits

    curves = []
    for run in found:
        with show.progress(f"{run.name}: passes over the data") as update:
            split: Split = "test" if test or file is not None else "dev"
            curves.append(exit_curve(run, split, device=device, update=update))
    if json:
        show.as_json([one.as_dict() for one in curves])
    else:
        for one in curves:
            values = table(one)
            show.table(values.columns, values.rows, title=one.run)
            typer.echo(in_words(one))
    if plot is not None:
        save_exits(plot, curves)
    if html is not None:
        write_exits(html, curves)
