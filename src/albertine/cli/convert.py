"""`albertine convert`: read a model folder, write it as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

VOCABULARIES = ("spiece.model", "vocab.txt", "tokenizer.json")
TASK_KEYS = ("architectures", "id2label", "label2id", "problem_type")


def register(app: typer.Typer) -> None:
    """Add the verb to the command table."""
    app.command("convert")(convert)


def convert(
    source: Annotated[Path, typer.Argument(metavar="FROM", help="Model folder to read.")],
    target: Annotated[
        Path, typer.Argument(metavar="TO", help="Folder to write; new, or a model folder to replace.")
    ],
) -> None:
    """Write a model as the config.json, model.safetensors and tokenizer files that transformers loads."""
    import albertine
    from albertine.errors import ModelError
    from albertine.interop.huggingface import read_folder, save_model

    if source.resolve() == target.resolve():
        raise ModelError("is both read and written", where=source, remedy="Name another folder to write")
    found = read_folder(source)
    # A damaged tokenizer must not pass for an absent one.
    has_tokenizer = any((source / name).exists() for name in VOCABULARIES)
    tokenizer = albertine.load_tokenizer(source) if has_tokenizer else None
    task = {key: found.config[key] for key in TASK_KEYS if found.extra and key in found.config}
    save_model(found.model, tokenizer, target, extra_tensors=found.extra, extra_config=task)
    typer.echo(
        f"{target}: written, {'with its tokenizer' if tokenizer else 'without a tokenizer, as it had none'}"
    )
