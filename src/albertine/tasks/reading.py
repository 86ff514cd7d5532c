"""Task files to examples: the data sets we know by name, and a user's own files by column names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from albertine.errors import DataError, SettingsError
from albertine.tasks.datasets.choose import CHOICES
from albertine.tasks.datasets.classify import DATASETS, Columns, Dataset
from albertine.tasks.examples import Example, Label
from albertine.tasks.tables import Row, find, rows


@dataclass(frozen=True)
class Split:
    """The examples of one file.

    Attributes:
        left_out: how many rows were not taken because their label says so, as the authors tell to.
        empty: how many have no text at all; they are kept, and answered like any other.
    """

    examples: tuple[Example, ...]
    left_out: int
    empty: int


def known(name: str) -> Dataset:
    """The data set of that name; an unknown one is a SettingsError that suggests the nearest."""
    if name not in DATASETS:
        names = [*DATASETS, *CHOICES]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"Known: {', '.join(names)}."
        raise SettingsError(f"there is no data set `{name}`", remedy=f"{hint} For own files leave it out")
    return DATASETS[name]


def read_split(dataset: Dataset, folder: Path, split: str, encoding: str = "utf-8") -> Split:
    """The examples of a split of a known data set in its folder.

    Raises:
        DataError: the file or a column is missing, or a value is not what it should be.
    """
    if split not in dataset.files:
        raise DataError(f"this data set has no {split} file", where=folder)
    return read_file(dataset, find(folder, dataset.files[split]), dataset.columns_of(split), encoding)


def read_file(dataset: Dataset, path: Path, columns: Columns, encoding: str = "utf-8") -> Split:
    """The examples of one file. Raises as `read_split`."""
    found: list[Example] = []
    left_out = 0
    for number, row in enumerate(rows(path, columns.header, encoding)):
        label = _label(dataset, columns, row)
        if label in dataset.left_out:
            left_out += 1
            continue
        pair = None if columns.pair is None else row.text(columns.pair)
        name = str(number) if columns.name not in row.fields else row.text(columns.name or "")
        found.append(Example(name, row.text(columns.text), pair, label, row.where))
    if not found:
        raise DataError("holds no examples", where=path)
    empty = sum(not e.text.strip() and not (e.pair or "").strip() for e in found)
    return Split(tuple(found), left_out, empty)


def _label(dataset: Dataset, columns: Columns, row: Row) -> Label | None:
    if columns.label is None:
        return None
    if dataset.kind == "multi":
        value = row.get(columns.label)
        parts = value if isinstance(value, list) else row.text(columns.label).split(dataset.separator)
        return frozenset(str(part).strip() for part in parts if str(part).strip())
    text = row.text(columns.label).strip()
    if dataset.kind == "single":
        return text
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if number != number or abs(number) == float("inf"):
        raise DataError(f"`{columns.label}` is `{text}`, not a number", where=row.where)
    return number


def label_names(dataset: Dataset, examples: Sequence[Example]) -> tuple[str, ...]:
    """The classes in the order of their numbers: the data set's own, or those of `examples`, sorted (as
    numbers where all are)."""
    if dataset.kind == "score":
        return ()
    if dataset.labels:
        return dataset.labels
    seen: set[str] = set()
    for example in examples:
        seen |= _classes(example)
    if len(seen) < 2 and dataset.kind == "single":
        raise DataError(
            f"has only the class {', '.join(sorted(seen)) or 'of no row'}",
            where=examples[0].where.rpartition(":")[0] if examples else None,
            remedy="Check task.label: it names the column of the classes",
        )
    digits = all(name.lstrip("-").isdigit() for name in seen)
    return tuple(sorted(seen, key=int)) if digits else tuple(sorted(seen))


def check_labels(examples: Iterable[Example], names: Sequence[str]) -> None:
    """Refuse a class that the model does not know.

    Raises:
        DataError: with the line of the first one.
    """
    known_names = set(names)
    for example in examples:
        if strange := sorted(_classes(example) - known_names):
            raise DataError(
                f"has the class `{strange[0]}`, which the model does not know",
                where=example.where,
                remedy=f"Known: {', '.join(names)}",
            )


def _classes(example: Example) -> frozenset[str]:
    label = example.label
    if isinstance(label, frozenset):
        return label
    return frozenset({label}) if isinstance(label, str) else frozenset()
