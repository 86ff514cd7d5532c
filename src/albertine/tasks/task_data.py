"""Reading the data of a task, with a cache for runs that share it."""

from __future__ import annotations

import json
from typing import Any, Protocol

from albertine.tasks.dataset_files import Data
from albertine.tasks.dataset_registry import SPLITS
from albertine.tasks.family import Family
from albertine.tasks.kind_settings import TaskChoice
from albertine.tasks.readers.files import NotThere
from albertine.tokenizers.base import Tokenizer


class Reader(Protocol):
    """The type of `read_data`."""

    def __call__(self, task: Any, tokenizer: Tokenizer, known: Family | None = None) -> Data: ...


def read_data(task: TaskChoice, tokenizer: Tokenizer, known: Family | None = None) -> Data:
    """Read, check and encode the files of a task.

    Args:
        known: the family of a model that is only evaluated, which has its classes; the training file is not
            read.

    Raises:
        DataError: a file is missing or does not fit the task.
    """
    return task.load(tokenizer, known)


def missing(task: TaskChoice) -> str | None:
    """The first training or dev file of a task that does not exist, in words; None if all do.

    The first example of each file of a data set is read; nothing is encoded.

    Raises:
        DataError: a file exists and does not fit the task.
    """
    absent = [path for name in SPLITS for path in task.own(name) if not path.exists()]
    if absent or task.dataset is None:
        return f"there is no {absent[0]}" if absent else None
    try:
        for split in task.data.files.keys() - {"test"}:
            next(task.examples_in(split), None)
    except NotThere as error:
        return f"{error.where} {error.what}"
    return None


def once(read: Reader = read_data) -> Reader:
    """A reader with a cache: data is read and encoded once for the same files, tokenizer and configuration of
    the family."""
    cache: dict[tuple[str, ...], Data] = {}

    def cached(task: TaskChoice, tokenizer: Tokenizer, known: Family | None = None) -> Data:
        config = None if known is None else known.config("", 0.0)  # determines the encoding
        key = (task.model_dump_json(), tokenizer.fingerprint, json.dumps(config))
        if key not in cache:
            cache[key] = read(task, tokenizer, known)
        return cache[key]

    return cached
