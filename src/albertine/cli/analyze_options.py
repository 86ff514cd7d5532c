"""Options and texts that the commands of `albertine analyze` share."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from albertine.cli import show
from albertine.cli.inputs import check_decoded, check_texts, lines

Plot = Annotated[Path | None, typer.Option("--plot", help="Also draw it into this PNG or SVG.")]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", help="Also write a report with figures into this HTML file, which needs no other."
    ),
]
TextFiles = Annotated[
    list[Path] | None,
    typer.Option("--texts", help="Files or folders of text, a text for each paragraph; may be repeated."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Most texts; the first are taken.")]
MaxLength = Annotated[
    int, typer.Option("--max-length", min=3, help="Tokens of a text; the rest is left out.")
]


def check_outputs(plot: Path | None, html: Path | None) -> None:
    """Check the files to write before anything is computed.

    Raises:
        SettingsError: one has another ending, or cannot be written. RunError: matplotlib is not installed.
    """
    from albertine.analysis.html_report import check_page
    from albertine.analysis.plots import check_matplotlib, check_picture

    if plot is not None:
        check_picture(plot)
    if html is not None:
        check_page(html)
        check_matplotlib()


def models_and_texts(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The models among the words of a command, which come first, and the texts after them. A text has spaces
    or Chinese characters, and is no path: it does not exist, and neither does its part before the first
    slash.

    Raises:
        typer.BadParameter: there is no model. DataError: a word is not UTF-8. ModelError: a word after the
            first is neither a text nor a model.
    """
    from albertine.core.released import model_name_help
    from albertine.errors import ModelError
    from albertine.interop.model_names import identify
    from albertine.text.sentences import detect_language

    check_decoded(words)
    count = 0
    for word in words:
        reads = " " in word.strip() or detect_language(word) == "zh"
        if not word.strip() or (reads and not _is_path(word)):
            break
        count += 1
    if not count:
        raise typer.BadParameter("name a model before the texts", param_hint="MODEL")
    for word in words[1:count]:
        if identify(word).kind is None:
            remedy = f"{model_name_help(word)}. If it is a text, give it by --texts FILE or standard input"
            raise ModelError("is neither a folder nor a released model", where=word, remedy=remedy)
    return list(dict.fromkeys(words[:count])), list(words[count:])


def _is_path(word: str) -> bool:
    """Whether a word exists as a path, or the part before its first slash does."""
    path = os.path.expanduser(word)
    first, slash, _ = path.partition("/")
    return os.path.exists(path) or (bool(slash) and os.path.exists(first or "/"))


def given_texts(texts: Sequence[str], files: Sequence[Path] | None, limit: int) -> list[str]:
    """Texts of the command line and of files; without any, the lines of standard input; at most `limit`.

    Raises:
        DataError: a file cannot be read. typer.BadParameter: there is no text.
    """
    check_texts(texts)
    found = [text for text in texts if text.strip()]
    if files:
        from albertine.core.files import user_path
        from albertine.text.documents import read_documents

        paths = [user_path(path) for path in files]
        paragraphs = (text for document in read_documents(paths) for text in document.paragraphs)
        found += islice(paragraphs, max(0, limit - len(found)))
    elif not texts:
        found += islice(lines(), limit)
    if not found:
        raise typer.BadParameter("give a text, --texts FILE, or pipe lines in", param_hint="TEXT")
    return found[:limit]


def one_text(text: str | None) -> str:
    """The text of the command line; without one, standard input.

    Raises:
        typer.BadParameter: there is no text. DataError: it is not UTF-8.
    """
    check_texts(text)
    given = "\n".join(lines()) if text is None else text
    if not given.strip():
        raise typer.BadParameter("give a text, or pipe one in", param_hint="TEXT")
    return given


def note_missing_fonts(plot: Path, tokens: Sequence[str]) -> None:
    """Say on standard error where a figure shows an ellipsis in place of tokens, because no font of this
    machine has them."""
    from albertine.analysis.plots import shown

    if any(shown(token, plot) != token for token in tokens):
        show.notes([f"{plot}: no font of this machine has some of the characters, and an SVG shows them"])
