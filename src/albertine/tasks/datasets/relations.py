"""Texts with relations: DuIE 1.0, and own JSON lines.

DuIE has a JSON object a line with its triples in `spo_list`, and its schemas in a separate file. Several
schemas may have one predicate (50 schemas have 49), and their entity types do not count in the score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from albertine.errors import DataError
from albertine.evaluation.entities import Triple
from albertine.tasks.dataset_files import Lost, alike, all_rows, check_known
from albertine.tasks.dataset_registry import Columns, Dataset, Split
from albertine.tasks.encoded import Encoded
from albertine.tasks.examples import Example
from albertine.tasks.family import Family
from albertine.tasks.kind_settings import Examples, Registration, TaskCard, TaskChoice
from albertine.tasks.readers.files import NotThere, find, parsed, text_lines
from albertine.tasks.readers.table import Row
from albertine.tasks.readers.values import nested
from albertine.tasks.relate import Relate, of_folder
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.tasks.http.relate import RelateHttp

SCHEMAS = "all_50_schemas"
FORMS = (
    "A triple is [subject, predicate, object], three texts, or as DuIE has it "
    '{"subject": …, "predicate": …, "object": …}'
)
"""The forms of a triple in a file, for messages."""


def read(dataset: Dataset, folder: Path, split: Split) -> Iterator[Example]:
    """The texts of a split of a data set."""
    columns = dataset.columns_of(split)
    for row in all_rows(dataset, folder, split):
        yield _sentence(row, columns)


def _sentence(row: Row, columns: Columns) -> Example:
    text, label = row.text(columns.text), columns.label or ""
    value = nested(row.value_or_none(label), row.where)
    if not text.strip():
        raise DataError(f"`{columns.text}` is empty", where=row.where, remedy="Leave the line out")
    if value is not None and not isinstance(value, list):
        raise DataError(f"`{label}` is not a list of triples", where=row.where, remedy=FORMS)
    triples = None if value is None else tuple(_triple(item, label, row.where) for item in value)
    return Example(row.named(columns.id), text, None, triples, row.where)


def _triple(item: Any, label: str, where: str) -> Triple:
    match item:
        case [str(subject), str(predicate), str(thing)]:
            pass
        case {"subject": str(subject), "predicate": str(predicate), "object": str(thing)}:
            pass
        case _:
            raise DataError(f"`{label}` holds {item!r:.80}", where=where, remedy=FORMS)
    if not predicate.strip():
        raise DataError(f"`{label}` holds a triple without a predicate", where=where, remedy=FORMS)
    return subject, predicate, thing


def predicate_names(
    train: Sequence[Example], folder: Path | None, encoding: str = "utf-8"
) -> tuple[str, ...]:
    """The predicates in the order of their numbers: those of the schemas if the folder has them, else those
    of the training file, sorted.

    Raises:
        DataError: there are no predicates.
    """
    found = sorted(predicate for e in train for predicate in predicates_of(e))
    if folder is not None:
        with suppress(NotThere):
            schemas = text_lines(find(folder, SCHEMAS), encoding)
            found = [_predicate(line, where) for where, line in schemas if line.strip()]
    if not found:
        raise DataError(
            "has no relations to learn from",
            where=train[0].where if train else folder,
            remedy="task.label names the field of the triples",
        )
    return tuple(dict.fromkeys(found))


def _predicate(line: str, where: str) -> str:
    match parsed(line.encode(), where):
        case {"predicate": str(name)}:
            return name
    raise DataError("is not a schema", where=where, remedy='A schema is {"predicate": …}, an object a line')


def predicates_of(example: Example) -> set[str]:
    """The predicates of the triples of an example."""
    return {predicate for _, predicate, _ in example.label or ()}


class RelationsTask(TaskChoice):
    """Relations between names in a text."""

    kind: Literal["relations"]
    default_metrics = ("triple_f1", "triple_precision", "triple_recall")
    paired = False
    read: ClassVar = staticmethod(read)

    def input_files(self) -> Iterator[Path]:
        yield from super().input_files()
        if self.dataset is not None:
            yield from self._files_named(SCHEMAS)

    def family(self, splits: dict[str, list[Any]], tokenizer: Tokenizer, known: Family | None) -> Family:
        place = None if self.dataset is None else self.place
        encoding = self.data.encoding
        predicates = predicate_names(splits["train"], place, encoding) if known is None else known.labels
        check_known("predicate", splits, predicates_of, predicates)
        if isinstance(known, Relate):
            return replace(known, max_length=self.max_length, metrics=self.metrics)
        return Relate(predicates, self.max_length, metrics=self.metrics)

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        if split == "train" and not encoded.examples:
            why = "".join(f"; {count:,} {what}" for count, what in encoded.lost)
            raise DataError(f"has no triple to learn from{why}", where=kept[0].where)
        names = {name for example in kept for name in predicates_of(example)} if split == "train" else ()
        return [*alike(names, "predicates"), *encoded.lost]


def http_task() -> type[RelateHttp]:
    """The HTTP interface, imported by the server alone."""
    from albertine.tasks.http.relate import RelateHttp

    return RelateHttp


CARD = TaskCard(call=lambda config: 'relate("a text")')
FAMILY = Registration("relate", "find relations", of_folder, (RelationsTask,), http_task, CARD)
