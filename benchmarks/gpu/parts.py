"""The parts of the benchmark, the most important first, and how one is run so that it can hurt no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu import checks, graphs, kernels, rates, runs, ways
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.place import Place, standing_in

RECIPE = "recipe"
SHORTEST_RECIPE = 60.0
STARTING = 60.0
"""Seconds of a recipe's part that are not training: start, first compilation, and the model's last save."""


@dataclass(frozen=True)
class Part:
    """
    Attributes:
        run: fills in what it finds. seconds: after so many it is ended.
    """

    name: str
    run: Callable[[Place, Findings], None]
    seconds: float


PARTS = [
    Part("generators", checks.generators, 30),
    Part("agreement", checks.agreement, 150),
    Part("rows that see nothing", checks.blindness, 40),
    Part("optimizers", checks.optimizers, 40),
    Part("passes as graphs", checks.replays, 40),
    Part("every kind of model", ways.ways, 150),
    Part("ceilings", rates.ceilings, 40),
    Part("training albert-base-v2", partial(rates.training, "albert-base-v2"), 150),
    Part("encoding", rates.encoding, 90),
    Part("resuming", runs.resuming, 100),
    Part("training albert-xxlarge-v2", partial(rates.training, "albert-xxlarge-v2"), 150),
    Part("training albert-large-v2", partial(rates.training, "albert-large-v2"), 120),
    Part("training bert-base", partial(rates.training, "bert-base"), 120),
    Part("passes of training as graphs", graphs.graphs, 120),
    Part("training albert-base-v1", partial(rates.training, "albert-base-v1"), 120),
    Part("kernels", kernels.kernels, 90),
]


def recipe_part(corpus: Path, seconds: float) -> Part:
    """A run on a real corpus that takes what is left."""
    return Part(
        RECIPE, lambda place, found: runs.recipe(corpus, max(10.0, seconds - STARTING), found), seconds
    )


def guarded(part: Part, place: Place, path: Path | None = None) -> dict[str, Any]:
    """What a part found; an exception is part of it and goes no further."""
    found = Findings(path)
    try:
        with standing_in() if place.rehearsal else nullcontext():
            part.run(place, found)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        found.values["error"] = f"{type(error).__name__}: {lines[0][:300]}"
        found.values["traceback"] = traceback.format_exc().splitlines()[-12:]
        print(f"  FAILED: {found.values['error']}", flush=True)
        found.write()
    return found.as_dict()


def isolated(words: Sequence[str], seconds: float) -> dict[str, Any]:
    """What `python -m benchmarks.gpu … --out FILE` of one part found, in a process of its own: a kernel that
    fails takes the whole context of the card with it, and a compilation that hangs cannot be interrupted."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "found.json")
        command = [sys.executable, "-m", "benchmarks.gpu", *words, "--out", str(path)]
        child = subprocess.Popen(command, start_new_session=True)
        ended = None
        try:
            code = child.wait(timeout=max(seconds, 0.1))
            ended = f"the process ended with code {code}" if code else None
        except subprocess.TimeoutExpired:
            ended = f"ended after {seconds:.0f} s; what it had found is kept"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # its compilers and loaders too
            child.wait()
        record = json.loads(path.read_text()) if path.exists() else {}
        return {**record, **({"error": ended} if ended and "error" not in record else {})}


@dataclass
class Budget:
    """The time of the whole call."""

    seconds: float
    begin: float

    @classmethod
    def of(cls, minutes: float) -> Budget:
        return cls(60 * minutes, time.monotonic())

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begin)


def status(record: dict[str, Any]) -> str:
    """The status in one word."""
    if "error" in record:
        return "failed"
    return "wrong" if record.get("wrong") else "skipped" if "skipped" in record else "done"
