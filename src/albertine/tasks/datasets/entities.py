"""Texts with entities: WNUT-17, CLUENER, and own JSON lines.

WNUT-17 has a word and its tag a line, a blank line between texts; the words are joined by spaces. CLUENER
has a JSON object a line with character offsets that are inclusive at both ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from albertine.errors import DataError
from albertine.inference.tags import Entity, bio_spans, tags_of
from albertine.tasks.readers.files import TaskSet, find, text_lines
from albertine.tasks.readers.table import Row, rows_of
from albertine.tasks.settings import TaskChoice
from albertine.tasks.sources import Data, as_data, blank, fewer, read_splits
from albertine.tasks.tag import Tag, Tagged
from albertine.text.tokenizer import Tokenizer


def _conll(names: Mapping[str, str]) -> TaskSet[Tagged]:
    def read(folder: Path, split: str) -> Iterator[Tagged]:
        words: list[str] = []
        tags: list[str] = []
        number, path = 0, find(folder, names[split])
        for where, line in [*text_lines(path), ("", "")]:
            if line.strip():
                word, _, tag = line.rstrip().rpartition("\t")
                if not word:
                    raise DataError("is not a word, a tab and a tag", where=where)
                words.append(word)
                tags.append(tag)
            elif words:
                yield _joined(str(number), words, tags, str(path))
                number, words, tags = number + 1, [], []

    return TaskSet(read, tuple(names))


def _joined(name: str, words: Sequence[str], tags: Sequence[str], where: str) -> Tagged:
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word) + 1)
    spans = ((kind, starts[a], starts[b - 1] + len(words[b - 1])) for kind, a, b in bio_spans(tags))
    return Tagged(name, " ".join(words), tuple(spans), where)


def _cluener() -> TaskSet[Tagged]:
    def read(folder: Path, split: str) -> Iterator[Tagged]:
        for number, row in enumerate(rows_of(find(folder, f"{split}.json"))):
            yield _checked(
                Tagged(str(row.fields.get("id", number)), row.text("text"), _inclusive(row), row.where)
            )

    return TaskSet(read)


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


ENTITIES = {
    "wnut-17": _conll(
        {"train": "wnut17train.conll", "dev": "emerging.dev.conll", "test": "emerging.test.annotated"}
    ),
    "cluener": _cluener(),
}


def own_entities(path: Path, text: str, label: str, encoding: str = "utf-8") -> Iterator[Tagged]:
    """A user's JSON lines: a text, and its entities as a list of [type, first character, end (exclusive)]."""
    for number, row in enumerate(rows_of(path, encoding=encoding)):
        value = row.fields.get(label)
        entities = (
            None if value is None else tuple(_entity(item, label, row) for item in _list(value, label, row))
        )
        yield _checked(Tagged(str(row.fields.get("id", number)), row.text(text), entities, row.where))


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
    types = sorted({kind for e in examples for kind, _, _ in e.entities or ()})
    if not types:
        raise DataError("has no entities to learn from", where=examples[0].where if examples else None)
    return tuple(types)


def check_types(splits: Mapping[str, Sequence[Tagged]], types: Sequence[str]) -> None:
    """Refuse a type that the training file does not have, with its line."""
    for examples in splits.values():
        for example in examples:
            if strange := {kind for kind, _, _ in example.entities or ()} - set(types):
                raise DataError(
                    f"has the type `{sorted(strange)[0]}`, which the training file does not have",
                    where=example.where,
                    remedy=f"Known: {', '.join(types)}",
                )


def load(task: TaskChoice, tokenizer: Tokenizer) -> Data:
    """The data of a task of entities."""

    def own(path: Path) -> Iterator[Tagged]:
        return own_entities(path, task.text, task.label, task.encoding)

    splits = read_splits(task, ENTITIES, own)
    types = entity_types(splits["train"])
    check_types(splits, types)
    splits = fewer(splits, task)
    family = Tag(tags_of(types, task.tags), task.max_length, task.crf)
    encoded = {name: family.encode(found, tokenizer) for name, found in splits.items()}
    lost = {name: (blank(examples, "text"),) for name, examples in splits.items()}
    return as_data(family, encoded, task, lost)
