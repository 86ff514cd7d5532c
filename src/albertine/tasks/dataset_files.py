"""The files of a data set, and what all kinds of tasks check and tell of them."""

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
"""Names that a message lists."""
NOTHING = Encoded((), [], [], np.zeros(1, dtype=np.int64), None, 0)
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


def rows_in(dataset: Dataset, file: File, split: Split, *, broken: bool = False) -> Iterator[Row]:
    """The rows of a table of a data set.

    Args:
        broken: also those of another number of fields, which have none; else they are passed over, where the
            data set does not refuse them.
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


def check_told(examples: Sequence[Any], label: str, *, test: bool) -> None:
    """Refuse a file of which a row lacks its answer; a test file may lack all.

    Raises:
        DataError: with the first such row.
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
    """Examples to learn from, and a share of them to be judged by, both in their order.

    Those about the same text or passage stay together, so that none is asked that was learned. Texts are
    taken in the order of their hashes: the same ones whatever the seed, and most of the same when rows come.

    Raises:
        DataError: all are about the same text.
    """
    about = [" ".join(_about(example).casefold().split()) for example in examples]
    texts, held, count = Counter(about), set(), 0
    if len(texts) < 2:
        what = "task.dev_share wants rows about two texts or more, and all are about the same one"
        raise DataError(what, where=examples[0].where, remedy="Name a dev file: task.dev=FILE")
    for text in sorted(texts, key=lambda text: hashlib.blake2b(text.encode()).digest())[:-1]:
        if count >= share * len(examples):
            break
        held.add(text)
        count += texts[text]
    learned = [example for example, text in zip(examples, about, strict=True) if text not in held]
    return learned, [example for example, text in zip(examples, about, strict=True) if text in held]


def _about(example: Any) -> str:
    """The text of an example, or the passage that its question is about."""
    return str(example.passage or example.question) if hasattr(example, "passage") else str(example.text)


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
            remedy = f"Known: {', '.join(known[:SHOWN])}{more}"
            seen = _as_seen(strange[0])
            if twin := next((name for name in known if _as_seen(name) == seen), None):
                remedy = (
                    f"`{twin}` is known, of other characters that look the same: {twin!a}, and here "
                    f"{strange[0]!a}"
                )
            raise DataError(
                f"has the {what} `{strange[0]}`, which is not known", where=example.where, remedy=remedy
            )


def alike(names: Iterable[str], what: str = "of them") -> list[Lost]:
    """How many names of classes, types or predicates a person would take for another of them: they differ in
    capitals alone, or look the same (their Unicode form, width, or characters that are not seen)."""
    different = {*names}
    seen = len({_as_seen(name) for name in different})
    folded = len({_as_seen(name).casefold() for name in different})
    return [
        (len(different) - seen, f"{what} like another but for Unicode form, width or invisible characters"),
        (seen - folded, f"{what} like another but for capitals"),
    ]


def _as_seen(name: str) -> str:
    """A name without what a reader does not see: compatibility forms and widths (NFKC), characters of no
    width, and which blanks are in it."""
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
    """The encoded files, with a note on each of what befell its rows.

    Raises:
        DataError: an example to learn from or to be judged by lacks its answer.
    """
    notes = []
    for name, found in encoded.items():
        if name != "test" and found.targets is None:
            raise DataError(f"the {name} file has examples without an answer")
        counts = (*lost[name], (found.truncated, f"cut to {max_length} tokens"))
        befell = "".join(f", {count:,} {what}" for count, what in counts if count)
        notes.append(f"{name}: {len(found.examples):,} examples{befell}")
    return Data(family, encoded.get("train", NOTHING), encoded.get("dev"), encoded.get("test"), tuple(notes))


def blank(examples: Sequence[Any], *texts: str) -> Lost:
    """How many examples have nothing in any of these fields; they are kept, and answered like any other."""
    return sum(not any((getattr(e, t) or "").strip() for t in texts) for e in examples), "without text"
