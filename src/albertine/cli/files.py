"""`albertine predict TASK MODEL --file`: a table in, the same table with the model's answers out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from albertine.cli import show

if TYPE_CHECKING:
    from albertine.interop.heads import Task
    from albertine.precision import InferencePrecision

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="TABLE",
        help="Ask about every row: CSV, TSV, JSON lines or Parquet; needs --output.",
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="TABLE",
        help="The rows of --file with the answers beside them: .csv, .tsv, .jsonl or .parquet. A command "
        "that was interrupted goes on.",
    ),
]
TextColumn = Annotated[
    str | None, typer.Option("--text", metavar="COLUMN", help="Of --file: the text, or the passage.")
]
PairColumn = Annotated[
    str | None,
    typer.Option("--pair", metavar="COLUMN", help="Of --file: the second text, or the question."),
]
TopOption = Annotated[
    int, typer.Option("--top", min=0, help="Of --file: also the likeliest answers, so many.")
]
EncodingOption = Annotated[str, typer.Option("--encoding", help="Of --file.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an output that is there.")]


QUESTIONS = ("text", "passage", "passages", "question", "options")
"""Parameters of commands that say what is asked."""
FILE_OPTIONS: dict[str, tuple[object, object]] = {
    "file": (FileOption, None),
    "output": (OutputOption, None),
    "text_column": (TextColumn, None),
    "pair_column": (PairColumn, None),
    "top": (TopOption, 0),
    "encoding": (EncodingOption, "utf-8"),
    "overwrite": (OverwriteOption, False),
}


def or_a_file(task: Task) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that asks a model of a task about texts can ask about the rows of a file too.

    It takes a `model`, `precision` and `device`; without a file it must be given all that it asks about.
    """

    def extended(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command, eval_str=True).parameters

        @wraps(command)
        def either(**given: Any) -> None:
            about = {name: given.pop(name) for name in FILE_OPTIONS}
            asked = {name: given[name] for name in own if name in QUESTIONS}
            if about["file"] is not None:
                how = {"precision": given["precision"].value, "device": given["device"]}
                return answer_file(task, given["model"], given=asked, **how, **about)
            if about["output"] is not None:
                raise typer.BadParameter("belongs to --file", param_hint="--output")
            if missing := [name for name, value in asked.items() if value is None and name != "text"]:
                raise typer.BadParameter("is missing; or give --file", param_hint=missing[0].upper())
            return command(**given)

        more = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in FILE_OPTIONS.items()
        ]
        first = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in own.values()]
        either.__signature__ = Signature([*first, *more])  # type: ignore[attr-defined]
        either.__annotations__ = {p.name: p.annotation for p in (*first, *more)}
        return either

    return extended


def answer_file(
    task: Task,
    model: Path,
    *,
    file: Path,
    output: Path | None,
    text_column: str | None,
    pair_column: str | None,
    top: int,
    encoding: str,
    overwrite: bool,
    device: str,
    precision: InferencePrecision,
    given: Mapping[str, object],
) -> None:
    """Ask a model of a task about every row of a file.

    Args:
        given: what else the command was given; there must be nothing to ask about.
    """
    from dataclasses import replace

    from albertine.tasks.asking import usual_fields
    from albertine.tasks.predict import predict_file
    from albertine.tasks.predictor import Predictor

    if output is None:
        raise typer.BadParameter("name the table to write: --output FILE", param_hint="--file")
    if any(given.values()):
        raise typer.BadParameter("give texts or --file, and not both", param_hint="--file")
    predictor = Predictor(model, device=device, precision=precision)
    usual = usual_fields(predictor.made_to(task))
    fields = replace(usual, text=text_column or usual.text, pair=pair_column or usual.pair)
    how: dict[str, Any] = {"top": top, "encoding": encoding, "overwrite": overwrite}
    with show.progress("rows") as progress:
        done = predict_file(predictor, file, output, fields=fields, progress=progress, **how)
    again = f", {done.before:,} of them by an earlier command" if done.before else ""
    typer.echo(f"{done.rows:,} rows in {output}{again}")
    show.cut(done.cut)
