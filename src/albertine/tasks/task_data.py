"""The data of a task: read, remembered, weighed, or found missing."""

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
    """`read_data`, or what does the same."""

    def __call__(self, task: Any, tokenizer: Tokenizer, known: Family | None = None) -> Data: ...


def read_data(task: TaskChoice, tokenizer: Tokenizer, known: Family | None = None) -> Data:
    """Read, check and encode the files of a task.

    Args:
        known: the family of a model that is to be judged, which tells its classes; no training file is read.

    Raises:
        DataError: a file is missing, or not what its task wants.
    """
    return task.load(tokenizer, known)


def missing(task: TaskChoice) -> str | None:
    """What a task lacks to be run: a training or dev file that is not there; None if all is.

    Files of data sets are opened and their first example is read; nothing is encoded.

    Raises:
        DataError: a file is there and not what its task wants.
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
    """A reader that remembers: the same files for the same tokenizer, and for models that are asked alike,
    are read and encoded once."""
    known_data: dict[tuple[str, ...], Data] = {}

    def remembering(task: TaskChoice, tokenizer: Tokenizer, known: Family | None = None) -> Data:
        config = None if known is None else known.config("", 0.0)  # all that decides how it is asked
        key = (task.model_dump_json(), tokenizer.fingerprint, json.dumps(config))
        if key not in known_data:
            known_data[key] = read(task, tokenizer, known)
        return known_data[key]

    return remembering
