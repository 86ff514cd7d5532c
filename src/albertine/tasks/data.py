"""The way from a task's settings to its data: every kind of task by name, and the data sets of each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from albertine.errors import SettingsError
from albertine.interop.heads import Task
from albertine.tasks.classify import Classify
from albertine.tasks.datasets import answer, choose, classes, entities, generate, relations, similarity
from albertine.tasks.family import Family
from albertine.tasks.readers.files import NotThere, TaskSet
from albertine.tasks.settings import TaskChoice, TaskKind
from albertine.tasks.sources import SPLITS, Data
from albertine.text.tokenizer import Tokenizer


class Reader(Protocol):
    """`read_data`, or what does the same."""

    def __call__(self, task: TaskChoice, tokenizer: Tokenizer, known: Family | None = None) -> Data: ...


READERS: Mapping[TaskKind, Reader] = {
    "single": classes.load,
    "multi": classes.load,
    "score": classes.load,
    "choice": choose.load,
    "entities": entities.load,
    "answers": answer.load,
    "relations": relations.load,
    "similarity": similarity.load,
    "generation": generate.load_texts,
    "reading": generate.load_questions,
}
ASKS: Mapping[TaskKind, Task] = {
    **dict.fromkeys(("single", "multi", "score"), "classify"),
    "choice": "choose",
    "entities": "tag",
    "answers": "answer",
    "relations": "relate",
    "similarity": "embed",
    **dict.fromkeys(("generation", "reading"), "generate"),
}
"""What a model of each kind does."""
OF_KINDS: Mapping[str, tuple[TaskKind, ...]] = {
    "options": ("choice",),
    "separator": ("multi",),
    "similarity": ("similarity",),
    "tags": ("entities",),
    "crf": ("entities",),
    "pooling": ("single", "multi", "score", "choice"),
    "answer": ("answers",),
    "target_length": ("generation", "reading"),
    "beams": ("generation", "reading"),
}
"""Settings of some kinds of tasks alone."""
SETS: Mapping[TaskKind, Mapping[str, TaskSet[Any]]] = {
    "choice": choose.CHOICES,
    "entities": entities.ENTITIES,
    "answers": answer.ANSWERS,
    "relations": relations.RELATIONS,
    "reading": generate.READINGS,
    "single": classes.SETS,
}
"""The data sets of every kind; `similarity` and `reading` can be asked of some of other kinds too."""


def read_data(task: TaskChoice, tokenizer: Tokenizer, known: Family | None = None) -> Data:
    """Read, check and encode the files of a task.

    Args:
        known: the family of a model that is to be judged, which tells its classes; no training file is read.

    Raises:
        DataError: a file is missing, or not what its task wants.
        SettingsError: an unknown data set, or settings of another kind of task.
    """
    kind = kind_in(task)
    for name, kinds in OF_KINDS.items():
        if kind not in kinds and getattr(task, name) != TaskChoice.model_fields[name].default:
            raise SettingsError(
                f"task.{name} is for {', '.join(kinds)}, and this task is {kind}", remedy="Leave it out"
            )
    return READERS[kind](task, tokenizer, known)


def kind_in(task: TaskChoice) -> TaskKind:
    """The kind of a task, which a known data set may tell."""
    return task.kind if task.kind != "single" or task.dataset is None else kind_of(task.dataset)


def kind_of(dataset: str) -> TaskKind:
    """The kind of task that a data set is for; for an unknown name a SettingsError suggests the nearest."""
    for kind, sets in SETS.items():
        if dataset in sets:
            return kind
    names = [name for sets in SETS.values() for name in sets]
    near = difflib.get_close_matches(dataset, names, n=1)
    some = ", ".join(name for name in names if not re.search(r"-\d$", name))  # splits by number apart
    hint = f"Did you mean `{near[0]}`?" if near else f"Known: {some}."
    raise SettingsError(f"there is no data set `{dataset}`", remedy=f"{hint} For own files leave it out")


def missing(task: TaskChoice) -> str | None:
    """What a task lacks to be run: a training or dev file that is not there; None if all is.

    Known data sets are opened and their first example is read; nothing is encoded.

    Raises:
        SettingsError: an unknown data set. DataError: a file is there and not what its task wants.
    """
    if task.dataset is None:
        absent = [path for name in SPLITS for path in task.own(name) if not path.is_file()]
        return f"there is no {absent[0]}" if absent else None
    assert task.folder is not None
    found = SETS[kind_of(task.dataset)][task.dataset]
    try:
        for name in found.splits:
            if name != "test":
                next(iter(found.read(task.folder, name)), None)
    except NotThere as error:
        return f"{error.where} {error.what}"
    return None


def once(read: Reader = read_data) -> Reader:
    """A reader that remembers: the same files for the same tokenizer are read and encoded once."""
    known_data: dict[tuple[str, ...], Data] = {}

    def remembering(task: TaskChoice, tokenizer: Tokenizer, known: Family | None = None) -> Data:
        labels = () if known is None else ("judged", *known.labels)
        key = (task.model_dump_json(), tokenizer.fingerprint, *labels)
        if key not in known_data:
            known_data[key] = read(task, tokenizer, known)
        return known_data[key]

    return remembering


def balanced(data: Data) -> torch.Tensor:
    """Weights of the classes so that each has the same sum over the training examples, mean 1.

    Raises:
        SettingsError: the task has no classes of which each example has one.
    """
    if not isinstance(data.family, Classify) or data.family.kind != "single":
        raise SettingsError("training.class_weights is for tasks with one class a text")
    assert data.train.targets is not None
    counts = torch.bincount(torch.cat(data.train.targets), minlength=len(data.family.labels)).clamp(min=1)
    return (counts.sum() / (len(counts) * counts)).float()
