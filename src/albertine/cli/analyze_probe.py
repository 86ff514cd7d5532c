"""`albertine analyze probe`: the score of a model at each depth, with what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from albertine.cli import show
from albertine.cli.analyze_options import Html, Plot, check_outputs
from albertine.cli.options import Json, Scoring


def probe(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Pretrained models.")],
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="blimp|sling",
            help="Minimal pairs, judged with the masked-LM head after every layer; needs --data.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="FOLDER|DATASET",
            help="A task of classes for a linear probe on every layer: a folder with tables train and dev "
            "(columns text, label and perhaps pair), or a data set by name with --data.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of the files of the suite or data set.")
    ] = None,
    scoring: Annotated[
        Scoring,
        typer.Option("--scoring", help="Of minimal pairs, as of `albertine suite`."),
    ] = "pll",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            help="Most pairs of a paradigm, default 100; or most examples of train and of dev, default 2000.",
        ),
    ] = None,
    plot: Plot = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Scores of every depth, with their cost.

    Minimal pairs (BLiMP, SLING) by the masked-LM head, or a linear probe on the mean over tokens of the
    states; with operations and seconds."""
    from albertine.analysis.names import model_labels
    from albertine.analysis.probe import DepthScores, in_words, save_probe, table, write_probe

    if (suite is None) == (task is None):
        raise typer.BadParameter("give one of --suite and --task", param_hint="--suite")
    if task is not None and scoring != "pll":
        raise typer.BadParameter("is for minimal pairs, not for a task", param_hint="--scoring")
    check_outputs(plot, html)
    models = list(dict.fromkeys(models))
    found: list[DepthScores] = []
    if suite is not None:
        from albertine.pretraining.scores import suite_scores_by_depth

        if data is None:
            raise typer.BadParameter("a suite needs the folder of its files", param_hint="--data")
        for model, label in zip(models, model_labels(models), strict=True):
            with show.progress(f"{label}: tokens scored") as update:
                found.append(
                    suite_scores_by_depth(
                        suite,
                        model,
                        data,
                        scoring=scoring,
                        limit=limit or 100,
                        label=label,
                        update=update,
                    )
                )
    else:
        from albertine.tasks.layer_probe import EXAMPLES, probe_layers, task_of_name

        choice = task_of_name(str(task), data)
        for model, label in zip(models, model_labels(models), strict=True):
            found.append(probe_layers(model, choice, examples=limit or EXAMPLES, label=label))
    if json:
        show.as_json([one.as_dict() for one in found])
    else:
        for one in found:
            values = table(one)
            show.table(values.columns, values.rows, title=one.model)
            typer.echo(in_words(one))
    if plot is not None:
        save_probe(plot, found)
    if html is not None:
        write_probe(html, found)
