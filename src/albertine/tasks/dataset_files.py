"""The files of a data set: their rows, checks and notes that all kinds of tasks share."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from albertine.errors import DataError
from albertine.tasks.dataset_registry import Dataset, Split
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import Family
from albertine.tasks.readers.files import File, find
from albertine.tasks.readers.table import Row, rows_of

SHOWN = 30
"""Most names that a message lists."""
NOTHING = Encoded((), [], [], np.zeros(1, dtype=np.int64), None, 0)
Lost = tuple[int, str]
"""A count of rows, and a description for a note on the file."""


@dataclass(frozen=True)
class Data:
    """The encoded files of a task.

    Attributes:
        family: the task family. train: empty where a model is only evaluated. test: may lack labels.
        notes: remarks on the files: rows left out, empty or truncated.
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


def rows_in(dataset: Dataset, file: File, split: Split, *, broken: bool = False) -> Iterator[Row]:
    """The rows of a table of a data set.

    Args:
        broken: include rows with a wrong number of fields, as rows without fields. By default they are
            skipped where `dataset.ragged` allows them.
    """
    rows = rows_of(
        file,
        header=dataset.columns_of(split).header,
        encoding=dataset.encoding,
        quotes=dataset.quotes,
        ragged=dataset.ragged,
        spare=dataset.columns.label if split == "test" else None,
        prefix="task.",
    )
    return (row for row in rows if row.fields or broken or not dataset.ragged)


def all_rows(dataset: Dataset, folder: Path, split: Split, *, broken: bool = False) -> Iterator[Row]:
    """The rows of all tables of a split, one after the other. Arguments as `rows_in`."""
    for file in files_of(dataset, folder, split):
        yield from rows_in(dataset, file, split, broken=broken)


def check_labelled(examples: Sequence[Any], label: str, *, test: bool) -> None:
    """Check that every row has a label; a test file may have none at all.

    Raises:
        DataError: with the first row without a label.
    """
    without = [e for e in examples if e.label is None]
    if without and not (test and len(without) == len(examples)):
        raise DataError(
            f"`{label}` is missing or empty",
            where=without[0].where,
            remedy="Give every row of a test file its answer, or none of them"
            if test
            else "Fill it in, or leave the row out",
        )


def held_out(examples: Sequence[Any], share: float) -> tuple[list[Any], list[Any]]:
    """Split examples into a training set and a dev set with a share of them, both in their order.

    Examples with the same text or passage stay together, so that no text is in both sets. Texts are drawn in
    the order of their hashes: the choice does not depend on the seed, and changes little when rows are added.

    Raises:
        DataError: all examples have the same text.
    """
    keys = [" ".join(_shared_text(example).casefold().split()) for example in examples]
    texts, held, count = Counter(keys), set(), 0
    if len(texts) < 2:
        what = "task.dev_share wants rows about two texts or more, and all are about the same one"
        raise DataError(what, where=examples[0].where, remedy="Name a dev file: task.dev=FILE")
    for text in sorted(texts, key=lambda text: hashlib.blake2b(text.encode()).digest())[:-1]:
        if count >= share * len(examples):
            break
        held.add(text)
        count += texts[text]
    train = [example for example, text in zip(examples, keys, strict=True) if text not in held]
    return train, [example for example, text in zip(examples, keys, strict=True) if text in held]


def _shared_text(example: Any) -> str:
    """The text of an example, or the passage of its question."""
    return str(example.passage or example.question) if hasattr(example, "passage") else str(example.text)


def check_known(
    what: str,
    splits: Mapping[str, Sequence[Any]],
    names_of: Callable[[Any], Iterable[str]],
    known: Sequence[str],
) -> None:
    """Check that all labels of the examples are among the names that the model knows.

    Args:
        what: the kind of label in messages, such as "class" or "predicate".
        names_of: the label names of an example.

    Raises:
        DataError: with the row of the first unknown name.
    """
    names = set(known)
    for example in (example for examples in splits.values() for example in examples):
        if unknown := sorted({*names_of(example)} - names):
            others = f" and {len(known) - SHOWN:,} others" if len(known) > SHOWN else ""
            remedy = f"Known: {', '.join(known[:SHOWN])}{others}"
            visible = _visible_form(unknown[0])
            if twin := next((name for name in known if _visible_form(name) == visible), None):
                remedy = (
                    f"`{twin}` is known, of other characters that look the same: {twin!a}, and here "
                    f"{unknown[0]!a}"
                )
            raise DataError(
                f"has the {what} `{unknown[0]}`, which is not known", where=example.where, remedy=remedy
            )


def alike(names: Iterable[str], what: str = "of them") -> list[Lost]:
    """Count label names that look like another one: they differ only in capitals, Unicode form, width or
    invisible characters."""
    different = {*names}
    visible = len({_visible_form(name) for name in different})
    folded = len({_visible_form(name).casefold() for name in different})
    return [
        (
            len(different) - visible,
            f"{what} like another but for Unicode form, width or invisible characters",
        ),
        (visible - folded, f"{what} like another but for capitals"),
    ]


def _visible_form(name: str) -> str:
    """A name in NFKC, without characters of zero width, and with all whitespace as single spaces."""
    blanks = "".join(" " if c.isspace() else c for c in unicodedata.normalize("NFKC", name))
    return " ".join(_UNSEEN.sub("", blanks).split())


_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
"""Control and format characters, fillers and variation selectors."""


def as_data(
    family: Family, encoded: Mapping[str, Encoded], lost: Mapping[str, Sequence[Lost]], max_length: int
) -> Data:
    """The encoded files, with a note on each: how many examples it has, and how many were left out or cut.

    Raises:
        DataError: an example of the training or dev file has no label.
    """
    notes = []
    for name, found in encoded.items():
        if name != "test" and found.targets is None:
            raise DataError(f"the {name} file has examples without an answer")
        counts = (*lost[name], (found.truncated, f"cut to {max_length} tokens"))
        remarks = "".join(f", {count:,} {what}" for count, what in counts if count)
        notes.append(f"{name}: {len(found.examples):,} examples{remarks}")
    return Data(family, encoded.get("train", NOTHING), encoded.get("dev"), encoded.get("test"), tuple(notes))


def blank(examples: Sequence[Any], *texts: str) -> Lost:
    """Count the examples whose fields `texts` are all empty. They are kept."""
    return sum(not any((getattr(e, t) or "").strip() for t in texts) for e in examples), "without text"
