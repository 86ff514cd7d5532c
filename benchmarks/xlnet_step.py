"""A step of XLNet's pretraining beside transformers' XLNetLMHeadModel: time, and the most memory held.

    python -m benchmarks.xlnet_step --save
    python -m benchmarks.xlnet_step --parts speed --widths 256 --shapes short --rounds 5

Both have equal weights, read from one folder, and compute the loss and all gradients of the same tokens,
segments, memory, order of factorisation and targets, half of the sequences backward, without dropout; that
losses and gradients are equal is asserted first. `speed` times them in turn: segments of 128 tokens with a
memory of 96 and 20 targets, and 512, 384 and 85 as in XLNet's own pretraining command, in float32 and in
bfloat16, for which transformers runs under autocast. `memory` is the peak of a process that makes one
step, above that of one that only holds the model: longer segments, more targets, more memory.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch

from albertine.bench.interleaved import compete
from albertine.bench.process import run
from albertine.core.precision import InferencePrecision
from benchmarks.keep import keep
from benchmarks.markdown import table
from benchmarks.xlnet_pair import (
    FORMATS,
    OURS,
    THEIRS,
    Shape,
    batch_of,
    our_model,
    our_step,
    steps_of,
    their_model,
    their_step,
)

SHAPES = {"short": Shape(256, 4, 16, 128, 96, 20), "paper": Shape(256, 4, 4, 512, 384, 85)}
DEPTHS = {256: 4, 768: 2}
MIDDLE = Shape(256, 4, 4, 256, 192, 43)
AXES = {"length": (128, 256, 512, 1024), "targets": (1, 21, 43, 85), "memory": (0, 192, 384, 768)}


def speed(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every shape at every width."""
    for name in options.shapes:
        for width in options.widths:
            depth, batch = options.depth or DEPTHS.get(width, 2), options.batch or SHAPES[name].batch
            shape = replace(SHAPES[name], width=width, depth=depth, batch=batch)
            steps, apart = steps_of(shape)
            contest = compete(steps, options.rounds, options.threads)
            pairs = [(f"{OURS} {precision}", f"{THEIRS} {precision}") for precision in FORMATS]
            yield {
                "shape": name,
                **asdict(shape),
                **contest.as_dict(),
                "ratios": contest.ratios(pairs),
                "loss": {way: losses[0] for way, losses in contest.outputs.items()},
                "apart": apart,
            }


def table_of_speed(points: list[dict[str, Any]]) -> str:
    """A line a shape and width: milliseconds of both, and how many times faster ours is."""
    rows = []
    for point in points:
        sizes = f"{point['batch']} × {point['length']} / {point['memory']} / {point['targets']}"
        row = [f"{sizes}, {point['depth']} × {point['width']}"]
        for precision in FORMATS:
            ways = f"{THEIRS} {precision}", f"{OURS} {precision}"
            row += [f"{point['runs'][way]['median_ms']:.0f}" for way in ways]
            ratio = point["ratios"].get(f"{ways[1]} / {ways[0]}")
            row.append("" if ratio is None else f"{ratio:.2f}")
        rows.append(row)
    heads = [f"{head} {precision}" for precision in FORMATS for head in (THEIRS, OURS, "ratio")]
    return table(["batch × length / memory / targets, depth × width", *heads], rows)


def memory(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Peak megabytes of a step of both, each axis moved away from the middle."""
    middle = replace(MIDDLE, depth=options.depth or MIDDLE.depth, batch=options.batch or MIDDLE.batch)
    for axis, values in AXES.items():
        for value in values if options.points is None else values[: options.points]:
            shape = replace(middle, **{axis: value})
            peaks = {
                f"{program} {precision}": peak(program, shape, precision, options.threads)
                for precision in FORMATS
                for program in (OURS, THEIRS)
            }
            yield {"axis": axis, **asdict(shape), "megabytes": peaks}


def peak(program: str, shape: Shape, precision: str, threads: int) -> float:
    """Of a process that makes a step, above that of one that does everything else."""
    given = ["--child", json.dumps(asdict(shape)), program, precision, str(threads)]
    command = [sys.executable, "-m", "benchmarks.xlnet_step", *given]
    whole, empty = (run([*command, steps])[1] for steps in "10")
    return whole - empty


def child(settings: str, program: str, precision: InferencePrecision, threads: str, steps: str) -> None:
    torch.set_num_threads(int(threads))
    shape = Shape(**json.loads(settings))
    batch = batch_of(shape)
    if program == OURS:
        step = our_step(our_model(shape), shape, batch, precision)
    else:
        step = their_step(their_model(shape), shape, batch, precision)
    for _ in range(int(steps)):
        step()


def table_of_memory(points: list[dict[str, Any]]) -> str:
    """A line a point: megabytes of both."""
    ways = list(points[0]["megabytes"])
    rows = [[f"{p['axis']} {p[p['axis']]}", *(f"{p['megabytes'][way]:.0f}" for way in ways)] for p in points]
    return table(["moved", *ways], rows)


PARTS = {"speed": (speed, table_of_speed), "memory": (memory, table_of_memory)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--widths", nargs="+", type=int, default=list(DEPTHS))
    parser.add_argument("--depth", type=int, help="default: 4, of width 768 2")
    parser.add_argument("--batch", type=int, help="default: as many as 2,048 tokens, for memory 4")
    parser.add_argument("--points", type=int, help="of each axis of `memory` only the first so many")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--save", action="store_true", help="keep the results below benchmarks/results")
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    torch.set_num_threads(options.threads)
    for part in options.parts:
        measure, written = PARTS[part]
        points = []
        for point in measure(options):
            points.append(point)
            print(written([point]), flush=True)
        if options.save:
            keep(f"xlnet-{part}", {"threads": options.threads, "points": points})
        print(written(points))


if __name__ == "__main__":
    main()
