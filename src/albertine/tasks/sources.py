"""From the files that a task names to what a run learns from and is judged by: what all families share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from albertine.errors import DataError, SettingsError
from albertine.randomness import permutation
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import Family
from albertine.tasks.readers.files import File, NotThere, find
from albertine.tasks.readers.table import Row, rows_of
from albertine.tasks.registry import SPLITS, Dataset, Split
from albertine.tasks.settings import TaskChoice

SHOWN = 30
"""Names that a message lists."""
NOTHING = Encoded((), [], [], np.zeros(1, dtype=np.int64), None, 0)
E = TypeVar("E")
Lost = tuple[int, str]
"""How many rows something befell, and what."""


@dataclass(frozen=True)
class Data:
    """What a run learns from and is judged by.

    Attributes:
        family: how the model is asked. train: nothing where a model is only judged. test: may lack labels.
        notes: what a person should know of the files: rows left out, empty or cut short.
    """

    family: Family
    train: Encoded
    dev: Encoded | None
    test: Encoded | None
    notes: tuple[str, ...]


def files_of(dataset: Dataset, folder: Path, split: Split) -> Iterator[File]:
    """The files of a split. Raises NotThere."""
    for name in dataset.files[split]:
        yield name if isinstance(name, Path) else find(folder, name, dataset.archive)


def rows_in(dataset: Dataset, file: File, split: Split) -> Iterator[Row]:
    """The rows of a table of a data set."""
    return rows_of(
        file,
        header=dataset.columns_of(split).header,
        encoding=dataset.encoding,
        quotes=dataset.quotes,
        ragged=dataset.ragged,
        prefix="task.",
    )


def read_splits(
    task: TaskChoice,
    read: Callable[[Dataset, Path, Split], Iterator[E]],
    told: Callable[[E], Any] | None = None,
    *,
    judging: bool = False,
) -> dict[str, list[E]]:
    """The examples of every split that there is; of a data set known by name the test file may be missing.

    Args:
        judging: the training file is not read.
        read: the examples of a split of a data set in its folder.
        told: the answer of an example, None if it has none: a training and a dev file must tell it in every
            row, a test file in all or in none. Default: rows may do without.

    Raises:
        DataError: a file is missing, empty or not what it should be.
    """
    dataset, found = task.data, dict[str, list[E]]()
    for split in SPLITS[judging:]:
        if split not in dataset.files:
            continue
        try:
            found[split] = list(read(dataset, task.place, split))
        except NotThere:
            if split != "test" or not isinstance(task.dataset, str):
                raise
            continue
        if not found[split]:
            raise DataError(f"holds no {split} examples", where=task.folder or dataset.files[split][0])
        if told is not None:
            _check_told(found[split], told, dataset.columns_of(split).label or "", test=split == "test")
    if "train" not in found and not judging:
        if task.dataset is None:
            raise SettingsError("give task.train, the file to learn from")
        raise DataError(
            f"`{task.dataset}` has no training file, it only tests",
            where=task.place,
            remedy="Name own files: one to learn from as task.train, this one as task.dev or task.test",
        )
    return found


def _check_told(examples: Sequence[Any], told: Callable[[Any], Any], label: str, *, test: bool) -> None:
    without = [e for e in examples if told(e) is None]
    if without and not (test and len(without) == len(examples)):
        raise DataError(
            f"`{label}` is missing or empty",
            where=without[0].where,
            remedy="Give every row of a test file its answer, or none of them"
            if test
            else "Fill it in, or leave the row out",
        )


def check_known(
    what: str,
    splits: Mapping[str, Sequence[Any]],
    names_of: Callable[[Any], Iterable[str]],
    known: Sequence[str],
) -> None:
    """Refuse a class, or what else answers name, that the model does not know.

    Raises:
        DataError: with the row of the first one.
    """
    names = set(known)
    for example in (example for examples in splits.values() for example in examples):
        if strange := sorted({*names_of(example)} - names):
            more = f" and {len(known) - SHOWN:,} others" if len(known) > SHOWN else ""
            raise DataError(
                f"has the {what} `{strange[0]}`, which the model does not know",
                where=example.where,
                remedy=f"Known: {', '.join(known[:SHOWN])}{more}",
            )


def fewer(splits: dict[str, list[E]], task: TaskChoice) -> dict[str, list[E]]:
    """The same with `task.examples` of the training examples, drawn once and for all and left in their order.

    For after what is told by all of them, such as the names of the classes.
    """
    examples, count = splits.get("train", []), task.examples
    if count is None or count >= len(examples):
        return splits
    chosen = np.sort(permutation(len(examples), 0, "task examples")[:count])
    return {**splits, "train": [examples[i] for i in chosen]}


def as_data(
    family: Family,
    encoded: Mapping[str, Encoded],
    task: TaskChoice,
    lost: Mapping[str, Sequence[Lost]] | None = None,
) -> Data:
    """The encoded files, with a note on each of what befell its rows.

    Raises:
        DataError: an example to learn from or to be judged by lacks its answer.
    """
    for name in ("train", "dev"):
        if name in encoded and encoded[name].targets is None:
            raise DataError(f"the {name} file has examples without an answer")
    notes = []
    for name, found in encoded.items():
        counts = (*(lost or {}).get(name, ()), (found.truncated, f"cut to {task.max_length} tokens"))
        befell = "".join(f", {count:,} {what}" for count, what in counts if count)
        notes.append(f"{name}: {len(found.examples):,} examples{befell}")
    return Data(family, encoded.get("train", NOTHING), encoded.get("dev"), encoded.get("test"), tuple(notes))


def blank(examples: Sequence[Any], *texts: str) -> Lost:
    """How many examples have nothing in any of these fields; they are kept, and answered like any other."""
    return sum(not any((getattr(e, t) or "").strip() for t in texts) for e in examples), "without text"
