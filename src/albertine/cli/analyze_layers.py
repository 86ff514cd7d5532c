"""`albertine analyze layers`: what every layer does to the token states."""

from __future__ import annotations

from typing import Annotated

import typer

from albertine.cli import show
from albertine.cli.analyze_options import (
    Html,
    Limit,
    MaxLength,
    Plot,
    TextFiles,
    check_outputs,
    given_texts,
    models_and_texts,
)
from albertine.cli.options import Json


def layers(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... [TEXT...]", help="Models, then texts; without any text, lines of stdin."
        ),
    ],
    texts: TextFiles = None,
    limit: Limit = 256,
    max_length: MaxLength = 128,
    plot: Plot = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Statistics of the states of every layer.

    L2 distance, cosine and angle between input and output (Figure 1 of the ALBERT paper), norm, anisotropy,
    effective rank, curvature, and CKA between layers; several models in one figure."""
    from albertine.analysis.layer_figures import read_in_words, save_layers, table, write_layers
    from albertine.analysis.layers import layer_statistics_of
    from albertine.analysis.names import model_labels

    check_outputs(plot, html)
    models, given = models_and_texts(words)
    chosen = given_texts(given, texts, limit)
    found = [
        layer_statistics_of(model, chosen, max_length=max_length, label=label)
        for model, label in zip(models, model_labels(models), strict=True)
    ]
    if json:
        show.as_json([one.as_dict() for one in found])
    else:
        for one in found:
            values = table(one)
            show.table(values.columns, values.rows, title=one.model)
            typer.echo(f"{read_in_words(one)}.")
    if plot is not None:
        save_layers(plot, found)
    if html is not None:
        write_layers(html, found)
    show.cut(max(one.cut for one in found))
