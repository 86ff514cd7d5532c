"""`albertine predict TASK MODEL --file`: a table in, the same table with the model's answers out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from albertine.cli import show
from albertine.cli.inputs import check_texts, opener
from albertine.cli.options import BatchTokensOption, DeviceOption, Overwrite, PrecisionOption

if TYPE_CHECKING:
    from albertine.interop.heads import Task
    from albertine.tasks.predictor import Predictor


def _of_files(
    precision: PrecisionOption = "auto",
    device: DeviceOption = "cpu",
    batch_tokens: BatchTokensOption = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="TABLE",
            help="Ask about every row of a CSV, TSV, JSON or Parquet file, or of what else finetune reads "
            "for the task; needs --output.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="TABLE",
            help="The rows of --file with the answers beside them: .csv, .tsv, .jsonl or .parquet. A command "
            "that was interrupted goes on.",
        ),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option("--text", metavar="COLUMN", help="Of --file: the text, or the passage.")
    ] = None,
    pair_column: Annotated[
        str | None,
        typer.Option("--pair", metavar="COLUMN", help="Of --file: the second text, or the question."),
    ] = None,
    options_column: Annotated[
        str | None, typer.Option("--options", metavar="COLUMN", help="Of --file: the list of options.")
    ] = None,
    top: Annotated[
        int, typer.Option("--top", min=0, help="Of --file: also the likeliest answers, so many.")
    ] = 0,
    header: Annotated[
        bool,
        typer.Option(
            "--header/--no-header",
            help="Of --file, CSV and TSV: whether the first line has the names of the columns; else: 1, 2, …",
        ),
    ] = True,
    encoding: Annotated[str, typer.Option("--encoding", help="Of --file.")] = "utf-8",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            help="Of --file, on a processor: processes that answer; default: one a core for many rows.",
        ),
    ] = None,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="In CSV and TSV, an apostrophe before texts that a spreadsheet would evaluate (=, +, -, @).",
        ),
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """What the commands of `asking` and `asking_any` take beside their own parameters."""


ONLY = Parameter.KEYWORD_ONLY
MORE = [p.replace(kind=ONLY) for p in signature(_of_files, eval_str=True).parameters.values()]
QUESTIONS = ("text", "passage", "passages", "question", "options")
"""Parameters of commands that say what is asked."""
OPENING = ("device", "batch_tokens", "precision")
"""Those that say how a model is opened."""


def asking(
    task: Task, tuned: str, *, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that is given what it asks about can ask about the rows of a file too.

    It takes a `predictor` and what is asked; without a file that must be all there.

    Args:
        tuned: what the model was tuned for, in words.
        without: what of `MORE` means nothing for this task.
    """
    model = Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help=f"A model tuned {tuned}: its folder, its run's, or owner/name[@revision] of the hub.",
        ),
    ]

    def extended(command: Callable[..., None]) -> Callable[..., None]:
        own = _own(command)
        of_files = _more(own, without)

        @wraps(command)
        def either(model: Path, **told: Any) -> None:
            from albertine.tasks.predictor import Predictor

            given = {p.name: told.pop(p.name) for p in own}
            about = {name: given[name] for name in given if name in QUESTIONS}
            how = {name: told.pop(name) for name in OPENING}
            check_texts(*about.values())
            if told["file"] is not None:
                _check_file(told["output"], about.values())
                _refuse("means nothing with --file", given, [p for p in own if p.name not in about])
                return answer_file(Predictor(model, **how), task, **told)
            _refuse("belongs to --file", told, of_files)
            if missing := [name for name, value in about.items() if value is None and name != "text"]:
                raise typer.BadParameter("is missing; or give --file", param_hint=missing[0].upper())
            predictor = Predictor(model, **how)
            command(predictor, **given)
            show.cut(predictor.cut)

        return _offering(either, [Parameter("model", ONLY, annotation=model), *own, *of_files])

    return extended


