"""Everything that needs a GPU, checked and measured in one call, from the root of the repository.

    python -m benchmarks.gpu                   all parts, in nine minutes at most
    python -m benchmarks.gpu --only agreement  one part, or several
    python -m benchmarks.gpu --corpus FOLDER   at the end also ALBERT-base on that corpus, for the time left
    python -m benchmarks.gpu --rehearse        every line at toy size on a processor; measures nothing

Each part has a process and a limit of its own; one that fails, or that is not through in time, is reported
and the others are not lost. Forward passes, gradients and optimisers are compared with `tests/reference.py`
before anything is timed. The result is one JSON file: --out, or gpu.json in the folder that the variable OUT
names, or a dated file under benchmarks/results; it is written anew after every part. The exit code is 1 if a
part failed or found something wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from albertine.bench.machine import describe, save_result
from albertine.core.files import replace_durably
from benchmarks.gpu.parts import (
    PARTS,
    RECIPE,
    SHORTEST_RECIPE,
    STARTING,
    Budget,
    Part,
    guarded,
    isolated,
    recipe_part,
    status,
)
from benchmarks.gpu.place import Place

LEAST = 15.0
"""Seconds below which no part is begun."""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        "python -m benchmarks.gpu", None, __doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], metavar="PART")
    found.add_argument("--minutes", type=float, default=9.0, help="of the whole call, nine by default")
    found.add_argument("--rounds", type=int, default=10, help="how often each thing is timed")
    found.add_argument("--corpus", type=Path, help="also pretrain ALBERT-base on this prepared corpus")
    found.add_argument("--out", type=Path, help="file for the result")
    found.add_argument("--rehearse", action="store_true", help="toy size on a processor")
    found.add_argument("--child", metavar="PART", help=argparse.SUPPRESS)
    found.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    return found


def chosen(names: Sequence[str] | None) -> list[Part]:
    return [part for part in PARTS if names is None or part.name in names]


def child(arguments: argparse.Namespace, place: Place) -> None:
    """One part, in a process of its own."""
    if arguments.child == RECIPE:
        part = recipe_part(arguments.corpus, arguments.seconds)
    else:
        (part,) = chosen([arguments.child])
    guarded(part, place, arguments.out)


def run(arguments: argparse.Namespace, place: Place) -> dict[str, Any]:
    """All parts that there is time for."""
    budget, parts = Budget.of(arguments.minutes), chosen(arguments.only)
    if arguments.corpus is not None and not place.rehearsal:
        parts.append(recipe_part(arguments.corpus, STARTING + SHORTEST_RECIPE))
    found: dict[str, Any] = {}
    result = {"machine": describe(), "rehearsal": place.rehearsal, "minutes": 0.0, "parts": found}
    for part in parts:
        last = part.name == RECIPE
        least = part.seconds if last else LEAST
        print(f"{part.name} ({max(budget.left, 0):.0f} s left)", flush=True)
        begin = time.monotonic()
        if budget.left < least:
            record: dict[str, Any] = {"skipped": f"{budget.left:.0f} s were left of --minutes"}
        elif place.rehearsal:
            record = guarded(part, place)
        else:
            seconds = budget.left if last else min(part.seconds, budget.left)
            words = ["--child", part.name, "--rounds", str(place.rounds), "--seconds", f"{seconds:.0f}"]
            words += ["--corpus", str(arguments.corpus)] if last else []
            record = isolated(words, seconds)
        found[part.name] = {"status": status(record), "seconds": round(time.monotonic() - begin, 1), **record}
        result["minutes"] = round(arguments.minutes - budget.left / 60, 2)
        write(result, arguments)
    return result


def write(result: dict[str, Any], arguments: argparse.Namespace) -> None:
    out = arguments.out
    if out is None and "OUT" in os.environ:
        out = Path(os.environ["OUT"], "gpu.json")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(out, (json.dumps(result, indent=2) + "\n").encode())
    elif not arguments.rehearse:
        save_result(saved_as(arguments.only), result)


def saved_as(only: Sequence[str] | None) -> str:
    """As `benchmarks.gpu.section` looks for it; a part of the whole is never taken for all of it."""
    if only is None:
        return "gpu"
    if list(only) == ["passes of training as graphs"]:
        return "gpu-graphs"
    return "gpu-checks" if {"agreement", "every kind of model"} <= set(only) else "gpu-part"


def main() -> int:
    arguments = parser().parse_args()
    if not arguments.rehearse and not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device; torch sees none (--rehearse needs none)")
    place = Place(arguments.rehearse, arguments.rounds)
    if arguments.child:
        child(arguments, place)
        return 0
    result = run(arguments, place)
    words = {name: part["status"] for name, part in result["parts"].items()}
    print(json.dumps(words, indent=2))
    return 0 if set(words.values()) <= {"done", "skipped"} else 1


if __name__ == "__main__":
    raise SystemExit(main())
