"""Rows of a table as questions to a model, and its answers as more columns: the same for every family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from albertine.errors import DataError
from albertine.interop.heads import Task
from albertine.tasks.answer import Question
from albertine.tasks.choose import Choice
from albertine.tasks.embed import Likeness
from albertine.tasks.examples import Example
from albertine.tasks.family import Family
from albertine.tasks.generate import Read, Wanted
from albertine.tasks.readers.table import Row
from albertine.tasks.relations import Sentence
from albertine.tasks.tag import Tagged

T = TypeVar("T")
ASKED = ("id", "text", "pair", "passage", "question", "options", "label", "group")
"""What a line of predictions tells of the question itself."""


@dataclass(frozen=True)
class Fields:
    """Which columns hold the question.

    Attributes:
        text: the text, or the passage. pair: the second text, or what is asked about the passage; None where
            there is none. options: a list of answers to choose from.
    """

    text: str = "text"
    pair: str | None = None
    options: str = "options"


USUAL: Mapping[Task, Fields] = {
    "answer": Fields("context", "question"),
    "embed": Fields("text", "pair"),
}
"""Where nothing else is said; as the files of these tasks mostly have it."""


def usual_fields(family: Family) -> Fields:
    """The columns of a family where nobody names any."""
    return USUAL["answer"] if isinstance(family, Read) else USUAL.get(family.task, Fields())


def example(family: Family, row: Row, fields: Fields) -> Any:
    """The example that a row is to a family, its answer unknown.

    Raises:
        DataError: a column is missing, or is not what it should be.
    """
    name, text, where = row.name, text_of(row, fields), row.where
    pair = None if fields.pair is None else pair_of(row, fields)
    match family.task:
        case "classify":
            return Example(name, text, pair, None, where)
        case "tag":
            return Tagged(name, text, None, where)
        case "relate":
            return Sentence(name, text, None, where)
        case "choose":
            return Choice(name, text, pair or "", _options(row, fields.options), None, where)
        case "embed":
            return Likeness(name, text, pair_of(row, fields), None, where)
        case "generate" if not isinstance(family, Read):
            return Wanted(name, text, pair, None, where)
        case _:
            # Passages of one name would be read together: every row is a question of its own.
            name = f"{row.number} {name}" if isinstance(family, Read) else name
            return Question(name, pair_of(row, fields), text, None, where)


def text_of(row: Row, fields: Fields) -> str:
    """The text, or the passage.

    Raises:
        DataError: the column is missing, or holds no text.
    """
    return _named(row, fields.text, "--text").text(fields.text)


def pair_of(row: Row, fields: Fields) -> str:
    """The second text, or the question. Raises as `text_of`, also where no column is named."""
    if fields.pair is None:
        remedy = "Name it: --pair COLUMN"
        raise DataError("needs a column for the second text or the question", where=row.where, remedy=remedy)
    return _named(row, fields.pair, "--pair").text(fields.pair)


def _named(row: Row, column: str, option: str) -> Row:
    """A row that says which option names a column, where it lacks it."""
    if column in row.fields:
        return row
    headless = "; or --no-header, if its first line is a row" if "header" in (row.advice or "") else ""
    return replace(row, advice=f"Name it: {option} COLUMN{headless}")


def _options(row: Row, column: str) -> tuple[str, ...]:
    value = row.get(column)
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(v, str) for v in value):
        raise DataError(
            f"`{column}` is not a list of two texts or more",
            where=row.where,
            remedy="Give the options as a list, in JSON lines or Parquet",
        )
    return tuple(value)


def answer_columns(line: Mapping[str, Any], top: int) -> dict[str, Any]:
    """What a line of predictions says beyond the question: `prediction`, and how sure the model is.

    Args:
        top: also the likeliest classes, options or spans, so many.
    """
    told = {name: value for name, value in line.items() if name not in ASKED}
    chances, spans = told.pop("probabilities", None), told.pop("spans", None)
    if chances is not None:
        several = isinstance(told["prediction"], list)
        if not several:
            told["probability"] = chances[told["prediction"]]
        if top or several:
            named = chances.items() if isinstance(chances, Mapping) else enumerate(chances)
            best = sorted(named, key=lambda item: -item[1])
            told["probabilities"] = {str(name): p for name, p in best[: top or None]}
    if spans is not None:
        begin, end, probability = spans[0] if spans and told["prediction"] else (None, None, None)
        told |= {"begin": begin, "end": end, "probability": probability}
        if top:
            told["spans"] = spans[:top]
    return told


def chunks(items: Iterable[T], size: int) -> Iterator[Sequence[T]]:
    """Runs of `size` items, the last shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
