"""Rows of a table as questions to a model, and its answers as more columns: the same for every family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
ASKED = frozenset(("id", "text", "pair", "passage", "question", "options", "label", "group"))
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
    name, text, where = row.name, row.text(fields.text), row.where
    pair = None if fields.pair is None else row.text(fields.pair)
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
            return Likeness(name, text, _needed(pair, "the second text", row), None, where)
        case "generate" if not isinstance(family, Read):
            return Wanted(name, text, pair, None, where)
        case _:
            # Passages of one name would be read together: every row is a question of its own.
            name = f"{row.number} {name}" if isinstance(family, Read) else name
            return Question(name, _needed(pair, "the question", row), text, None, where)


def _needed(pair: str | None, what: str, row: Row) -> str:
    if pair is None:
        raise DataError(f"needs a column for {what}", where=row.where, remedy="Name it: --pair COLUMN")
    return pair


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
