"""From the files that a task names to what a run learns from and is judged by: what all families share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from albertine.errors import DataError, SettingsError
from albertine.randomness import permutation
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import Family
from albertine.tasks.readers.files import NotThere, TaskSet
from albertine.tasks.readers.table import Row, rows_of
from albertine.tasks.settings import TaskChoice

SPLITS = ("train", "dev", "test")
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


def own_rows(task: TaskChoice, path: Path) -> Iterator[Row]:
    """The rows of a table of the user's."""
    return rows_of(path, header=task.header, encoding=task.encoding, prefix="task.")


def read_splits(
    task: TaskChoice,
    sets: Mapping[str, TaskSet[E]],
    own: Callable[[Path, str], Iterator[E]],
    told: Callable[[E], Any] | None = None,
    *,
    judging: bool = False,
) -> dict[str, list[E]]:
    """The examples of every file that there is; of a known data set only the test file may be missing.

    Args:
        judging: the training file is not read.
        sets: the known data sets of a kind by name. own: reads what the user names of a split.
        told: the answer of an example, None where its row has none. Own files to learn from or to be judged
            by must tell it in every row, a test file in all or in none. Default: rows may do without.

    Raises:
        DataError: a file is missing, empty or not what it should be. SettingsError: the named data set is of
            another kind.
    """
    found: dict[str, list[E]] = {}
    for name in SPLITS[judging:]:
        if task.dataset is not None:
            assert task.folder is not None
            if task.dataset not in sets:
                raise SettingsError(
                    f"`{task.dataset}` is no data set of the kind {task.kind}",
                    remedy=f"Known of this kind: {', '.join(sets)}" if sets else "Name own files",
                )
            if name not in sets[task.dataset].splits:
                continue
            try:
                found[name] = list(sets[task.dataset].read(task.folder, name))
            except NotThere:
                if name != "test":
                    raise
                continue
        elif paths := task.own(name):
            found[name] = [example for path in paths for example in own(path, name)]
            if told is not None:
                _check_told(found[name], told, task.label, test=name == "test")
        else:
            continue
        if not found[name]:
            raise DataError(f"holds no {name} examples", where=task.folder or task.own(name)[0])
    if "train" not in found and not judging:
        if task.dataset is None:
            raise SettingsError("give task.train, the file to learn from")
        raise DataError(
            f"`{task.dataset}` has no training file, it only tests",
            where=task.folder,
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
