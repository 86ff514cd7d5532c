"""Metrics of a run: sums over a window of steps, written as JSON lines and to TensorBoard."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from albertine.core.files import os_errors_as_run_errors, replace_durably, sync_folder
from albertine.training.step import StepReport

TIMINGS = ("elapsed", "tokens_per_second")
"""The only keys of a metrics line that differ between a resumed run and one that was never interrupted."""


COUNTED = {
    "ponder": "mean_steps",
    "soft": "agreement",
    "elastic_mlm": "elastic_mlm_agreement",
    "elastic_causal": "elastic_causal_agreement",
    "elastic_sentence": "elastic_sentence_agreement",
}
"""Metric names of `correct / count` for the parts of a loss where it is not an accuracy."""
PENALTIES = frozenset({"jacobian", "hidden", "attention"})
"""Parts of a loss without predictions, and so without accuracy."""
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""Environment variable with TensorFlow's log level."""


class RunningSums:
    """Sums over the steps since the last metrics line; part of a checkpoint, so that a line may span a
    restart.

    Attributes:
        parts: sums of every part of the loss: nats, predictions, correct ones, and nats times its weight.
    """

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        saved = saved or {"steps": 0, "tokens": 0, "grad_norm": 0.0, "parts": {}, "extra": {}}
        self.steps: int = saved["steps"]
        self.tokens: int = saved["tokens"]
        self.grad_norm: float = saved["grad_norm"]
        self.parts: dict[str, list[float]] = {
            name: [*sums, sums[0]][:4]  # checkpoints of before weights have three sums
            for name, sums in saved["parts"].items()
        }
        self.extra: dict[str, list[float]] = {name: list(sums) for name, sums in saved["extra"].items()}

    def add(self, report: StepReport) -> None:
        """Add a step whose update was made."""
        self.steps += 1
        self.tokens += report.tokens
        self.grad_norm += report.grad_norm
        for name, part in report.parts.items():
            sums = self.parts.setdefault(name, [0.0, 0, 0, 0.0])
            values = (part.loss_sum, part.count, part.correct, part.weight * part.loss_sum)
            for i, value in enumerate(values):
                sums[i] += value
        for name, pair in report.extra.items():
            before = self.extra.get(name, [0.0, 0.0])
            self.extra[name] = [a + b for a, b in zip(before, pair, strict=True)]

    def means(self) -> dict[str, float]:
        """Loss (nats per prediction) and accuracy of every part, weighted total loss, mean gradient norm and
        the extra metrics; of ponder costs the mean number of steps."""
        row: dict[str, float] = {}
        whole = 0.0
        for name, (loss, count, correct, weighted) in sorted(self.parts.items()):
            if count:
                row[f"{name}_loss"] = loss / count
                whole += weighted / count
                if name not in PENALTIES:
                    row[COUNTED.get(name, f"{name}_accuracy")] = correct / count
        row["loss"] = whole
        if self.steps:
            row["grad_norm"] = self.grad_norm / self.steps
        return row | {name: total / count for name, (total, count) in self.extra.items() if count}

    def saved(self) -> dict[str, Any]:
        """As JSON data."""
        return vars(self)


class MetricsFile:
    """`metrics.jsonl`: one JSON object a line, each with the `step` after which it was written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with os_errors_as_run_errors(path):
            self._file = path.open("a", encoding="utf-8")
            sync_folder(path.parent)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a line; NaN and infinity become null, because JSON has neither.

        Raises:
            RunError: the disk is full.
        """
        with os_errors_as_run_errors(self.path):
            self._file.write(json.dumps(_plain(row), ensure_ascii=False) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Flush to disk: before a checkpoint, so that the lines up to its step are as durable as it is."""
        with os_errors_as_run_errors(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file.

        Raises:
            RunError: the disk is full.
        """
        with os_errors_as_run_errors(self.path):
            self._file.close()


PERMUTATION = "plm_"
"""Prefix of the metrics of permutation language modelling in a metrics file; in memory it is that of masked
language modelling."""


def as_written(row: Mapping[str, Any]) -> dict[str, Any]:
    """A line of permutation language modelling, with its names in the file."""
    return _renamed(row, "mlm_", PERMUTATION)


def _renamed(row: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
    return {
        after + key.removeprefix(before) if key.startswith(before) else key: _renamed(value, before, after)
        if isinstance(value, Mapping)
        else value
        for key, value in row.items()
    }


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file, without a last line that a crash cut off; empty without the file.

    Loss and accuracy of predicted tokens are `mlm_loss` and `mlm_accuracy` for every objective.
    """
    return [_renamed(row, PERMUTATION, "mlm_") for row in _lines(path)]


def _lines(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    if not path.is_file():
        return rows
    for line in path.read_bytes().split(b"\n"):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows


def curve(path: Path, key: str, *, evaluated: bool = False) -> list[tuple[float, float]]:
    """(step, value) of a metric, such as `mlm_loss` or `plm_loss`.

    Args:
        evaluated: of the evaluations; else of the training batches.
    """
    key = next(iter(_renamed({key: None}, PERMUTATION, "mlm_")))
    rows = read_metrics(path)
    if evaluated:
        rows = [{"step": row["step"], **row["evaluation"]} for row in rows if "evaluation" in row]
    return [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]


def cut_metrics(path: Path, lines: int) -> None:
    """Keep the first lines of a metrics file, those before a checkpoint; a resumed run repeats the others."""
    if path.is_file():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _lines(path)[:lines])
        with os_errors_as_run_errors(path):
            replace_durably(path, text.encode())


class TensorBoard:
    """A TensorBoard event writer.

    Args:
        folder: of the event files.
        step: at which the run resumes; later events are hidden.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self._folder = folder
        with _silent_tensorflow():
            # Not at the top: the import takes seconds and writes to standard error.
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, row: Mapping[str, Any], prefix: str = "train") -> None:
        with os_errors_as_run_errors(self._folder):
            for key, value in row.items():
                if isinstance(value, int | float) and key != "step" and math.isfinite(value):
                    self._writer.add_scalar(f"{prefix}/{key}", value, row["step"])

    def close(self) -> None:
        with os_errors_as_run_errors(self._folder):
            self._writer.close()


@contextmanager
def _silent_tensorflow() -> Iterator[None]:
    """No messages of TensorFlow, which tensorboard imports if it is installed, within the block only: the
    variable must not reach the program or its child processes."""
    given = LOG_LEVEL in os.environ
    os.environ.setdefault(LOG_LEVEL, "3")
    try:
        yield
    finally:
        if not given:
            os.environ.pop(LOG_LEVEL, None)


def open_tensorboard(folder: Path, step: int) -> TensorBoard | None:
    """A writer, or None where tensorboard is not installed, or too old for the installed NumPy."""
    try:
        return TensorBoard(folder, step)
    except (ImportError, AttributeError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
