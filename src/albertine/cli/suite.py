"""`albertine suite`: a pretrained model on the minimal pairs of BLiMP or SLING."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.options import DeviceOption, Json, LayersOption, PrecisionOption, Scoring

if TYPE_CHECKING:
    from albertine.evaluation.minimal_pairs import PairAccuracy, SuiteScores


def suite(
    name: Annotated[str, typer.Argument(metavar="blimp|sling", help="Pairs of English, or of Chinese.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder, run or name of a pretrained model.")],
    data: Annotated[Path, typer.Option("--data", help="Folder of the original files, or of their archive.")],
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Most pairs of a paradigm; default: all.")
    ] = None,
    scoring: Annotated[
        Scoring,
        typer.Option(
            "--scoring",
            help="pll: each token from all others, masked; causal: from those before it, for a model "
            "pretrained with objective.causal_share.",
        ),
    ] = "pll",
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "auto",
    layers: LayersOption = None,
    json: Json = False,
) -> None:
    """Judge a pretrained model by minimal pairs: BLiMP, SLING. The right sentence should be likelier."""
    from albertine.pretraining.scores import suite_scores

    with show.progress("tokens scored") as update:
        scores = suite_scores(
            name,
            model,
            data,
            scoring=scoring,
            limit=limit,
            device=device,
            precision=precision,
            layers=layers,
            update=update,
        )
    if json:
        show.as_json({"model": model, **scores.as_dict()})
    else:
        _print(scores)


def _print(scores: SuiteScores) -> None:
    names = list(scores.overall.published)
    reported = [name for name in names if any(name in s.published for s in scores.phenomena.values())]
    rows = [_row(name, share, reported) for name, share in scores.phenomena.items()]
    rows.append(_row("mean of the paradigms", scores.overall, reported))
    sums = {"pll": "pseudo-log-likelihood", "causal": "log-likelihood from left to right"}
    title = f"{scores.suite.name}, right by summed {sums[scores.scoring]}"
    head = ("phenomenon", "right", "± standard error", "by perplexity", "pairs", *reported)
    show.table(head, rows, title=title)
    if scores.suite.aside:
        typer.echo(f"Not in the mean: {scores.suite.aside}, whose files have few pairs.")
    if others := [f"{name} {scores.overall.published[name]:.1%}" for name in names if name not in reported]:
        by = f", by {scores.suite.published_by}" if scores.suite.published_by != "sum" else ""
        typer.echo(f"Published for the whole suite{by}: {', '.join(others)}.")


def _row(name: str, share: PairAccuracy, published: list[str]) -> list[str]:
    figures = [f"{share.published[other]:.1%}" if other in share.published else "" for other in published]
    error = "" if share.error is None else f"{100 * share.error:.1f}"
    own = [f"{share.value:.1%}", error, f"{share.by_perplexity:.1%}"]
    return [name, *own, show.count(share.pairs), *figures]
