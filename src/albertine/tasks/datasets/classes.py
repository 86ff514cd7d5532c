"""Texts and pairs with a class, several, or a score: data sets by name, and own files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from pydantic import Field

from albertine.errors import DataError, SettingsError
from albertine.interop.heads import Kind
from albertine.tasks.choice import Examples, Known, PooledTask
from albertine.tasks.classify import Classify, of_folder
from albertine.tasks.datasets.clue import LAYOUTS
from albertine.tasks.encoded import Encoded
from albertine.tasks.examples import Example
from albertine.tasks.family import Family
from albertine.tasks.readers.table import Row
from albertine.tasks.readers.values import kind_of_value, number_of
from albertine.tasks.registry import Dataset, Split
from albertine.tasks.sources import Lost, all_rows, check_known
from albertine.text.tokenizer import Tokenizer

BROKEN = "(a row of another number of fields)"
LEFT_OUT = "(a label of `left_out`)"
_WHOLE, _NUMBER = re.compile(r"-?\d+\.0+"), re.compile(r"-?\d{1,18}")
_PLACE = re.compile(r":\d+$|, row \d+$|\[\d+\]$")


def read(dataset: Dataset, folder: Path, split: Split) -> Iterator[Example]:
    """The examples of a split of a data set in its folder; one to test by may lack the column of the label.

    Raises:
        DataError: the file or a column is missing, or a value is not what it should be.
    """
    columns, layout = dataset.columns_of(split), LAYOUTS.get(dataset.layout or "")
    for row in all_rows(dataset, folder, split, broken=True):
        if dataset.ragged and not row.fields:
            yield Example(str(row.number), "", None, BROKEN, row.where)
            continue
        if layout is not None:
            row = layout(row)
        text, pair = row.text(columns.text), None if columns.pair is None else row.text(columns.pair)
        label = _label(dataset, columns.label, row, untold=split == "test")
        yield Example(row.named(columns.id), text, pair, label, row.where)


def kept(examples: Iterable[Example]) -> list[Example]:
    """The examples but for those that the authors of the data set drop."""
    return [e for e in examples if e.label not in (BROKEN, LEFT_OUT)]


def _label(
    dataset: Dataset, column: str | None, row: Row, *, untold: bool
) -> str | float | frozenset[str] | None:
    if column is None or (untold and column not in row.fields):
        return None
    value = row.get(column)
    if is_left_out(dataset, value):
        return LEFT_OUT
    if dataset.kind == "multi" and value is not None:
        parts = value if isinstance(value, list) else class_name(row, column, value).split(dataset.separator)
        names = (class_name(row, column, part) for part in parts)
        return frozenset(name for name in names if name)
    if row.told(column) is None:
        return None
    if dataset.kind == "single":
        return class_name(row, column, value)
    return number_of(row.text(column).strip(), column, row.where)


def class_name(row: Row, column: str, value: Any) -> str:
    """The name of a class from a value of a row: what JSON writes for true and false, and a whole number
    without a point, since a column of numbers with gaps has them as 1.0.

    Raises:
        DataError: the value is neither text nor a number nor true nor false.
    """
    if not isinstance(value, str | int | float):
        raise DataError(f"`{column}` is {kind_of_value(value)}, not the name of a class", where=row.where)
    return _as_name(value)


def is_left_out(dataset: Dataset, value: Any) -> bool:
    """Whether what stands in the column of the label, or of several classes there one, says that the row is
    to be dropped."""
    if not dataset.left_out or value is None:
        return False
    parts = value if isinstance(value, list) else [value]
    if dataset.kind == "multi" and isinstance(value, str):
        parts = [value, *value.split(dataset.separator)]
    return not {*map(_as_name, parts)}.isdisjoint(map(_without_point, dataset.left_out))


def _as_name(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else _without_point(str(value).strip())


def _without_point(name: str) -> str:
    return name.partition(".")[0] if _WHOLE.fullmatch(name) else name


def _as_in_rows(labels: Sequence[str]) -> tuple[str, ...]:
    """Classes that something else than rows names, such as a model that has `1.0`, as rows name them."""
    found = tuple(map(_without_point, labels))
    return found if len(set(found)) == len(labels) else tuple(labels)


def label_names(dataset: Dataset, examples: Sequence[Example]) -> tuple[str, ...]:
    """The classes in the order of their numbers: the data set's own, or those of `examples`, sorted (as
    numbers where all are)."""
    if dataset.kind == "score":
        return ()
    if dataset.labels:
        return _as_in_rows(dataset.labels)
    seen: set[str] = set()
    for example in examples:
        seen |= class_names(example)
    if len(seen) < (2 if dataset.kind == "single" else 1):
        raise DataError(
            f"has only the class `{min(seen)}`" if seen else "has no class in any row",
            where=_PLACE.sub("", examples[0].where) if examples else None,
            remedy="Check task.label: it names the column of the classes",
        )
    digits = all(map(_NUMBER.fullmatch, seen))
    return tuple(sorted(seen, key=lambda name: (int(name), name))) if digits else tuple(sorted(seen))


def class_names(example: Example) -> frozenset[str]:
    """The classes of an example; none of a score."""
    label = example.label
    if isinstance(label, frozenset):
        return label
    return frozenset({label}) if isinstance(label, str) else frozenset()


class LabelledTask(PooledTask):
    """What kinds of classes and scores share."""

    drops = True
    read: ClassVar = staticmethod(read)

    def kept(self, split: str, examples: Examples) -> Examples:
        return kept(examples)

    def family(self, splits: dict[str, list[Any]], tokenizer: Tokenizer, known: Family | None) -> Family:
        dataset, kind = self.data, cast(Kind, self.kind)
        labels = label_names(dataset, splits["train"]) if known is None else _as_in_rows(known.labels)
        check_known("class", splits, class_names, labels)
        if "f1" in dataset.metrics and "1" not in labels:
            raise SettingsError(
                "f1 counts the class `1`, and there is none", remedy="macro_f1 counts every class"
            )
        if isinstance(known, Classify):
            return replace(known, kind=kind, labels=labels, metrics=self.metrics, max_length=self.max_length)
        return Classify(kind, labels, self.metrics, self.max_length)

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        left_out = len(read) - len(self.kept(split, read))
        told = [(left_out, "left out, as its authors do"), *super().lost(read, kept, encoded, split)]
        return [*_counted(kept), *told] if split == "train" else told


def _counted(examples: Examples) -> list[Lost]:
    """How many classes there are: by that a wrong column is known, and a class written in two ways."""
    names = {name for example in examples for name in class_names(example)}
    same = len(names) - len({name.casefold() for name in names})
    return [(len(names), "classes"), (same, "of them like another but for capitals")]


class ScoreTask(LabelledTask):
    """A number."""

    kind: Literal["score"]
    usual = ("pearson", "spearman")
    further = ("mean_squared_error",)


class ClassTask(LabelledTask):
    """One class."""

    kind: Literal["single"] = "single"
    usual = ("accuracy", "macro_f1")
    further = ("f1", "matthews")


class ClassesTask(LabelledTask):
    """Any number of classes."""

    kind: Literal["multi"]
    usual = ("micro_f1",)
    further = ("accuracy",)

    separator: str = Field(",", min_length=1, description="own files: between the classes of one row")

    def kept(self, split: str, examples: Examples) -> Examples:
        """An empty cell is no class of several; where a file to test by has no other, it has no answers."""
        found = super().kept(split, examples)
        if split != "test" or any(example.label for example in found):
            return found
        return [replace(example, label=None) for example in found]


FAMILY = Known("classify", "classify texts", of_folder, (ClassTask, ClassesTask, ScoreTask))
