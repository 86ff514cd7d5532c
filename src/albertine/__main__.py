"""`python -m albertine` is the `albertine` command."""

from __future__ import annotations

from albertine.cli import main

if __name__ == "__main__":
    main()
