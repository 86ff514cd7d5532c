"""Texts with entities: WNUT-17, CLUENER, own rows, and own files in CoNLL's format, which is WNUT's too.

CLUENER has a JSON object a line with character offsets that are inclusive at both ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from albertine.errors import DataError
from albertine.inference.tags import Entity, bio_spans, tags_of, types_of
from albertine.tasks.choice import Known, TaskChoice
from albertine.tasks.examples import Example
from albertine.tasks.family import Family
from albertine.tasks.readers.conll import checked_tag, sentences, spaced
from albertine.tasks.readers.files import File
from albertine.tasks.readers.table import Row, form_of
from albertine.tasks.registry import Dataset, Split
from albertine.tasks.sources import check_known, files_of, rows_in
from albertine.tasks.tag import Tag, of_folder
from albertine.text.tokenizer import Tokenizer


def own_conll(path: File, encoding: str = "utf-8") -> Iterator[Example]:
    """The texts of a file in CoNLL's format, with their entities if it has tags."""
    for number, found in enumerate(sentences(path, encoding)):
        yield _joined(str(number), *found)


def _joined(name: str, words: list[str], tags: Sequence[str] | None, where: str) -> Example:
    text, starts = spaced(words)
    if tags is None:
        return Example(name, text, None, None, where)
    spans = ((kind, starts[a], starts[b - 1] + len(words[b - 1])) for kind, a, b in bio_spans(tags))
    return Example(name, text, None, tuple(spans), where)


def _inclusive(row: Row) -> tuple[Entity, ...] | None:
    tree = row.fields.get("label")
    if tree is None:
        return None
    try:
        return tuple(
            (kind, first, last + 1)
            for kind, names in tree.items()
            for places in names.values()
            for first, last in places
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError("`label` is not {type: {words: [[first, last]]}}", where=row.where) from error


def read(dataset: Dataset, folder: Path, split: Split) -> Iterator[Example]:
    """The texts of a split of a data set."""
    columns = dataset.columns_of(split)
    for path in files_of(dataset, folder, split):
        if form_of(path) == "tsv":
            yield from own_conll(path, dataset.encoding)
        elif dataset.reader == "cluener":
            for row in rows_in(dataset, path, split):
                yield _checked(Example(row.name, row.text(columns.text), None, _inclusive(row), row.where))
        else:
            yield from own_entities(rows_in(dataset, path, split), columns.text, columns.label or "")


def own_entities(rows: Iterable[Row], text: str, label: str) -> Iterator[Example]:
    """A user's rows: a text, and its entities as a list of [type, first character, end (exclusive)]; or a
    list of words and their tags."""
    for row in rows:
        value = row.told(label)
        if isinstance(row.get(text), list):
            yield _of_words(row, text, label)
            continue
        entities = (
            None if value is None else tuple(_entity(item, label, row) for item in _list(value, label, row))
        )
        yield _checked(Example(row.name, row.text(text), None, entities, row.where))


def _of_words(row: Row, text: str, label: str) -> Example:
    words, tags = row.get(text), row.told(label)
    if not all(isinstance(word, str) and word for word in words):
        raise DataError(f"`{text}` is a list, and not of words", where=row.where)
    if tags is None:
        return _joined(row.name, words, None, row.where)
    if not isinstance(tags, list) or len(tags) != len(words):
        raise DataError(f"`{label}` has no tag for every one of the {len(words)} words", where=row.where)
    return _joined(row.name, words, [checked_tag(str(tag), row.where) for tag in tags], row.where)


def _list(value: Any, label: str, row: Row) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"`{label}` is not a list of [type, first, end]", where=row.where)
    return value


def _entity(item: Any, label: str, row: Row) -> Entity:
    match item:
        case [str(kind), int(first), int(end)]:
            return kind, first, end
    raise DataError(f"`{label}` holds {item!r:.60}, not [type, first, end]", where=row.where)


def _checked(found: Example) -> Example:
    for kind, first, end in found.label or ():
        if not 0 <= first < end <= len(found.text):
            raise DataError(
                f"has a {kind} from character {first} to {end} in a text of {len(found.text)}",
                where=found.where,
            )
    return found


def entity_types(examples: Sequence[Example]) -> tuple[str, ...]:
    """The types of all entities, sorted.

    Raises:
        DataError: there is no entity at all.
    """
    types = sorted({kind for e in examples for kind in _types(e)})
    if not types:
        raise DataError("has no entities to learn from", where=examples[0].where if examples else None)
    return tuple(types)


def _types(example: Example) -> set[str]:
    return {kind for kind, _, _ in example.label or ()}


class EntitiesTask(TaskChoice):
    """Entities in a text."""

    kind: Literal["entities"]
    usual = ("entity_f1",)
    further = ("entity_macro_f1",)
    readers = ("cluener",)
    read: ClassVar = staticmethod(read)

    tags: Literal["bio", "bioes"] = Field(
        "bio", description="mark the first token, or also the last and an only one"
    )
    crf: bool = Field(False, description="judge and decode whole sequences of tags")

    def family(self, splits: dict[str, list[Any]], tokenizer: Tokenizer, known: Family | None) -> Family:
        tags = tags_of(entity_types(splits["train"]), self.tags) if known is None else known.labels
        check_known("type", splits, _types, types_of(tags))
        return Tag(tags, self.max_length, self.crf, self.metrics)


FAMILY = Known("tag", "tag entities", of_folder, (EntitiesTask,))
