"""The `albertine` command. Importing this package costs nothing; `main` builds the command table."""

from __future__ import annotations

import gc


def main() -> None:
    """Run the command line and exit with its code: 0, 1 failed, 2 wrong usage or input, 130, 143."""
    from albertine.cli.app import run

    code = run()
    gc.freeze()  # else Python looks through all of torch once more before it ends, a quarter of a second
    raise SystemExit(code)
