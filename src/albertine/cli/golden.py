"""`albertine golden`: answers that a server checks before it replaces a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from albertine.cli.options import ExitOption


def golden(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Model or run folder, or exported folder; the file goes there."),
    ],
    requests: Annotated[
        Path | None,
        typer.Option(
            "--requests",
            metavar="FILE",
            help='JSON lines such as {"path": "/embed", "body": {"inputs": ["a text"]}}; default: an '
            "example of each route.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            min=0.0,
            help="How far numbers may be from these, relatively above 1; default: 0.02.",
        ),
    ] = None,
    exit: ExitOption = None,
) -> None:
    """Write answers that a model must give before a server loads it.

    They go into golden.json in its folder, computed in float32. `albertine serve` checks them when a request
    loads or replaces a model, which stays as it was where an answer is another one."""
    import asyncio

    from albertine.cli.serve import check_installed

    check_installed("golden")
    from albertine.core.files import replace_durably, to_json
    from albertine.errors import DataError
    from albertine.serving.golden import FILE, TOLERANCE, golden_answers
    from albertine.serving.limits import ServingLimits
    from albertine.serving.models import Models
    from albertine.tasks.http.errors import HttpError
    from albertine.tasks.predictor import Predictor

    wanted = _requests(requests) if requests is not None else []
    models = Models(ServingLimits(), (), lambda model: Predictor(model, precision="float32", exit=exit))
    service = models.add("golden", model)

    async def answers() -> list[dict[str, Any]]:
        return [one async for one in golden_answers(service, wanted)]

    models.start()
    try:
        found = asyncio.run(answers())
    except HttpError as error:
        raise DataError(f"the model has no answer: {error.message}", where=requests) from None
    finally:
        models.stop(5.0)
    file = service.model.predictor.path / FILE
    tree = {"tolerance": TOLERANCE if tolerance is None else tolerance, "answers": found}
    replace_durably(file, to_json(tree, ensure_ascii=False).encode())
    paths = ", ".join(dict.fromkeys(one["path"] for one in found))
    typer.echo(f"{len(found)} golden answers ({paths}): {file}")


def _requests(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Paths and bodies of a file of JSON lines.

    Raises:
        DataError: a line is something else, or there is none.
    """
    from albertine.errors import DataError

    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), 1):
        if not line.strip():
            continue
        try:
            one = json.loads(line)
            path, body = one["path"], one["body"]
        except (ValueError, TypeError, KeyError) as error:
            raise DataError('is no object with "path" and "body"', where=f"{file}, line {number}") from error
        if not isinstance(path, str) or not isinstance(body, dict):
            raise DataError('has no text "path" and object "body"', where=f"{file}, line {number}")
        found.append((path, body))
    if not found:
        raise DataError("holds no request", where=file)
    return found
