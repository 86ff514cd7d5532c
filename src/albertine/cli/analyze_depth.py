"""`albertine analyze depth`: residuals of all layers, and the fixed point of a shared one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.analyze_options import Html, Limit, Plot, TextFiles, check_outputs, given_texts
from albertine.cli.options import Json, Texts

if TYPE_CHECKING:
    from albertine.analysis.depth import DepthStudy


def depth(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Any model.")],
    texts: Texts = None,
    files: TextFiles = None,
    limit: Limit = 64,
    depths: Annotated[
        int,
        typer.Option("--depths", min=2, help="Most applications of a shared layer; others: of all layers."),
    ] = 48,
    plot: Plot = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Convergence over depth, fixed point of a shared layer.

    Residual and cosine of every layer; of a model whose layers share all weights also the fixed point, and
    how fast it is approached."""
    from albertine.analysis.depth import save_study, study_texts, write_study
    from albertine.analysis.names import model_labels

    check_outputs(plot, html)
    study, loaded = study_texts(model, given_texts(texts or (), files, limit), depths=depths)
    layers, (label,) = loaded.config.num_hidden_layers, model_labels([model])
    if json:
        rate = study.rate if study.rate == study.rate else None  # JSON has no NaN
        show.as_json({**asdict(study), "rate": rate, "depths_of_plan": layers})
    else:
        _print(study, layers)
    if plot is not None:
        save_study(plot, study, label)
    if html is not None:
        write_study(html, study, label, layers)


def _print(study: DepthStudy, layers: int) -> None:
    from albertine.analysis.depth import depth_table, facts, no_fixed_point_in_words

    marked = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, layers, len(study.residual)}
    values = depth_table(study)
    show.table(values.columns, [row for row in values.rows if row[0] in marked])
    if study.no_fixed_point is not None:
        typer.echo(no_fixed_point_in_words(study, layers))
    else:
        show.facts(f"Fixed point (the plan has {layers} depths)", facts(study))
