"""`albertine analyze lens`: the guesses of the masked-LM head at every depth."""

from __future__ import annotations

from typing import Annotated

import typer

from albertine.cli import show
from albertine.cli.analyze_options import Html, Plot, check_outputs, note_missing_fonts, one_text
from albertine.cli.options import Json


def lens(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Any name of a model with a masked-LM head.")],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="A text; without one, stdin.")] = None,
    depths: Annotated[
        int | None,
        typer.Option(
            "--depths",
            min=0,
            help="Largest depth; default: that of the model, twice that where one block can be repeated.",
        ),
    ] = None,
    token: Annotated[
        list[int] | None,
        typer.Option("--token", min=0, help="Mask this token alone, [CLS] is 0; may be repeated."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Tokens at every depth.")] = 5,
    plot: Plot = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Predicted tokens after every layer.

    The masked-LM head is applied after every layer, and beyond them where all layers are one block. In a text
    without [MASK], every token is masked alone, and the probability of the right one is shown.
    """
    from albertine.analysis import lens_figures as figures
    from albertine.analysis.lens import lens_of_named
    from albertine.analysis.names import model_labels

    check_outputs(plot, html)
    given = one_text(text)
    chosen = None if depths is None else range(depths + 1)
    found = lens_of_named(model, given, depths=chosen, top=top, places=token)
    (label,) = model_labels([model])
    if json:
        show.as_json({"model": label, **found.as_dict()})
    else:
        if found.right is not None:
            table = figures.token_table(found)
            show.table(table.columns, table.rows, title=f"{label}: best token, probability of the right one")
        detailed = found.positions if token else figures.masked_in_text(found)
        for position in detailed:
            table = figures.guess_table(found, position)
            show.table(table.columns, table.rows, title=f"{label}: {figures.title_of(found, position)}")
            typer.echo(f"{figures.stable_in_words(found, position)}.\n")
        for note in figures.notes(found):
            typer.echo(note)
    if plot is not None:
        figures.save_lens(plot, found, label)
        note_missing_fonts(plot, found.tokens)
    if html is not None:
        figures.write_lens(html, found, label, given)
