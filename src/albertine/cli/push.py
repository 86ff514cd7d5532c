"""`albertine push`: a model folder, to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from albertine.cli import show
from albertine.cli.options import Json


def push(
    model: Annotated[
        Path, typer.Argument(metavar="FOLDER|RUN", help="Model folder, or run, whose best model is meant.")
    ],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="On the Hugging Face hub.")],
    private: Annotated[
        bool, typer.Option("--private", help="Make the repository private, if it is new.")
    ] = False,
    revision: Annotated[
        str | None,
        typer.Option("--revision", help="Branch to send it to, made if there is none; default: main."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be sent, and send nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Send a model to the Hugging Face hub.

    It is checked first: it has to load, with its tokenizer and a card that states a licence. Weights,
    tokenizer, card and scores are sent; checkpoints, logs, text and settings never are."""
    from albertine.interop.hub.upload import plan_upload, upload
    from albertine.interop.model_names import model_folder

    found = plan_upload(model_folder(model))
    if not json:
        show.table(("file", "bytes"), [(file, show.count(size)) for file, size in found.files])
        typer.echo(f"{len(found.files)} files, {show.size(found.size)}")
        if found.left:
            typer.echo(f"stays here: {', '.join(found.left)}")
    where = None if dry_run else upload(found, name, private=private, revision=revision)
    if json:
        show.as_json({"files": dict(found.files), "left": list(found.left), "sent": where})
    else:
        typer.echo(f"sent: {where}" if where else "nothing was sent (--dry-run)")
