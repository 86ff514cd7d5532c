"""What a command is given besides its arguments."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import typer


def all_lines() -> Iterator[str]:
    """The lines of standard input, as they come; on a terminal a usage error, at once."""
    if sys.stdin.isatty():
        raise typer.BadParameter("give a text, or pipe lines in", param_hint="TEXT")
    return (line.rstrip("\n") for line in sys.stdin)


def lines() -> list[str]:
    """Those that hold anything."""
    return [line for line in all_lines() if line.strip()]
