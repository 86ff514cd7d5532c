"""`albertine doctor`: what this machine offers, and whether a folder is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from albertine.cli import show
from albertine.cli.options import Json


def doctor(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FOLDER...", help="Model, corpus or run folders, or models by name, to check."
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Read every byte of the folders, compare hashes, open vocabularies."),
    ] = False,
    json: Json = False,
) -> None:
    """Check this machine: versions, threads, memory, disk. With folders, whether these are whole.

    Of a model that has an export, each way to compute it is timed, and the result kept for --runtime auto."""
    from albertine.cli.checkup import check_folder, machine
    from albertine.cli.runtimes import compared, print_compared

    if not folders:
        found = machine()
        show.as_json(found) if json else show.facts("This machine", found)
        return
    verdicts = {str(folder): check_folder(folder, full=full) for folder in folders}
    for name, verdict in {} if json else verdicts.items():
        typer.echo(f"{name}: {verdict}")
    measured = {name: ways for name in verdicts if (ways := compared(name)) is not None}
    if json:
        both = {name: {"verdict": verdicts[name], "runtimes": ways} for name, ways in measured.items()}
        show.as_json(verdicts | both)
    for name, ways in {} if json else measured.items():
        print_compared(name, ways)
