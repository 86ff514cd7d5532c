"""What a model is asked about, as rows: of a table, or of a file in a form of its task's own that `finetune`
reads, with or without the right answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from albertine.tasks.answer import Question
from albertine.tasks.datasets.entities import words_of
from albertine.tasks.families import KINDS
from albertine.tasks.family import Family, Fields
from albertine.tasks.kind_settings import TaskChoice
from albertine.tasks.multiple_choice import Choice
from albertine.tasks.readers.conll import spaced
from albertine.tasks.readers.table import Header, Row, Source, rows_of


def rows_to_ask(
    source: Source,
    family: Family,
    fields: Fields | None = None,
    *,
    header: Header = True,
    encoding: str = "utf-8",
    prefix: str = "",
) -> tuple[Iterator[Row], Fields]:
    """The rows of a table, or of SQuAD's nested JSON, WebQA, dialogues as DREAM and C3 have them, a folder of
    RACE, and CoNLL, whose files do not end in `.tsv`; and the columns that hold the question.

    Args:
        fields: by default the usual ones; a file of another form gives its rows columns of these names.
        header, encoding, prefix: as in `rows_of`.
    """
    fields, tags = fields or family.fields, family.task == "tag"
    kind = KINDS.get(family.settings.get("kind", ""), TaskChoice)
    own = None
    if isinstance(source, str | Path) and ".tsv" not in (path := Path(source)).suffixes:
        own = kind.in_own_form(path, fields, encoding, prefix)
    if own is not None:
        named = fields if tags else replace(fields, pair=fields.pair or "question")
        return (_row(n, example, named) for n, example in enumerate(own)), named
    rows = rows_of(source, header=header, encoding=encoding, prefix=prefix)
    return (_in_one(fields.text, row) for row in rows) if tags else rows, fields


def _row(number: int, example: Any, fields: Fields) -> Row:
    told: dict[str, Any] = {"id": example.name}
    if isinstance(example, Question | Choice):
        told |= {fields.pair or "": example.question, fields.text: example.passage}
    else:
        told |= {fields.text: example.text}
    if isinstance(example, Choice):
        told[fields.options] = list(example.options)
    return Row(told, example.where, number)


def _in_one(column: str, row: Row) -> Row:
    """A row whose text is a list of words, with the text that they make."""
    words = words_of(row, column)
    return row if words is None else row._replace(fields={**row.fields, column: spaced(words)[0]})
