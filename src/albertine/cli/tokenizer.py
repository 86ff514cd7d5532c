"""`albertine tokenizer`: train a vocabulary, look into one, see what it makes of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from albertine.cli import show
from albertine.cli.inputs import check_texts
from albertine.cli.options import (
    Encoding,
    Json,
    LanguageOption,
    TextField,
    TextFormat,
    VocabularyKind,
)

Vocabulary = Annotated[
    Path, typer.Argument(metavar="TOKENIZER", help="Model by folder or name, spiece.model or vocab.txt.")
]


def encode(
    tokenizer: Vocabulary,
    text: Annotated[str, typer.Argument(help="A text.")],
    pair: Annotated[str | None, typer.Argument(help="Its second segment.")] = None,
    json: Json = False,
) -> None:
    """Show the pieces, ids and segments of a text or a pair."""
    import albertine

    check_texts(text, pair)
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
    format: TextFormat = "auto",
    text_field: TextField = "text",
    encoding: Encoding = "utf-8",
    json: Json = False,
) -> None:
    """Print kind and size of a vocabulary, and how well it fits a text."""
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
        from albertine.corpus.source import Source

        source = Source(text, format, text_field, encoding)
        facts |= fit_of(loaded, source.documents())
        show.notes(source.passed_over())
    show.as_json(facts) if json else show.facts(str(tokenizer), facts)


def train(
    text: Annotated[list[Path], typer.Argument(metavar="TEXT...", help="Files and folders of text.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the vocabulary.")],
    kind: Annotated[
        VocabularyKind | None,
        typer.Option(
            "--kind",
            help="Default: sentencepiece for English, wordpiece for Chinese; xlnet has capitals, and `<cls>` "
            "stands last.",
        ),
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option("--vocab-size", min=16, help="Pieces in all; default: what fits the text.")
    ] = None,
    language: LanguageOption = "auto",
    format: TextFormat = "auto",
    text_field: TextField = "text",
    encoding: Encoding = "utf-8",
) -> None:
    """Make a vocabulary from text.

    It is a SentencePiece, as ALBERT and XLNet have, or a WordPiece, as BERT has.
    """
    from albertine.corpus.source import Source
    from albertine.corpus.vocabulary import train_vocabulary
    from albertine.tokenizers.load import replaced_tokenizer

    source = Source(text, format, text_field, encoding)
    with replaced_tokenizer(output) as beside, show.progress("sentences read") as update:
        made = train_vocabulary(
            source,
            beside,
            source.resolve_language(language),
            kind=kind,
            vocab_size=vocab_size,
            progress=lambda number: update(number, None),
        )
    show.notes(source.passed_over())
    typer.echo(f"{output}: a {made.kind} vocabulary of {made.vocab_size:,} pieces")


GROUP = "Train a vocabulary, or look into one."
COMMANDS = (train, encode, inspect)
