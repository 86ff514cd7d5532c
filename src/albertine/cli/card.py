"""`albertine card`: the README.md of a model, from the run that made it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Licence = Annotated[
    str | None,
    typer.Option(
        "--licence", "--license", help="As the Hub names licences, such as apache-2.0. Kept for later."
    ),
]


def card(
    model: Annotated[
        Path, typer.Argument(metavar="FOLDER|RUN", help="Model folder, or run, whose best model is meant.")
    ],
    licence: Licence = None,
    language: Annotated[
        list[str] | None,
        typer.Option("--language", help="Code of one it was trained on, such as en; may be repeated."),
    ] = None,
    watts: Annotated[
        float | None,
        typer.Option("--watts", help="Power drawn in training, for the carbon; none is assumed."),
    ] = None,
    grid: Annotated[
        float | None, typer.Option("--grid", help="Of that power's grid, in grams of CO2 equivalent a kWh.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base-model", metavar="OWNER/NAME", help="On the Hub, what it was made from."),
    ] = None,
) -> None:
    """Write a model's card, README.md, from its run.

    It lists data, settings, scores with intervals, limits, licence and carbon, as far as they are known. What
    a person wrote there stays. Scores on data sets of the Hub also go to .eval_results."""
    from albertine.evaluation.card_metadata import CardMetadata
    from albertine.interop.model_names import model_folder
    from albertine.tasks.model_card import write_card

    folder = model_folder(model)
    stated = CardMetadata(licence, tuple(language) if language else None, watts, grid, base)
    page, results = write_card(folder, stated)
    typer.echo(f"card: {page}")
    for file in results:
        typer.echo(f"scores for the Hub: {file}")
