"""What a command prints: tables and bars on a terminal, plain lines and JSON elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import typer

from albertine.core.files import to_json
from albertine.errors import NotFinite

Item = TypeVar("Item")
Answer = TypeVar("Answer")
LINE_EVERY = 10.0  # seconds, off a terminal


def on_terminal() -> bool:
    """Whether a person is looking at standard output."""
    return sys.stdout.isatty()


def _dumb() -> bool:
    """Whether the terminal can neither go back nor print bold."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def heading(text: str) -> None:
    """A line that begins a part of a report."""
    typer.secho(text, bold=True) if on_terminal() and not _dumb() else typer.echo(text)


def as_json(data: Any, *, indent: int | None = 2) -> None:
    """`data` as JSON, indented or on one line, Chinese written as it is where the output can hold it."""
    text = to_json(data, indent=indent)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = to_json(data, indent=indent, ensure_ascii=True)
    typer.echo(text)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A table, first column to the left and the others to the right; aligned plain text off a terminal."""
    cells = [[str(value) for value in row] for row in rows]
    if on_terminal():
        _rich_table(columns, cells, title)
    else:
        _plain_table(columns, cells, title)


def facts(title: str, values: Mapping[str, object]) -> None:
    """Names and values in two columns under a title."""
    from rich.cells import cell_len

    width = max(map(cell_len, values))
    heading(title)
    for name, value in values.items():
        typer.echo(f"  {name}{' ' * (width - cell_len(name))}  {value}")


def notes(lines: Sequence[str]) -> None:
    """What a person should know beside the result, on standard error."""
    for line in lines:
        typer.echo(f"albertine: {line}", err=True)


def _rich_table(columns: Sequence[str], cells: list[list[str]], title: str | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for index, name in enumerate(columns):
        drawn.add_column(name, justify="right" if index else "left", overflow="fold")
    for row in cells:
        drawn.add_row(*map(escape, row))
    Console().print(drawn)


def _plain_table(columns: Sequence[str], cells: list[list[str]], title: str | None) -> None:
    from rich.cells import cell_len  # counts the two columns that a Chinese character takes

    lines = [list(columns), *cells]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(columns))]
    if title:
        typer.echo(title)
    for line in lines:
        gaps = [" " * (width - cell_len(text)) for width, text in zip(widths, line, strict=True)]
        first, *rest = [
            text + gap if i == 0 else gap + text for i, (text, gap) in enumerate(zip(line, gaps, strict=True))
        ]
        typer.echo("  ".join([first, *rest]).rstrip())
    typer.echo()


def count(number: float) -> str:
    """A whole number with separators: 11,683,584."""
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Bytes in decimal units: 46.7 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def operations(number: float) -> str:
    """Floating-point operations in decimal units: 597 MFLOP."""
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {unit}FLOP"
        number /= 1000
    return f"{number:.3g} TFLOP"


def stopped(resume: str, at: str = "") -> None:
    """Print how to continue a stopped run: with a named checkpoint it would start from that again. A closed
    terminal is no error."""
    again = "the same command" if resume == "auto" else "the same command with --resume auto"
    with suppress(OSError):
        typer.echo(f"Stopped{at} and saved; {again} goes on from there.")


def predicted(
    groups: Iterable[Sequence[Item]], predict: Callable[[Sequence[Item]], Sequence[Answer]]
) -> Iterator[tuple[Item, Answer]]:
    """Every item with its prediction, as `predict` returns them for a group.

    An item whose prediction is not finite is named on standard error and skipped.

    Raises:
        typer.Exit: in the end, with code 1, where there was such an item.
    """
    place, failed = 0, False
    for group in groups:
        for item, answer in zip(group, _predictions(group, predict), strict=True):
            place += 1
            if answer:
                yield item, answer[0]
            else:
                failed = True
                typer.echo(f"albertine: {NotFinite.of_items('text', [place - 1])}", err=True)
    if failed:
        raise typer.Exit(1)


def _predictions(
    group: Sequence[Item], predict: Callable[[Sequence[Item]], Sequence[Answer]]
) -> list[tuple[Answer] | None]:
    """None where a prediction is not finite; these are found by bisection."""
    try:
        return [(answer,) for answer in predict(group)]
    except NotFinite:
        if len(group) == 1:
            return [None]
        middle = len(group) // 2
        return _predictions(group[:middle], predict) + _predictions(group[middle:], predict)


def cut(texts: int) -> None:
    """Warn of texts that lost tokens, if there are any."""
    if texts:
        typer.echo(f"warning: {texts:,} texts were too long and lost their end", err=True)


def layers_used(count_of: Mapping[int, int], depth: int) -> None:
    """Print the mean number of layers with early exit, if there was any."""
    if total := sum(count_of.values()):
        mean = sum(layers * count for layers, count in count_of.items()) / total
        typer.echo(f"early exit: {mean:.1f} of {depth} layers a text on average", err=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar with time left on a terminal, a line every ten seconds elsewhere.

    Yields:
        update(done, total): how much is done of how much, `total` None where it is not known.
    """
    if not sys.stderr.isatty() or _dumb():
        yield _lines(what)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(what: str) -> Callable[[int, int | None], None]:
    printed = time.monotonic()
    first: tuple[float, int] | None = None  # when, and how much: an earlier command may have done that

    def update(done: int, total: int | None) -> None:
        nonlocal printed, first
        now = time.monotonic()
        begin, before = first = first or (now, done)
        if now - printed < LINE_EVERY:
            return
        printed, here = now, done - before
        of = f" of {total:,}" if total else ""
        left = f", {(now - begin) * (total - done) / here:.0f} s left" if total and here else ""
        typer.echo(f"{what}: {done:,}{of}{left}", err=True)

    return update
