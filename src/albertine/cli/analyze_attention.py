"""`albertine analyze attention`: attention of a text in every layer and head."""

from __future__ import annotations

from typing import Annotated

import typer

from albertine.cli import show
from albertine.cli.analyze_options import Html, Plot, check_outputs, note_missing_fonts, one_text
from albertine.cli.options import Json

WIDEST = 8
"""Most heads of tables that fit into a terminal; `--json` and `--html` have those of all models."""


def attention(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Any name of a model.")],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="A text; without one, stdin.")] = None,
    plot: Plot = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Attention of a text in every layer and head.

    Entropy and mean distance of each head (Clark et al. 2019), and the similarity of the maps of two layers.
    `--json` also has the weights.
    """
    from albertine.analysis import attention_figures as figures
    from albertine.analysis.attention import attention_of_named
    from albertine.analysis.names import model_labels

    check_outputs(plot, html)
    given = one_text(text)
    maps = attention_of_named(model, given)
    (label,) = model_labels([model])
    if json:
        show.as_json({"model": label, **maps.as_dict()}, indent=None)
    else:
        table = figures.layer_table(maps)
        show.table(table.columns, table.rows, title=f"{label}: entropy in nats, distance in tokens")
        if maps.weights.shape[1] <= WIDEST:
            for title, table in figures.head_tables(maps).items():
                show.table(table.columns, table.rows, title=f"{label}: {title}")
        show.facts("Similarity of attention, 1 - JS / ln 2", figures.facts(maps))
    if plot is not None:
        figures.save_maps(plot, maps, label)
        note_missing_fonts(plot, maps.tokens)
    if html is not None:
        figures.write_attention(html, maps, label, given)
