"""`albertine evaluate MODEL --suite`: a model on the minimal pairs of BLiMP or SLING."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from albertine.cli import show
from albertine.evaluation.minimal_pairs import Share, SuiteScores, judge_suite
from albertine.evaluation.suites import read_suite
from albertine.inference.likelihood import PseudoLikelihood
from albertine.interop.huggingface import load_model
from albertine.interop.places import model_folder
from albertine.precision import InferencePrecision
from albertine.text.load import check_vocabulary, load_tokenizer


def suite(
    what: Path,
    name: str,
    data: Path | None,
    limit: int | None,
    *,
    device: str,
    precision: InferencePrecision,
    json: bool,
) -> None:
    """Judge a model, by its folder or its released name, and print.

    Raises:
        DataError, ModelError: as in `read_suite` and `PseudoLikelihood`.
    """
    if data is None:
        raise typer.BadParameter("name the folder of the original files", param_hint="--data")
    folder = model_folder(what)
    pairs = read_suite(name, data, limit=limit)
    tokenizer, model = load_tokenizer(folder), load_model(folder).to(device)
    check_vocabulary(model.config.vocab_size, tokenizer, folder)
    model.precision = precision
    score = PseudoLikelihood(model, tokenizer, folder)
    with show.progress("tokens scored") as update:
        scores = judge_suite(pairs, lambda texts: score(texts, update))
    if json:
        show.as_json({"model": str(what), **scores.told()})
    else:
        _print(scores)


def _print(scores: SuiteScores) -> None:
    names = list(scores.overall.published)
    told = [name for name in names if any(name in s.published for s in scores.phenomena.values())]
    rows = [_row(name, share, told) for name, share in scores.phenomena.items()]
    rows.append(_row("mean of the paradigms", scores.overall, told))
    title = f"{scores.suite.name}, right by summed pseudo-log-likelihood"
    show.table(("phenomenon", "right", "± standard error", "pairs", *told), rows, title=title)
    if scores.suite.aside:
        typer.echo(f"Not in the mean: {scores.suite.aside}, whose files have few pairs.")
    if others := [f"{name} {scores.overall.published[name]:.1%}" for name in names if name not in told]:
        typer.echo(f"Published for the whole suite: {', '.join(others)}.")


def _row(name: str, share: Share, published: list[str]) -> list[str]:
    others: Mapping[str, float] = share.published
    return [
        name,
        f"{share.value:.1%}",
        f"{100 * share.error:.1f}",
        show.count(share.pairs),
        *(f"{others[other]:.1%}" if other in others else "" for other in published),
    ]
