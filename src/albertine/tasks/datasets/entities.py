"""Texts with entities: WNUT-17, CLUENER, own rows, and own files in CoNLL's format, which is WNUT's too.

CLUENER has a JSON object a line with character offsets that are inclusive at both ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from albertine.errors import DataError
from albertine.inference.tags import Entity, bio_spans, tags_of, types_of
from albertine.tasks.dataset_files import Data, Lost, alike, check_known, files_of, rows_in
from albertine.tasks.dataset_registry import Columns, Dataset, Split
from albertine.tasks.encoded import Encoded
from albertine.tasks.examples import Example
from albertine.tasks.family import Family, Fields
from albertine.tasks.kind_settings import Examples, Registration, TaskCard, TaskChoice
from albertine.tasks.readers.conll import TagForms, sentences, spaced
from albertine.tasks.readers.files import File, text_lines
from albertine.tasks.readers.table import Row, form_of
from albertine.tasks.readers.values import nested, whole_number
from albertine.tasks.tag import Tag, of_folder, windows_to_learn
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.tasks.http.tag import TagHttp
    from albertine.tasks.padded import PaddedTags


def in_own_form(
    path: File, columns: Columns | Fields, encoding: str, prefix: str
) -> Iterator[Example] | None:
    """The texts of a file in CoNLL's format, with their entities if it has tags; None: it is a table."""
    if form_of(path) != "tsv" or _is_table(path, columns, encoding, prefix):
        return None
    return (_joined(str(number), *found) for number, found in enumerate(sentences(path, encoding, prefix)))


def _is_table(path: File, columns: Columns | Fields, encoding: str, prefix: str) -> bool:
    """Whether a file is a table with a header and a list of entities in its first row, as `predict` writes
    it, and not in CoNLL's format."""
    if isinstance(path, Path) and not path.is_file():  # a pipe can be read once
        return False
    label = getattr(columns, "label", None)
    first, second = (
        [line.split("\t") for _, line in islice(text_lines(path, encoding, prefix), 2)] + [[]] * 2
    )[:2]
    if label not in first or columns.text not in first or len(first) != len(second):
        return False
    return second[first.index(label)].lstrip('" ').startswith("[")


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
        if (own := in_own_form(path, columns, dataset.encoding, "task.")) is not None:
            yield from own
        elif dataset.reader == "cluener":
            for row in rows_in(dataset, path, split):
                name, text = row.named(columns.id), row.text(columns.text)
                yield _checked(Example(name, text, None, _inclusive(row), row.where))
        else:
            yield from _own_entities(rows_in(dataset, path, split), columns)


def _own_entities(rows: Iterable[Row], columns: Columns) -> Iterator[Example]:
    """A user's rows: a text, and its entities as a list of [type, first character, end (exclusive)], or as
    doccano and spaCy write them, the type last; or a list of words and their tags."""
    label, forms = columns.label or "", TagForms()
    for row in rows:
        name, value = row.named(columns.id), nested(row.value_or_none(label), row.where)
        words = words_of(row, columns.text, tagged=_is_list_of_texts(value))
        if words is None:
            text = row.text(columns.text)
            entities = None if value is None else _entities(value, label, text, row.where)
            yield _checked(Example(name, text, None, entities, row.where))
        else:
            tags = None if value is None else _tags(value, label, len(words), row.where, forms)
            yield _joined(name, words, tags, row.where)


def words_of(row: Row, column: str, *, tagged: bool = False) -> list[str] | None:
    """The words of a row whose text is a list of words; else None. Text in the notation of a list (JSON or
    Python) is parsed only in cells of CSV and TSV: elsewhere offsets refer to the text as it is.

    Args:
        tagged: the row has a tag for every word, so that such text is always parsed.

    Raises:
        DataError: it is a list of something else, or a word is empty.
    """
    words = row.fields.get(column)
    if isinstance(words, str) and (row.cells or tagged) and _QUOTED.match(words):
        found = nested(words, row.where)
        words = found if _is_list_of_texts(found) else None
    if not isinstance(words, list):
        return None
    if not _is_list_of_texts(words):
        raise DataError(f"`{column}` is a list, not text, and not of words", where=row.where)
    if "" in words:
        raise DataError(
            f"`{column}` has an empty word at place {words.index('')}, counted from 0",
            where=row.where,
            remedy="Leave it out, and its tag",
        )
    return words


_QUOTED = re.compile(r"\s*\[\s*['\"]")


