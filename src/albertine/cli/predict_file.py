"""`albertine predict TASK MODEL --file`: a table in, the same table with predictions out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from albertine.cli import show
from albertine.cli.inputs import check_texts, opener
from albertine.cli.options import (
    BatchTokensOption,
    DeviceOption,
    ExitOption,
    LayersOption,
    Overwrite,
    PrecisionOption,
    RuntimeOption,
)

if TYPE_CHECKING:
    from albertine.interop.heads import Task
    from albertine.tasks.predictor import Predictor


def _of_files(
    precision: PrecisionOption = "auto",
    device: DeviceOption = "cpu",
    batch_tokens: BatchTokensOption = None,
    runtime: RuntimeOption = None,
    exit: ExitOption = None,
    layers: LayersOption = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="TABLE",
            help="Predict for every row of a CSV, TSV, JSON or Parquet file, or of what else finetune reads "
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
    top: Annotated[int, typer.Option("--top", min=0, help="Of --file: also the top N answers.")] = 0,
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
    """The parameters that `over_files` and `over_files_of_any` add to those of a command."""


ONLY = Parameter.KEYWORD_ONLY
MORE = [p.replace(kind=ONLY) for p in signature(_of_files, eval_str=True).parameters.values()]
INPUTS = ("text", "passage", "passages", "question", "options")
"""Parameters of commands that hold inputs of the model."""
OPENING = ("device", "batch_tokens", "precision", "runtime", "exit", "layers")
"""Parameters with which a model is loaded."""


def over_files(
    task: Task, tuned: str, *, without: Collection[str] = ("exit",)
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: a command that predicts for its arguments can predict for the rows of a file too.

    The command takes a `predictor` and the inputs; without a file all inputs are required.

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
        def either(model: Path, **values: Any) -> None:
            from albertine.tasks.predictor import Predictor

            given = {p.name: values.pop(p.name) for p in own}
            about = {name: given[name] for name in given if name in INPUTS}
            how = {name: values.pop(name) for name in OPENING if name in values}
            check_texts(*about.values())
            if values["file"] is not None:
                _check_file(values["output"], about.values())
                _refuse("means nothing with --file", given, [p for p in own if p.name not in about])
                return predict_rows(Predictor(model, **how), task, **values)
            _refuse("belongs to --file", values, of_files)
            if missing := [name for name, value in about.items() if value is None and name != "text"]:
                raise typer.BadParameter("is missing; or give --file", param_hint=missing[0].upper())
            predictor = Predictor(model, **how)
            command(predictor, **given)
            show.cut(predictor.cut)
            if how.get("exit") is not None:
                show.layers_used(predictor.layers_used, predictor.model.config.plan.depth)

        return _with_parameters(either, [Parameter("model", ONLY, annotation=model), *own, *of_files])

    return extended


def over_files_of_any(
    function: str, without: Collection[str]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `over_files`, for any model, which comes first among `words`; the command takes `inputs.opener`.

    Args:
        function: name of the function of `tasks.text_vectors` for rows. without: options that do not apply.
    """

    def extended(command: Callable[..., None]) -> Callable[..., None]:
        own = _own(command)
        of_files = _more(own, without)

        @wraps(command)
        def either(**values: Any) -> None:
            from albertine.tasks import text_vectors
            from albertine.tasks.predictor import Predictor

            given, output = {p.name: values.pop(p.name) for p in own}, values.get("output")
            how = {name: values.pop(name) for name in OPENING if name in values}
            if values["file"] is None:
                _refuse("belongs to --file", values, of_files)
                return command(partial(opener, **how), **given)
            model, *texts = given["words"] or [None]
            if model is None:
                raise typer.BadParameter("name the model for --file", param_hint="MODEL")
            _check_file(given.get("output", output), texts)
            of_rows: dict[str, Any] = {
                name: given[name] for name in ("output", "overwrite", "pooling", "normalize") if name in given
            }
            _refuse("means nothing with --file", given, [p for p in own if p.name not in ("words", *of_rows)])
            values |= of_rows
            predict_rows(Predictor(model, **how), function=getattr(text_vectors, function), **values)

        return _with_parameters(either, [*own, *of_files])

    return extended


def _own(command: Callable[..., None]) -> list[Parameter]:
    """The parameters of a command without the first, its predictor."""
    parameters = signature(command, eval_str=True, locals={"Predictor": object}).parameters.values()
    return [p.replace(kind=ONLY) for p in parameters][1:]


def _more(own: Sequence[Parameter], without: Collection[str] = ()) -> list[Parameter]:
    """The parameters of `MORE` that a command has beside its own; a column of options if it has
    options."""
    names = {p.name for p in own}
    left_out = {*names, *without, *(() if "options" in names else ("options_column",))}
    return [p for p in MORE if p.name not in left_out]


def _with_parameters(command: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """Give a command these parameters."""
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _refuse(why: str, values: Mapping[str, Any], parameters: Iterable[Parameter]) -> None:
    """Refuse a parameter whose value is not its default."""
    for parameter in parameters:
        value = values.get(parameter.name, parameter.default)
        if value != parameter.default:
            # In an annotation, what typer calls the default is the name of the option.
            on, _, off = parameter.annotation.__metadata__[0].default.partition("/")
            raise typer.BadParameter(why, param_hint=off if off and not value else on)


def _check_file(output: Path | None, inputs: Iterable[object]) -> None:
    """Refuse a file without an output, or beside other inputs."""
    if output is None:
        raise typer.BadParameter("name the table to write: --output FILE", param_hint="--file")
    if any(inputs):
        raise typer.BadParameter("give texts or --file, and not both", param_hint="--file")


def predict_rows(
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
    """Predict for every row of a file.

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
    if predictor.exits:
        show.layers_used(predictor.layers_used, predictor.model.config.plan.depth)
