"""A process that is run to its end, and the most memory that it held."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from albertine.errors import RunError

# Linux counts as a program's peak also what the process held before it became that program, which is what its
# parent held. So a small process is put in between.
BETWEEN = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code if code >= 0 else 128 - code)
"""


def call(command: Sequence[str], named: Sequence[str] | None = None) -> str:
    """The output of a command.

    Args:
        named: the command in messages; default: `command`.

    Raises:
        RunError: it fails; with its last line of output.
    """
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, capture_output=True, env=environment)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        last = (lines or [f"exit code {done.returncode}"])[-1]
        raise RunError(f"`{' '.join((named or command)[1:5])}` failed: {last[:300]}")
    return done.stdout.decode(errors="replace")


def megabytes(processes: Iterable[int]) -> float | None:
    """The memory of processes in MiB, with shared pages divided among them (PSS); None if the system does not
    report it."""
    try:
        reports = [Path(f"/proc/{each}/smaps_rollup").read_text(encoding="ascii") for each in processes]
    except OSError:
        return None
    return sum(int(text.split("\nPss:")[1].split()[0]) for text in reports) / 2**10


def run(command: Sequence[str]) -> tuple[str, float]:
    """The same with its peak memory in megabytes; takes a little longer."""
    with tempfile.TemporaryDirectory() as scratch:
        peak = Path(scratch) / "peak"
        output = call([sys.executable, "-I", "-S", "-c", BETWEEN, str(peak), *command], command)
        return output, int(peak.read_text()) / (2**20 if sys.platform == "darwin" else 2**10)