def asking_any(ask: str, without: Collection[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `asking`, of any model, which stands first among `words`; the command takes `given.opener`.

    Args:
        ask: the function of `tasks.text_vectors` that is for rows. without: options that it has no use for.
    """

    def extended(command: Callable[..., None]) -> Callable[..., None]:
        own = _own(command)
        of_files = _more(own, without)

        @wraps(command)
        def either(**told: Any) -> None:
            from albertine.tasks import text_vectors
            from albertine.tasks.predictor import Predictor

            given, output = {p.name: told.pop(p.name) for p in own}, told.get("output")
            how = {name: told.pop(name) for name in OPENING}
            if told["file"] is None:
                _refuse("belongs to --file", told, of_files)
                return command(partial(opener, **how), **given)
            model, *texts = given["words"] or [None]
            if model is None:
                raise typer.BadParameter("name the model that is asked about --file", param_hint="MODEL")
            _check_file(given.get("output", output), texts)
            of_rows: dict[str, Any] = {
                name: given[name] for name in ("output", "overwrite", "pooling", "normalize") if name in given
            }
            _refuse("means nothing with --file", given, [p for p in own if p.name not in ("words", *of_rows)])
            told |= of_rows
            answer_file(Predictor(model, **how), ask=getattr(text_vectors, ask), **told)

        return _offering(either, [*own, *of_files])

    return extended


def _own(command: Callable[..., None]) -> list[Parameter]:
    """The parameters of a command but for the first, what it asks."""
    parameters = signature(command, eval_str=True, locals={"Predictor": object}).parameters.values()
    return [p.replace(kind=ONLY) for p in parameters][1:]


def _more(own: Sequence[Parameter], without: Collection[str] = ()) -> list[Parameter]:
    """The parameters of `MORE` that a command has beside its own; a column of options if it asks about
    some."""
    names = {p.name for p in own}
    left_out = {*names, *without, *(() if "options" in names else ("options_column",))}
    return [p for p in MORE if p.name not in left_out]


def _offering(command: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """A command with these parameters."""
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _refuse(why: str, told: Mapping[str, Any], parameters: Iterable[Parameter]) -> None:
    """Refuse a parameter that is not as it would be if nobody named it."""
    for parameter in parameters:
        value = told.get(parameter.name, parameter.default)
        if value != parameter.default:
            # In an annotation, what typer calls the default is the name of the option.
            on, _, off = parameter.annotation.__metadata__[0].default.partition("/")
            raise typer.BadParameter(why, param_hint=off if off and not value else on)


def _check_file(output: Path | None, asked: Iterable[object]) -> None:
    """Refuse a file without an output, or beside other questions."""
    if output is None:
        raise typer.BadParameter("name the table to write: --output FILE", param_hint="--file")
    if any(asked):
        raise typer.BadParameter("give texts or --file, and not both", param_hint="--file")


def answer_file(
    predictor: Predictor,
    task: Task | None = None,
    *,
    file: Path,
    output: Path,
    text_column: str | None,
    pair_column: str | None = None,
    options_column: str | None = None,
    **how: Any,
) -> None:
    """Ask a model about every row of a file.

    Args:
        task: what the model must be tuned for; None: for anything.
        how: as in `predict_file`.
    """
    from dataclasses import replace

    from albertine.tasks.family import Fields
    from albertine.tasks.predict import predict_file

    usual = Fields() if task is None else predictor.made_to(task).fields
    named = {"text": text_column, "pair": pair_column, "options": options_column}
    fields = replace(usual, **{name: column for name, column in named.items() if column})
    try:
        with show.progress("rows") as progress:
            done = predict_file(predictor, file, output, fields=fields, progress=progress, **how)
    except KeyboardInterrupt:
        typer.echo("Interrupted. The same command goes on where it was.", err=True)
        raise
    again = f", {done.before:,} of them by an earlier command" if done.before else ""
    again += f", {done.again:,} computed again, as what was kept of them had changed" if done.again else ""
    typer.echo(f"{done.rows:,} rows in {output}{again}")
    show.cut(done.cut)