def _is_list_of_texts(words: Any) -> bool:
    return isinstance(words, list) and bool(words) and all(isinstance(word, str) for word in words)


def _tags(value: Any, label: str, count: int, where: str, forms: TagForms) -> list[str]:
    if not isinstance(value, list) or len(value) != count:
        raise DataError(f"`{label}` has no tag for every one of the {count} words", where=where)
    return [forms.checked(str(tag), where) for tag in value]


FORMS = (
    'An entity is [type, first character, end], such as ["PER", 0, 4], with whole numbers, the end exclusive'
)


def _entities(value: Any, label: str, text: str, where: str) -> tuple[Entity, ...]:
    if not isinstance(value, list):
        raise DataError(f"`{label}` is not a list of [type, first, end]", where=where, remedy=FORMS)
    if value and all(isinstance(item, str) for item in value):
        raise DataError(
            f"`{label}` has tags of words, and the text is not a list of words",
            where=where,
            remedy="Give the words as a list too; `predict tag` writes them joined into a text",
        )
    return tuple(_entity(item, label, text, where) for item in value)


def _entity(item: Any, label: str, text: str, where: str) -> Entity:
    match item:
        case [str(kind), first, end] | [first, end, str(kind)] | [str(kind), first, end, str()]:
            begin, stop = whole_number(first), whole_number(end)
            if begin is not None and stop is not None:
                if len(item) == 4 and text[begin:stop] != item[3]:
                    raise DataError(
                        f"`{label}` holds {item!r:.60}, and the text has `{text[begin:stop]:.60}` there",
                        where=where,
                        remedy="Leave the words out, or correct the offsets",
                    )
                return kind, begin, stop
    raise DataError(f"`{label}` holds {item!r:.60}, not [type, first, end]", where=where, remedy=FORMS)


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
        DataError: there is no entity.
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
    default_metrics = ("entity_f1",)
    other_metrics = ("entity_macro_f1",)
    readers = ("cluener",)
    paired = False
    read: ClassVar = staticmethod(read)
    in_own_form: ClassVar = staticmethod(in_own_form)

    tags: Literal["bio", "bioes"] = Field(
        "bio", description="mark the first token, or also the last and an only one"
    )
    crf: bool = Field(False, description="judge and decode whole sequences of tags")

    @staticmethod
    def table_row(row: Row, fields: Fields) -> Row:
        """A row whose list of words, if it has one, is joined to a text."""
        words = words_of(row, fields.text)
        return row if words is None else row._replace(fields={**row.fields, fields.text: spaced(words)[0]})

    def family(self, splits: dict[str, list[Any]], tokenizer: Tokenizer, known: Family | None) -> Family:
        tags = tags_of(entity_types(splits["train"]), self.tags) if known is None else known.labels
        check_known("type", splits, _types, types_of(tags))
        return Tag(tags, self.max_length, self.crf, self.metrics)

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        if split == "train" and encoded.lost and not any(text.found for text in encoded.examples):
            why = "; ".join(f"{count:,} {what}" for count, what in encoded.lost)
            raise DataError(
                f"has no entity that the tags of tokens can name: {why}",
                where=kept[0].where,
                remedy="A token has one tag: keep one of entities that overlap, and let entities begin and "
                "end where tokens do",
            )
        names = {name for example in kept for name in _types(example)} if split == "train" else ()
        yield from alike(names, "types")
        yield from super().lost(read, kept, encoded, split)
        yield from encoded.lost
        long = sum(len(text.windows) > 1 for text in encoded.examples)
        yield long, f"longer than {self.max_length} tokens, read in windows that overlap"

    def load(self, tokenizer: Tokenizer, known: Family | None = None) -> Data:
        """As `TaskChoice.load`; training examples are windows of texts."""
        data = super().load(tokenizer, known)
        return data if known else replace(data, train=windows_to_learn(data.train))


def http_task() -> type[TagHttp]:
    """The HTTP interface, imported by the server alone."""
    from albertine.tasks.http.tag import TagHttp

    return TagHttp


def padded_task() -> type[PaddedTags]:
    """The call with padded batches, which imports torch."""
    from albertine.tasks.padded import PaddedTags

    return PaddedTags


CARD = TaskCard("token-classification", lambda config: 'tag("a text")')
FAMILY = Registration("tag", "tag entities", of_folder, (EntitiesTask,), http_task, CARD, padded_task)
