"""`albertine prune`: a model with the pieces that a text needs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.options import Encoding, Json, LanguageOption, TextField, TextFormat

if TYPE_CHECKING:
    from albertine.corpus.source import Source
    from albertine.inference.pruning import Pruned


def prune(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Model or run folder, released model, or OWNER/NAME[@REVISION] of the hub."
        ),
    ],
    text: Annotated[
        list[Path],
        typer.Argument(
            metavar="TEXT...",
            help="What its pieces are to be good for: files and folders of text, or one corpus that was "
            "prepared with the model's tokenizer.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the smaller model.")],
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="How many pieces stay, the most frequent ones.")
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            "--coverage",
            min=0,
            max=1,
            help="Share of the text's tokens that stay what they are; default: 1, every piece of the text.",
        ),
    ] = None,
    language: LanguageOption = "auto",
    format: TextFormat = "auto",
    text_field: TextField = "text",
    encoding: Encoding = "utf-8",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that count; default: one a processor.")
    ] = None,
    json: Json = False,
) -> None:
    """Leave out the tokens that a text does not need.

    Their rows in the model go with them. Special pieces stay, and every character by which a piece of the
    text can be spelled. What has only pieces that stay is cut and encoded exactly as before; how much of the
    text that is, is printed. A command that was stopped continues."""
    from albertine.corpus.manifest import MANIFEST_FILE
    from albertine.corpus.source import Source
    from albertine.errors import SettingsError
    from albertine.inference.pruning import prune as run
    from albertine.interop.model_names import check_separate, model_folder

    if keep is not None and coverage is not None:
        raise SettingsError("--keep and --coverage both set how many tokens stay", remedy="Give one of them")
    source = model_folder(model)
    check_separate(source, output)
    given = Source(text, format, text_field, encoding)
    named = (
        text[0] if len(text) == 1 and (text[0] / MANIFEST_FILE).is_file() else None
    )  # a corpus, and no text
    if named and (given != Source(text) or language != "auto" or workers is not None):
        raise SettingsError(
            "--language, --format, --text-field, --encoding and --workers are for text, not for a corpus",
            remedy="Leave them out, or name the text that the corpus was made of",
        )
    corpus = named or _prepared(given, source, output, language, workers)
    with show.progress("sentences") as update:
        result = run(
            source, corpus, output, keep=keep, share=1.0 if coverage is None else coverage, progress=update
        )
    if named is None:  # never a corpus that another command made, whatever its name
        shutil.rmtree(corpus)
    show.notes(given.passed_over())
    if json:
        show.as_json(result.as_dict())
    else:
        show.facts(f"{output}: written", _in_words(result))


def _prepared(source: Source, model: Path, output: Path, language: str, workers: int | None) -> Path:
    """A corpus of all of the text beside the output, where a command that was stopped goes on."""
    from albertine.corpus.build import build_corpus
    from albertine.tokenizers.load import load_tokenizer

    place = output.absolute()
    folder = place.with_name(f".{place.name}.corpus")  # hidden: no name that a person would give
    build_corpus(
        source,
        folder,
        tokenizer=load_tokenizer(model),
        language=language,
        held_out=0.0,
        progress=show.progress,
        workers=workers,
        min_characters=0,
        deduplicate=False,
    )
    return folder


def _in_words(result: Pruned) -> dict[str, object]:
    loss = result.coverage
    (pieces, fewer), (parameters, less) = result.pieces, result.parameters
    return {
        "pieces": f"{fewer:,} of {pieces:,}",
        "parameters": f"{less:,} of {parameters:,} ({less / parameters:.1%})",
        "tokens kept": f"{loss.tokens_kept / max(1, loss.tokens):.3%} of {loss.tokens:,}",
        "sentences cut anew": f"{loss.sentences_changed / max(1, loss.sentences):.2%} of {loss.sentences:,}",
        "tokens now": f"{loss.tokens_after:,} ({loss.tokens_after / max(1, loss.tokens) - 1:+.2%})",
        "unknown": f"{loss.unknown_after / max(1, loss.tokens_after):.4%} of the tokens, "
        f"before {loss.unknown / max(1, loss.tokens):.4%}",
        **(
            {"left out": f"{', '.join(result.left_out)}, a head not computed here"} if result.left_out else {}
        ),
    }
