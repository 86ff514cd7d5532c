"""Files of classified texts to examples: the data sets we know by name, and own files by column names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from albertine.errors import DataError
from albertine.tasks.classify import Classify
from albertine.tasks.datasets.classify import BROKEN, CHINESE, ENGLISH, GLUE, Columns, Dataset
from albertine.tasks.datasets.clue import CLUE
from albertine.tasks.examples import Example, Label
from albertine.tasks.readers.files import File, TaskSet, find
from albertine.tasks.readers.table import Row, rows_of
from albertine.tasks.settings import TaskChoice
from albertine.tasks.sources import Data, as_data, blank, fewer, read_splits
from albertine.text.tokenizer import Tokenizer

DATASETS: Mapping[str, Dataset] = GLUE | ENGLISH | CHINESE | CLUE
DEFAULT_METRICS = {
    "single": ("accuracy", "macro_f1"),
    "multi": ("micro_f1",),
    "score": ("pearson", "spearman"),
}


def read_split(dataset: Dataset, folder: Path, split: str, encoding: str = "utf-8") -> Iterator[Example]:
    """The examples of a split of a known data set in its folder.

    Raises:
        DataError: the file or a column is missing, or a value is not what it should be.
    """
    if split not in dataset.files:
        raise DataError(f"this data set has no {split} file", where=folder)
    path = find(folder, dataset.files[split], dataset.archive)
    yield from read_file(dataset, path, dataset.columns_of(split), encoding)


def read_file(dataset: Dataset, path: File, columns: Columns, encoding: str = "utf-8") -> Iterator[Example]:
    """The examples of one file. Raises as `read_split`."""
    ragged = BROKEN in dataset.left_out
    for number, row in enumerate(
        rows_of(
            path,
            header=columns.header or True,
            encoding=encoding,
            quotes=False,
            ragged=ragged,
            prefix="task.",
        )
    ):
        if ragged and not row.fields:
            yield Example(str(number), "", None, BROKEN, row.where)
            continue
        if dataset.laid_out is not None:
            row = dataset.laid_out(row)
        pair = None if columns.pair is None else row.text(columns.pair)
        name = str(number) if columns.name not in row.fields else row.text(columns.name or "")
        yield Example(name, row.text(columns.text), pair, _label(dataset, columns, row), row.where)


def kept(dataset: Dataset, examples: Iterable[Example]) -> list[Example]:
    """The examples but for those that the authors of the data set drop."""
    return [e for e in examples if e.label not in dataset.left_out]


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


def _set(dataset: Dataset, encoding: str = "utf-8") -> TaskSet[Example]:
    return TaskSet(lambda folder, split: read_split(dataset, folder, split, encoding), (*dataset.files,))


SETS = {name: _set(dataset) for name, dataset in DATASETS.items()}


def load(task: TaskChoice, tokenizer: Tokenizer) -> Data:
    """The data of a task of classes or scores."""
    kind: Any = task.kind
    dataset = DATASETS.get(task.dataset or "") or Dataset(
        files={},
        columns=Columns(task.text, task.pair, task.label),
        kind=kind,
        metrics=DEFAULT_METRICS[kind],
        separator=task.separator,
    )

    def own(path: Path) -> Iterator[Example]:
        return read_file(dataset, path, dataset.columns, task.encoding)

    named = {name: _set(dataset, task.encoding) for name in DATASETS if name == task.dataset}
    found = read_splits(task, {**SETS, **named}, own)
    splits = {name: kept(dataset, examples) for name, examples in found.items()}
    labels = label_names(dataset, splits["train"])
    for examples in splits.values():
        check_labels(examples, labels)
    left_out = {name: len(found[name]) - len(examples) for name, examples in splits.items()}
    splits = fewer(splits, task)
    family = Classify(dataset.kind, labels, dataset.metrics, task.max_length)
    encoded = {name: family.encode(examples, tokenizer) for name, examples in splits.items()}
    lost = {
        name: (
            (left_out[name], "left out, as its authors do"),
            blank(examples, "text", "pair"),
        )
        for name, examples in splits.items()
    }
    return as_data(family, encoded, task, lost)
