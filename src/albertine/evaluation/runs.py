"""Records, predictions and curves of finished runs, read from their folders.

The record `result.json` holds data, model and scores. A rescored run and an ensemble have the same files, so
a report takes any of them.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertine.core.files import (
    MAX_JSON_BYTES,
    os_errors_as_run_errors,
    read_regular,
    replace_durably,
    to_json,
    write_json,
)
from albertine.errors import RunError
from albertine.training.metrics import curve

RECORD = "result.json"


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: of the run.
        record: its `result.json`: name, data, seed, metrics, scores (of the best model on dev, with its
            `step`), test, notes, seconds, encoder, model, pretraining, as far as they are known.
    """

    folder: Path
    record: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.record.get("name", self.folder.name))

    @property
    def metrics(self) -> list[str]:
        return list(self.record["metrics"])

    @property
    def scores(self) -> dict[str, float]:
        return dict(self.record["scores"])

    @property
    def test(self) -> dict[str, float]:
        return dict(self.record.get("test") or {})

    @property
    def scored_again(self) -> bool:
        """Whether it was written by `evaluate`, under the name of the run that it scored."""
        return "model_folder" in self.record

    @property
    def predictions(self) -> list[dict[str, Any]]:
        """The predictions on dev, or on test where there is no dev; empty without either."""
        split = "dev" if predictions_file(self.folder, "dev").is_file() else "test"
        return read_predictions(self.folder, split)

    def curve(self, key: str, *, evaluated: bool = False) -> list[tuple[float, float]]:
        """(step, value) of a key of `metrics.jsonl`, of the evaluations on dev or of training."""
        return curve(self.folder / "metrics.jsonl", key, evaluated=evaluated)


def read_run(folder: Path) -> Run:
    """A finished run.

    Raises:
        RunError: the folder holds none.
    """
    path = folder / RECORD
    try:
        record = json.loads(read_regular(path, MAX_JSON_BYTES))
        if not (isinstance(record["metrics"], list) and isinstance(record["scores"], dict)):
            raise ValueError("it has no metrics and scores")
    except OSError as error:
        raise RunError(
            f"has no {RECORD}, so it is no finished run of a task",
            where=folder,
            remedy="Name the folder of a run of `albertine finetune`; the same command finishes it",
        ) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RunError(f"is not a record of a run ({error})", where=path) from error
    return Run(folder, record)


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the record of a run into its folder."""
    with os_errors_as_run_errors(folder / RECORD):
        write_json(folder / RECORD, record)


def write_predictions(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """One JSON object a line, an example each."""
    with os_errors_as_run_errors(path):
        text = "".join(to_json(line) + "\n" for line in lines)
        replace_durably(path, text.encode())


def read_predictions(folder: Path, split: str) -> list[dict[str, Any]]:
    """A run's predictions for a split, one an example; empty without the file.

    Raises:
        RunError: the file is damaged.
    """
    path = predictions_file(folder, split)
    if not path.is_file():
        return []
    try:
        # not splitlines(): texts hold U+2028 and other line separators, which JSON writes as they are
        return [{**json.loads(line)} for line in path.read_text("utf-8").split("\n") if line]
    except (ValueError, TypeError, RecursionError) as error:
        remedy = "Copy it again from where it was written; without the file, predictions are left out"
        raise RunError(f"is damaged ({error})", where=path, remedy=remedy) from error


def predictions_file(folder: Path, split: str) -> Path:
    """The path of a run's predictions for a split."""
    return folder / f"predictions-{split}.jsonl"


def without_seed(name: str) -> str:
    """The name that the runs of several seeds share."""
    return re.sub(r"-seed-\d+$", "", name)


@dataclass(frozen=True)
class Spread:
    """A metric over the runs of several seeds, whose median the ALBERT paper reports.

    Attributes:
        values: in the order of the seeds, at least one.
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the sample; None for one run."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def as_dict(self) -> dict[str, object]:
        """As JSON data."""
        return {"median": self.median, "deviation": self.deviation, "values": self.values}
