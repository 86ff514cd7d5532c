"""What a classification run learns from and is judged by: files read, checked, counted and encoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from albertine.errors import DataError
from albertine.tasks import classify
from albertine.tasks.classify import Encoded
from albertine.tasks.datasets.classify import Columns, Dataset
from albertine.tasks.reading import Split, check_labels, known, label_names, read_file, read_split
from albertine.tasks.settings import TaskChoice
from albertine.tasks.tables import is_there
from albertine.text.tokenizer import Tokenizer

DEFAULT_METRICS = {
    "single": ("accuracy", "macro_f1"),
    "multi": ("micro_f1",),
    "score": ("pearson", "spearman"),
}


@dataclass(frozen=True)
class Data:
    """What a run learns from and is judged by.

    Attributes:
        labels: the classes in the order of their numbers; empty for a score.
        notes: what a person should know of the files: rows left out, empty or cut short.
    """

    dataset: Dataset
    labels: tuple[str, ...]
    train: Encoded
    dev: Encoded | None
    notes: tuple[str, ...]


def read_data(task: TaskChoice, tokenizer: Tokenizer) -> Data:
    """Read and encode the training and dev files of a task."""
    dataset = _dataset(task)
    train_split = read(task, dataset, "train")
    dev_split = read(task, dataset, "dev") if has_split(task, dataset, "dev") else None
    if train_split is None:
        raise DataError("there is no training file", remedy="Name it in task.train")
    labels = label_names(dataset, train_split.examples)
    notes: list[str] = []
    encoded: list[Encoded | None] = []
    for name, split in (("train", train_split), ("dev", dev_split)):
        if split is None:
            encoded.append(None)
            continue
        if dataset.kind != "score":
            check_labels(split.examples, labels)
        found = classify.encode(split.examples, tokenizer, task.max_length, dataset.kind, labels)
        if found.targets is None:
            raise DataError(f"the {name} file has no labels", where=split.examples[0].where)
        encoded.append(found)
        notes.append(_note(name, split, found, task.max_length))
    assert encoded[0] is not None
    return Data(dataset, labels, encoded[0], encoded[1], tuple(notes))


def _note(name: str, split: Split, found: Encoded, limit: int) -> str:
    text = f"{name}: {len(split.examples):,} examples"
    counts = (
        (split.left_out, "left out for their label"),
        (split.empty, "without text"),
        (found.truncated, f"cut to {limit} tokens"),
    )
    return text + "".join(f", {count:,} {what}" for count, what in counts if count)


def _dataset(task: TaskChoice) -> Dataset:
    if task.dataset is not None:
        return known(task.dataset)
    return Dataset(
        files={},
        columns=Columns(task.text, task.pair, task.label),
        kind=task.kind,
        metrics=DEFAULT_METRICS[task.kind],
        separator=task.separator,
    )


def has_split(task: TaskChoice, dataset: Dataset, split: str) -> bool:
    if task.dataset is None:
        return getattr(task, split) is not None
    assert task.folder is not None
    name = dataset.files.get(split)
    # The test file of a benchmark is often not there, and not needed; the others are.
    return name is not None and (split != "test" or is_there(task.folder, name))


def read(task: TaskChoice, dataset: Dataset, split: str) -> Split | None:
    if task.dataset is not None:
        assert task.folder is not None
        return read_split(dataset, task.folder, split, task.encoding)
    path: Path | None = getattr(task, split)
    return None if path is None else read_file(dataset, path, dataset.columns, task.encoding)
