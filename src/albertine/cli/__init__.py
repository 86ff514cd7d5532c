"""The `albertine` command. Importing this package costs nothing; `main` builds the command table."""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage or input, 130 on Ctrl-C, 143 on SIGTERM."""
    from albertine.cli.app import run

    raise SystemExit(run())
