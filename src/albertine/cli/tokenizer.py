"""`albertine tokenizer`: train a vocabulary, look into one, see what it makes of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from albertine.cli import show


def register(app: typer.Typer) -> None:
    """Add the verb to the command table."""
    group = typer.Typer(help="Train a vocabulary, or look into one.", no_args_is_help=True)
    group.command("encode")(encode)
    group.command("inspect")(inspect)
    app.add_typer(group, name="tokenizer")


Vocabulary = Annotated[
    Path, typer.Argument(metavar="TOKENIZER", help="Model folder, spiece.model or vocab.txt.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def encode(
    tokenizer: Vocabulary,
    text: Annotated[str, typer.Argument(help="A text.")],
    pair: Annotated[str | None, typer.Argument(help="Its second segment.")] = None,
    json: Json = False,
) -> None:
    """The pieces, ids and segments that a model would be given for a text or a pair."""
    import albertine

    loaded = albertine.load_tokenizer(tokenizer)
    encoded = loaded(text, pair)
    pieces = [loaded.id_to_piece(i) for i in encoded["input_ids"]]
    if json:
        show.as_json({"pieces": pieces, **encoded})
    else:
        rows = list(zip(pieces, encoded["input_ids"], encoded["token_type_ids"], strict=True))
        show.table(("piece", "id", "segment"), rows)


def inspect(
    tokenizer: Vocabulary,
    text: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="Text to measure the vocabulary on.")
    ] = None,
    json: Json = False,
) -> None:
    """Kind, size and special pieces of a vocabulary, and how well it fits a text."""
    import albertine

    loaded = albertine.load_tokenizer(tokenizer)
    special = {i: loaded.id_to_piece(i) for i in sorted(loaded.special_ids)}
    facts: dict[str, object] = {
        "kind": loaded.kind,
        "pieces": loaded.vocab_size,
        "special": ", ".join(f"{piece} {i}" for i, piece in special.items()),
        "fingerprint": loaded.fingerprint,
    }
    if text:
        from albertine.cli.checkup import fit_of

        facts |= fit_of(loaded, text)
    show.as_json(facts) if json else show.facts(str(tokenizer), facts)
