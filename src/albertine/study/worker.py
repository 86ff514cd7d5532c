"""The process of one unit: `python -m albertine.study.worker FOLDER`, with a pipe as standard input.

The pipe is held by the process that began it. When that ends, however it ends, this one saves its run and
ends too, so that no unit of a killed study goes on by itself.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path


def main() -> int:
    """Compute the unit; its exit code."""
    threading.Thread(target=_watch, daemon=True).start()
    from albertine.study.work import compute

    return compute(Path(sys.argv[1]))


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
