"""`albertine cloze`: questions about passages out of plain text."""

from __future__ import annotations

import json as js
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from albertine.cli import show
from albertine.cli.options import Encoding, Json, LanguageOption, TextField, TextFormat

if TYPE_CHECKING:
    from albertine.corpus.duplicates import SeenDigests
    from albertine.text.documents import Document

JUDGED, MOST_JUDGED = 50, 700
"""Of so many passages one is for the dev file, and at most so many are."""


def cloze(
    text: Annotated[list[Path], typer.Argument(metavar="TEXT...", help="Files and folders of text.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for train.json and dev.json, which are replaced.")
    ],
    questions: Annotated[
        int, typer.Option("--questions", min=2, help="As many as this, if the text gives them.")
    ] = 100_000,
    language: LanguageOption = "auto",
    format: TextFormat = "auto",
    text_field: TextField = "text",
    encoding: Encoding = "utf-8",
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of the passages and of the questions.")
    ] = 1,
    json: Json = False,
) -> None:
    """Make questions about passages out of plain text.

    No annotation is needed: a question is a sentence of the passage without one of its names, dates, numbers
    or phrases. A small encoder learns from many of them to find an answer, before it learns from the few that
    people wrote: `albertine finetune --config recipes/finetune/cloze.yaml`. Documents that occur again are
    dropped, as `prepare` does, so that no passage is in both files.
    """
    from albertine.core.files import replace_durably, writable_folder
    from albertine.corpus.duplicates import SeenDigests, content_digest
    from albertine.corpus.source import Source
    from albertine.errors import DataError
    from albertine.text.cloze import cloze_questions

    source = Source(text, format, text_field, encoding)
    spoken = source.resolve_language(language)
    source.reports.clear()
    again = 0

    def first(seen: SeenDigests) -> Iterator[Document]:
        nonlocal again
        for document in source.documents():
            if seen.add(content_digest(document.paragraphs)):
                yield document
            else:
                again += 1

    with writable_folder(output), tempfile.TemporaryDirectory() as folder:
        documents = first(SeenDigests(Path(folder)))
        tree = cloze_questions(documents, spoken, count=questions, seed=seed)
        show.notes(source.passed_over())
        passages = tree["data"]
        if len(passages) < 2:
            raise DataError(
                "no two passages of this text can have questions: they have sentences of some words in "
                "paragraphs of a few hundred characters",
                where=text[0],
                remedy="Give more text, or its --language",
            )
    judged = min(MOST_JUDGED, 1 + len(passages) // JUDGED)
    summary: dict[str, Any] = {"language": spoken, "duplicates_dropped": again}
    for name, part in (("train", passages[judged:]), ("dev", passages[:judged])):
        replace_durably(
            output / f"{name}.json", js.dumps({**tree, "data": part}, ensure_ascii=False).encode("utf-8")
        )
        written = [q for article in part for passage in article["paragraphs"] for q in passage["qas"]]
        summary |= {f"{name}_questions": len(written), f"{name}_passages": len(part)}
        summary["example"] = [written[0]["question"], written[0]["answers"][0]["text"]]
    if json:
        show.as_json(summary)
        return
    question, answer = summary["example"]
    show.facts(
        f"{output}: written",
        {
            name: f"{summary[f'{name}_questions']:,} questions about {summary[f'{name}_passages']:,} passages"
            for name in ("train", "dev")
        }
        | {"duplicate documents dropped": f"{again:,}", "for example": f"{question} {answer}"},
    )
