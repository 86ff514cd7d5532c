"""What a run learns from and is judged by: files read, checked, counted and encoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from albertine.errors import DataError, SettingsError
from albertine.tasks import choose, classify
from albertine.tasks.choose import Choose
from albertine.tasks.classify import Classify
from albertine.tasks.datasets.choose import CHOICES, own_choices
from albertine.tasks.datasets.classify import Columns, Dataset
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import Family
from albertine.tasks.reading import Split, check_labels, known, label_names, read_file, read_split
from albertine.tasks.settings import TaskChoice
from albertine.tasks.tables import is_there
from albertine.text.tokenizer import Tokenizer

DEFAULT_METRICS = {
    "single": ("accuracy", "macro_f1"),
    "multi": ("micro_f1",),
    "score": ("pearson", "spearman"),
}
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Data:
    """What a run learns from and is judged by.

    Attributes:
        family: how the model is asked. test: may lack labels.
        notes: what a person should know of the files: rows left out, empty or cut short.
    """

    family: Family
    train: Encoded
    dev: Encoded | None
    test: Encoded | None
    notes: tuple[str, ...]


def read_data(task: TaskChoice, tokenizer: Tokenizer) -> Data:
    """Read, check and encode the files of a task.

    Raises:
        DataError: a file is missing, or not what its task wants.
        SettingsError: an unknown data set.
    """
    if task.kind == "choice" or task.dataset in CHOICES:
        return _choices(task, tokenizer)
    dataset = _dataset(task)
    splits = {name: _read(task, dataset, name) for name in SPLITS if has_split(task, dataset, name)}
    labels = label_names(dataset, splits["train"].examples)
    for name, split in splits.items():
        if dataset.kind != "score":
            check_labels(split.examples, labels)
        if name != "test" and any(e.label is None for e in split.examples):
            raise DataError(f"the {name} file has no labels", where=split.examples[0].where)
    family = Classify(dataset.kind, labels, dataset.metrics)
    encoded = {
        name: classify.encode(split.examples, tokenizer, task.max_length, dataset.kind, labels)
        for name, split in splits.items()
    }
    notes = []
    for name, split in splits.items():
        more = ((split.left_out, "left out for their label"), (split.empty, "without text"))
        notes.append(_note(name, encoded[name], task.max_length, *more))
    return Data(family, encoded["train"], encoded.get("dev"), encoded.get("test"), tuple(notes))


def balanced(data: Data) -> torch.Tensor:
    """Weights of the classes so that each has the same sum over the training examples, mean 1.

    Raises:
        SettingsError: the task has no classes of which each example has one.
    """
    if not isinstance(data.family, Classify) or data.family.kind != "single":
        raise SettingsError("training.class_weights is for tasks with one class a text")
    assert data.train.targets is not None
    counts = torch.bincount(data.train.targets, minlength=len(data.family.labels)).clamp(min=1)
    return (counts.sum() / (len(counts) * counts)).float()


def _choices(task: TaskChoice, tokenizer: Tokenizer) -> Data:
    encoded: dict[str, Encoded] = {}
    for name in SPLITS:
        if task.dataset is not None:
            assert task.folder is not None
            if name not in CHOICES[task.dataset].splits:
                continue
            try:
                examples = list(CHOICES[task.dataset].read(task.folder, name))
            except DataError:
                if name == "test":  # often not there, and not needed
                    continue
                raise
        else:
            path: Path | None = getattr(task, name)
            if path is None:
                continue
            examples = list(own_choices(path, task.text, task.pair, task.options, task.label, task.encoding))
        if not examples:
            raise DataError(f"holds no {name} questions", where=task.folder or getattr(task, name))
        found = choose.encode(examples, tokenizer, task.max_length)
        if name != "test" and found.targets is None:
            raise DataError(f"the {name} file has questions without an answer", where=examples[0].where)
        encoded[name] = found
    notes = [_note(name, found, task.max_length) for name, found in encoded.items()]
    return Data(Choose(), encoded["train"], encoded.get("dev"), encoded.get("test"), tuple(notes))


def _note(name: str, found: Encoded, limit: int, *more: tuple[int, str]) -> str:
    counts = (*more, (found.truncated, f"cut to {limit} tokens"))
    text = f"{name}: {len(found.examples):,} examples"
    return text + "".join(f", {count:,} {what}" for count, what in counts if count)


def _dataset(task: TaskChoice) -> Dataset:
    if task.dataset is not None:
        return known(task.dataset)
    kind: Any = task.kind
    return Dataset(
        files={},
        columns=Columns(task.text, task.pair, task.label),
        kind=kind,
        metrics=DEFAULT_METRICS[task.kind],
        separator=task.separator,
    )


def has_split(task: TaskChoice, dataset: Dataset, split: str) -> bool:
    """Whether there is such a file; of a known data set only the test file may be missing."""
    if task.dataset is None:
        return getattr(task, split) is not None
    assert task.folder is not None
    name = dataset.files.get(split)
    return name is not None and (split != "test" or is_there(task.folder, name))


def _read(task: TaskChoice, dataset: Dataset, split: str) -> Split:
    if task.dataset is not None:
        assert task.folder is not None
        return read_split(dataset, task.folder, split, task.encoding)
    path: Path = getattr(task, split)
    return read_file(dataset, path, dataset.columns, task.encoding)
