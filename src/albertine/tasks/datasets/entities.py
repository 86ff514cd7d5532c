"""Texts with entities: WNUT-17, CLUENER, own rows, and own files in CoNLL's format, which is WNUT's too.

CLUENER has a JSON object a line with character offsets that are inclusive at both ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from albertine.errors import DataError
from albertine.inference.tags import Entity, bio_spans, tags_of, types_of
from albertine.tasks.family import Family
from albertine.tasks.readers.conll import checked_tag, sentences, spaced
from albertine.tasks.readers.files import File
from albertine.tasks.readers.table import Row, form_of
from albertine.tasks.registry import Dataset, Split
from albertine.tasks.settings import EntitiesTask
from albertine.tasks.sources import Data, as_data, blank, check_known, fewer, files_of, read_splits, rows_in
from albertine.tasks.tag import Tag, Tagged
from albertine.text.tokenizer import Tokenizer


def own_conll(path: File, encoding: str = "utf-8") -> Iterator[Tagged]:
    """The texts of a file in CoNLL's format, with their entities if it has tags."""
    for number, found in enumerate(sentences(path, encoding)):
        yield _joined(str(number), *found)


def _joined(name: str, words: list[str], tags: Sequence[str] | None, where: str) -> Tagged:
    text, starts = spaced(words)
    if tags is None:
        return Tagged(name, text, None, where)
    spans = ((kind, starts[a], starts[b - 1] + len(words[b - 1])) for kind, a, b in bio_spans(tags))
    return Tagged(name, text, tuple(spans), where)


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


def read(dataset: Dataset, folder: Path, split: Split) -> Iterator[Tagged]:
    """The texts of a split of a data set."""
    columns = dataset.columns_of(split)
    for path in files_of(dataset, folder, split):
        if form_of(path) == "tsv":
            yield from own_conll(path, dataset.encoding)
        elif dataset.reader == "cluener":
            for row in rows_in(dataset, path, split):
                yield _checked(Tagged(row.name, row.text(columns.text), _inclusive(row), row.where))
        else:
            yield from own_entities(rows_in(dataset, path, split), columns.text, columns.label or "")


def own_entities(rows: Iterable[Row], text: str, label: str) -> Iterator[Tagged]:
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
        yield _checked(Tagged(row.name, row.text(text), entities, row.where))


def _of_words(row: Row, text: str, label: str) -> Tagged:
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


def _checked(found: Tagged) -> Tagged:
    for kind, first, end in found.entities or ():
        if not 0 <= first < end <= len(found.text):
            raise DataError(
                f"has a {kind} from character {first} to {end} in a text of {len(found.text)}",
                where=found.where,
            )
    return found


def entity_types(examples: Sequence[Tagged]) -> tuple[str, ...]:
    """The types of all entities, sorted.

    Raises:
        DataError: there is no entity at all.
    """
    types = sorted({kind for e in examples for kind in _types(e)})
    if not types:
        raise DataError("has no entities to learn from", where=examples[0].where if examples else None)
    return tuple(types)


def _types(example: Tagged) -> set[str]:
    return {kind for kind, _, _ in example.entities or ()}


def load(task: EntitiesTask, tokenizer: Tokenizer, known: Family | None = None) -> Data:
    """The data of a task of entities."""
    splits = read_splits(task, read, lambda e: e.entities, judging=known is not None)
    tags = tags_of(entity_types(splits["train"]), task.tags) if known is None else known.labels
    check_known("type", splits, _types, types_of(tags))
    splits = fewer(splits, task)
    family = Tag(tags, task.max_length, task.crf)
    encoded = {name: family.encode(found, tokenizer) for name, found in splits.items()}
    lost = {name: (blank(examples, "text"),) for name, examples in splits.items()}
    return as_data(family, encoded, task, lost)
