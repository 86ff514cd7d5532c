"""`albertine evaluate`: a pretrained model on held-out documents."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show

if TYPE_CHECKING:
    from albertine.cli.scores import Score

TASKS = {"mlm": "masked words", "sop": "sentence order", "nsp": "next sentence"}
NO_SKILL = {"mlm": "the commonest word", "sop": "a coin", "nsp": "a coin"}


def register(app: typer.Typer) -> None:
    """Add the verb to the command table."""
    app.command("evaluate")(evaluate)


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="Corpus folder with held-out documents.")],
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", min=8, help="Tokens of a sample; default: the run's, or 128."),
    ] = None,
    sequences: Annotated[int, typer.Option("--sequences", min=1, help="Most samples to judge.")] = 1024,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, ...")] = "cpu",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Accuracy and loss on documents the model has not seen, beside what no skill would score."""
    from albertine.cli.scores import held_out_scores

    scores = held_out_scores(model, corpus, max_length=max_length, sequences=sequences, device=device)
    if json:
        show.as_json([asdict(score) for score in scores])
    else:
        print_scores(scores)


def print_scores(scores: list[Score]) -> None:
    """The scores as a table."""
    columns = ("held-out documents", "right", "without skill", "loss", "without skill", "judged")
    rows = [
        (
            f"{TASKS[s.task]} (without skill: {NO_SKILL[s.task]})",
            f"{s.accuracy:.1%}",
            f"{s.baseline:.1%}",
            f"{s.loss:.3f}",
            f"{s.baseline_loss:.3f}",
            show.count(s.count),
        )
        for s in scores
    ]
    show.table(columns, rows)
