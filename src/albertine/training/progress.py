"""Progress of a run: a bar on a terminal, plain lines at intervals elsewhere."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text


class _StandardError(Console):
    """Raises at a closed pipe, where rich's console would close standard output and exit."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(errno.EPIPE, "the reader of this pipe is gone")


class _Metrics(TextColumn):
    """The one column that is shortened on a narrow terminal: it may wrap, so that rich shrinks it first, and
    its text ends in an ellipsis instead."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class Reporter:
    """Shows the progress of a run; `quiet=True` on every rank but the main one. After an error of the
    terminal it is quiet, and the run continues.

    Args:
        console: default: standard error.
        every: seconds between plain lines where there is no terminal.
    """

    def __init__(self, console: Console | None = None, *, every: float = 30.0, quiet: bool = False) -> None:
        self.console = console or _StandardError()
        self.every, self.quiet = every, quiet
        self._bar: Progress | None = None
        self._task: Any = None
        self._last_line = float("-inf")
        self._text = ""
        self._warnings = _Warnings(self)

    def __enter__(self) -> Reporter:
        logging.getLogger("albertine.training").addHandler(self._warnings)
        if not self.quiet and self.console.is_terminal and not self.console.is_dumb_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                _Metrics("{task.fields[metrics]}", table_column=Column()),
                TimeElapsedColumn(table_column=Column(no_wrap=True)),
                TextColumn("left {task.fields[left]}"),
                console=self.console,
                transient=False,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task("starting", total=1.0, metrics="", left="?")
            with self._errors_ignored():
                self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        logging.getLogger("albertine.training").removeHandler(self._warnings)
        if self._bar is not None:
            with self._errors_ignored():
                self._bar.stop()
            self._bar = None

    def step(self, step: int, progress: float, left: float | None) -> None:
        """After every step.

        Args:
            progress: share of the run that is done.
            left: seconds to its end, None while unknown.
        """
        if self._bar is not None:
            self._bar.update(
                self._task,
                description=f"step {step}",
                completed=progress,
                metrics=self._text,
                left=clock(left),
            )
        elif not self.quiet and self._text and time.monotonic() - self._last_line >= self.every:
            self._line(f"step {step}  {100 * progress:.0f}%  {self._text}  left {clock(left)}")

    def metrics(self, row: Mapping[str, Any]) -> None:
        """After every metrics line: sets the text that `step` shows."""
        self._text = summary(row)

    def note(self, text: str) -> None:
        """Print a line, above the bar."""
        if not self.quiet:
            with self._errors_ignored():
                self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def _errors_ignored(self) -> Iterator[None]:
        """No run ends because its terminal was closed, its pipe has no reader (`2>&1 | head`) or the disk of
        its output is full: its folder has the same lines."""
        try:
            yield
        except OSError:
            self.quiet = True

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        self.note(text)


class _Warnings(logging.Handler):
    """Puts warnings above the bar instead of through it."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self.reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        self.reporter.note(f"{record.levelname.lower()}: {record.getMessage()}")


def summary(row: Mapping[str, Any]) -> str:
    """The main metrics of a line as text; scores of a task under their own names."""
    words = []
    for key, value in row.items():
        if not isinstance(value, int | float):
            continue
        if key.endswith("_accuracy"):
            words.append(f"{key.removesuffix('_accuracy')} {100 * value:.1f}%")
        elif key == "mean_steps":
            words.append(f"mean steps {value:.2f}")
        elif key == "loss" or key.endswith("_loss"):
            words.append(f"{key.replace('_', ' ')} {value:.3f}")
        elif "loss" not in row:
            words.append(f"{key.replace('_', ' ')} {value:.4f}")
    if "lr" in row:
        words.append(f"lr {row['lr']:.2e}")
    if "tokens_per_second" in row:
        words.append(f"{row['tokens_per_second']:,.0f} tokens/s")
    return "  ".join(words)


def clock(seconds: float | None) -> str:
    """Seconds as `1:02:03`, `4:05`, or `?`."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
