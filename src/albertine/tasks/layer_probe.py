"""A linear probe on every depth of an encoder, on the data of a task of classes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from albertine.analysis.probe import (
    DepthScore,
    DepthScores,
    LogisticRegression,
    flops_of_depths,
    majority,
    pooled_states,
)
from albertine.core.batch import Packed
from albertine.core.files import user_path
from albertine.core.randomness import permutation
from albertine.core.token_batches import batch_by_tokens
from albertine.errors import DataError, NotFinite, SettingsError
from albertine.evaluation.intervals import of_share
from albertine.interop.huggingface.folders import named_model
from albertine.model.model import evaluating
from albertine.tasks.dataset_registry import listed
from albertine.tasks.encoded import Encoded
from albertine.tasks.families import of_its_kind
from albertine.tasks.kind_settings import TaskChoice

EXAMPLES = 2000
"""Most training and most dev examples, drawn at random, the same for every model."""
TOKENS_PER_PASS = 4096
_ENDINGS = (".tsv", ".csv", ".jsonl", ".json", ".parquet")


def task_of_name(task: str | Path, data: Path | None = None) -> TaskChoice:
    """The task that a name means.

    Args:
        task: a data set by name, whose files are in the folder `data`; a YAML file that describes one; or a
            folder with a table `train` and a table `dev`, such as train.tsv and dev.tsv, with the columns
            `text`, `label` and for pairs `pair`.

    Raises:
        SettingsError: it is none of these, or no task with one class for each text. DataError: a folder lacks
            a table.
    """
    path = user_path(str(task))
    tree: dict[str, Any]
    if path.is_dir() and data is None:
        tree = {split: _table(path, split) for split in ("train", "dev")}
        tree |= {"pair": "pair"} if _has_column(tree["train"], "pair") else {}
    else:
        tree = {"dataset": str(task), **({} if data is None else {"folder": str(data)})}
    try:
        choice: TaskChoice = of_its_kind(tree)
    except (ValidationError, ValueError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise SettingsError(
            reason.removeprefix("Value error, ")
            .replace("task.dataset", "--task")
            .replace("task.folder", "--data"),
            where=task,
            remedy="Name a folder with the tables train and dev, or a data set and --data FOLDER: "
            + ", ".join(listed("single")[:8])
            + ", …",
        ) from error
    if choice.kind != "single":
        raise SettingsError(
            f"is a task of the kind {choice.kind}, and a linear probe predicts one class of a text",
            where=task,
            remedy=f"Name another, such as {', '.join(listed('single')[:4])}",
        )
    return choice


def _table(folder: Path, split: str) -> str:
    for ending in _ENDINGS:
        if (path := folder / f"{split}{ending}").is_file():
            return str(path)
    raise DataError(
        f"has no table {split}",
        where=folder,
        remedy=f"Name it {', '.join(f'{split}{ending}' for ending in _ENDINGS)}; of a known data set give "
        "its name and --data FOLDER",
    )


def _has_column(path: str, name: str) -> bool:
    from albertine.tasks.readers.table import rows_of

    first = next(iter(rows_of(Path(path))), None)
    return first is not None and name in first.fields


def probe_layers(
    what: str | Path, task: TaskChoice, *, examples: int = EXAMPLES, label: str | None = None
) -> DepthScores:
    """The accuracy of a logistic regression on the mean over tokens of every layer's states, trained on the
    training file and scored on the dev file of a task.

    Args:
        examples: most of each. label: name of the model in the result; default: `what`.

    Raises:
        AlbertineError: there is no such model, or a file is missing or does not fit the task.
    """
    model, tokenizer = named_model(what)
    data = task.fitting(model.config.max_position_embeddings).load(tokenizer)
    if data.dev is None:
        raise DataError("has no dev file to score a probe on", where=task.source, remedy="Give one")
    train, dev = (_some(part, examples) for part in (data.train, data.dev))
    begin = time.perf_counter()
    with evaluating(model):
        x, y = (pooled_states(model, _batches(part)) for part in (train, dev))
    passes = time.perf_counter() - begin
    if not bool(x.isfinite().all() and y.isfinite().all()):
        raise NotFinite(where=what)
    gold, right = _labels(train), _labels(dev)
    lengths = [len(ids) for part in (train, dev) for ids in part.ids]
    flops = flops_of_depths(model.config, round(sum(lengths) / len(lengths)))
    scores = []
    for depth in range(x.shape[1]):
        begin = time.perf_counter()
        classes = int(gold.max()) + 1
        probe = LogisticRegression(x[:, depth], torch.from_numpy(gold), classes)
        share = float((probe.predict(y[:, depth]).numpy() == right).mean())
        # The states of all depths come from one pass, of which the embeddings take next to nothing.
        seconds = passes * depth / max(1, x.shape[1] - 1) + time.perf_counter() - begin
        interval = of_share(share, len(right))
        scores.append(DepthScore(depth, share, interval.low, interval.high, flops[depth], seconds))
    return DepthScores(
        label or str(what),
        Path(task.source).name,
        "accuracy on dev",
        majority(gold, right),
        "the most frequent class",
        len(right),
        tuple(scores),
    )


def _some(part: Encoded, most: int) -> Encoded:
    count = len(part.examples)
    if count <= most:
        return part
    return part.some(np.sort(permutation(count, 0, "probe examples")[:most]).tolist())


def _labels(part: Encoded) -> np.ndarray[Any, np.dtype[np.int64]]:
    assert part.targets is not None
    return np.concatenate(part.targets)


def _batches(part: Encoded) -> Iterator[Packed]:
    for rows in batch_by_tokens(range(len(part.ids)), [len(ids) for ids in part.ids], TOKENS_PER_PASS):
        yield part.packed(rows)
