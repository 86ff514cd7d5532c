"""`albertine prepare`: text to a corpus folder, with a vocabulary of its own or a given one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.options import (
    Encoding,
    Json,
    LanguageOption,
    TextField,
    TextFormat,
    VocabularyKind,
    WordEnd,
)

if TYPE_CHECKING:
    from albertine.corpus.manifest import Manifest
    from albertine.corpus.source import Source
    from albertine.text.documents import FileReport

MOST_LISTED = 8
FEW_SENTENCES = 2.0


def prepare(
    text: Annotated[list[Path], typer.Argument(metavar="TEXT...", help="Files and folders of text.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Corpus folder.")],
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer",
            "-t",
            help="File of a vocabulary, or a model that has one: a folder, a run, a released model, or "
            "owner/name[@revision] of the hub; default: train one.",
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option("--vocab-size", min=16, help="Pieces of a new vocabulary; default: what fits the text."),
    ] = None,
    kind: Annotated[
        VocabularyKind | None,
        typer.Option(
            "--kind", help="Kind of a new vocabulary; default: sentencepiece, for Chinese wordpiece."
        ),
    ] = None,
    language: LanguageOption = "auto",
    words: Annotated[
        WordEnd,
        typer.Option(
            "--words",
            help="Words for whole-word masking: by the tokens of the "
            "vocabulary, in Chinese characters, or cut by jieba.",
        ),
    ] = "pieces",
    format: TextFormat = "auto",
    text_field: TextField = "text",
    encoding: Encoding = "utf-8",
    held_out: Annotated[
        float | None,
        typer.Option(
            "--held-out",
            help="Share of the documents that is held out; default: that of the corpus in the folder, else "
            "0.01, and more of few documents.",
        ),
    ] = None,
    min_characters: Annotated[
        int, typer.Option("--min-characters", min=0, help="Documents of fewer characters are dropped.")
    ] = 200,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep documents that occur again.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes that prepare; default: one a processor.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which documents are held out.")] = 1,
    json: Json = False,
) -> None:
    """Make a corpus of text: sentences, tokens, held-out documents."""
    from albertine import load_tokenizer
    from albertine.corpus.build import build_corpus
    from albertine.corpus.source import Source

    source = Source(text, format, text_field, encoding)
    manifest = build_corpus(
        source,
        output,
        tokenizer=load_tokenizer(tokenizer) if tokenizer is not None else None,
        kind=kind,
        vocab_size=vocab_size,
        language=language,
        held_out=held_out,
        workers=workers,
        min_characters=min_characters,
        deduplicate=not keep_duplicates,
        words=words,
        seed=seed,
        progress=show.progress,
    )
    _print_summary(output, manifest, source, json)


def _print_summary(output: Path, manifest: Manifest, source: Source, json: bool) -> None:
    from albertine.pretraining.model_costs import corpus_facts

    facts = corpus_facts(manifest)
    read = source.files_read()
    if json:
        show.as_json(facts | {"formats": _formats(read), "passed_over": source.passed_over()})
        return
    if not read:
        typer.echo("Already prepared, and younger than its text: nothing was done")
    elif len(read) > MOST_LISTED:
        formats = ", ".join(f"{number:,} {name}" for name, number in _formats(read).items())
        typer.echo(f"{len(read):,} files read: {formats}")
    else:
        for report in read:
            typer.echo(f"{report.source}: read as {report.format}, {report.reason}")
    show.facts(f"Corpus {output}", facts)
    show.notes([*source.passed_over(), *_warnings(manifest, read)])


def _formats(files: list[FileReport]) -> dict[str, int]:
    from collections import Counter

    return dict(Counter(report.format for report in files).most_common())


def _warnings(manifest: Manifest, read: list[FileReport]) -> list[str]:
    """What is no error yet, but will disappoint later."""
    found = []
    if narrow := [report for report in read if report.narrow]:
        more = f" and {len(narrow) - 1:,} more" if len(narrow) > 1 else ""
        found.append(
            f"the lines of {narrow[0].source}{more} look hard-wrapped, at {narrow[0].narrow} columns, and "
            "each was taken for a paragraph. If they are, pass --format book"
        )
    if not manifest.count("documents", "heldout"):
        found.append(
            "no document fell to the held-out part, and pretraining needs some to judge itself. "
            "Cut the text into more documents (--format lines, if a line is a sentence and a blank line ends "
            "a document), or give a larger --held-out share and another --output"
        )
    if manifest.sentences < FEW_SENTENCES * manifest.documents:
        found.append(
            "most documents are a single sentence, so there are few sentence pairs. "
            "Check --format, or pretrain with objective.pairs=none"
        )
    return found
