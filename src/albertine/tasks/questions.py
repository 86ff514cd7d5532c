"""What a model is asked about, as rows: of a table, or of a file in a form of its task's own that `finetune`
reads, with or without the right answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from albertine.tasks.answer import Question
from albertine.tasks.choose import Choice
from albertine.tasks.datasets.answer import is_tree, squad_file
from albertine.tasks.datasets.choose import dialogues, race_folder
from albertine.tasks.datasets.entities import own_conll
from albertine.tasks.datasets.written import webqa_file
from albertine.tasks.family import Family, Fields
from albertine.tasks.generate import Read
from albertine.tasks.readers.conll import spaced
from albertine.tasks.readers.table import Header, Row, Source, first_fields, form_of, rows_of


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
    RACE, and CoNLL; and the columns that hold the question.

    Args:
        fields: by default the usual ones; a file of another form gives its rows columns of these names.
        header, encoding, prefix: as in `rows_of`.
    """
    fields = fields or family.fields
    read = _reader(Path(source), family, fields, encoding, prefix) if isinstance(source, str | Path) else None
    if read is not None:
        named = fields if family.task == "tag" else replace(fields, pair=fields.pair or "question")
        return (_row(n, example, named) for n, example in enumerate(read(Path(source)))), named
    rows = rows_of(source, header=header, encoding=encoding, prefix=prefix)
    return (_in_one(fields.text, row) for row in rows) if family.task == "tag" else rows, fields


def _reader(
    path: Path, family: Family, fields: Fields, encoding: str, prefix: str
) -> Callable[[Path], Iterator[Any]] | None:
    """What reads a file that is no table."""
    form, reads = form_of(path), isinstance(family, Read)
    if family.task == "choose" and path.is_dir():
        return race_folder
    if family.task == "tag" and form == "tsv" and ".tsv" not in path.suffixes:
        return partial(own_conll, encoding=encoding)
    if form != "json" or not (reads or family.task in ("answer", "choose")):
        return None
    first = first_fields(path, encoding, prefix)
    if family.task == "choose":
        return dialogues if first is None else None
    if reads and first is not None and "evidences" in first:
        return partial(webqa_file, encoding=encoding, prefix=prefix)
    tree = first is None or ("data" in first and is_tree(first, fields.text, fields.pair))
    return squad_file if tree else None


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
    words = row.fields.get(column)
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        return row
    return replace(row, fields={**row.fields, column: spaced(words)[0]})
