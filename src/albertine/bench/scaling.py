"""How time and memory of a training step grow with length, batch, depth and width.

Every point is a process of its own, whose peak memory is read from the system.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from albertine.bench.inputs import inputs, pretraining
from albertine.bench.process import run
from albertine.bench.step import learn
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan

AXES: dict[str, tuple[int, ...]] = {
    "length": (32, 64, 128, 256, 512),
    "batch": (2, 4, 8, 16, 32),
    "depth": (2, 4, 8, 16, 24),
    "width": (256, 512, 768, 1024),
}
MIDDLE = {"length": 128, "batch": 8, "depth": 6, "width": 384}
"""Values of the other axes while one is varied."""

ROUNDS = 3


@dataclass(frozen=True)
class Point:
    """One training step, forward and backward.

    Attributes:
        milliseconds: of the fastest. megabytes: the peak above a process that only holds the model.
    """

    axis: str
    value: int
    milliseconds: float
    megabytes: float


def measure(threads: int) -> Iterator[Point]:
    """Every axis in turn, the others in the middle."""
    for axis, values in AXES.items():
        for value in values:
            shape = {**MIDDLE, axis: value}
            empty, _ = _child({**shape, "rounds": 0, "threads": threads})
            peak, seconds = _child({**shape, "rounds": ROUNDS, "threads": threads})
            yield Point(axis, value, 1e3 * seconds, peak - empty)


def _child(shape: dict[str, int]) -> tuple[float, float]:
    """Peak megabytes of a process that does it, and the seconds of its fastest step."""
    output, megabytes = run([sys.executable, "-m", "albertine.bench.scaling", json.dumps(shape)])
    return megabytes, float(output)


def _step(shape: dict[str, int]) -> float:
    """Seconds of the fastest step in this process."""
    torch.set_num_threads(shape["threads"])
    width = shape["width"]
    config = replace(
        preset("albert-base-v2"),
        hidden_size=width,
        intermediate_size=4 * width,
        num_attention_heads=width // 64,
        plan=SharingPlan.shared(shape["depth"]),
    )
    model = Model(config, ("mlm", "sop"), precision="auto").train()
    batch, _ = pretraining(inputs("point", [shape["length"]] * shape["batch"], config.vocab_size))
    best = float("inf")
    for _ in range(shape["rounds"] and shape["rounds"] + 1):
        begin = time.perf_counter()
        learn(model, batch)
        model.zero_grad(set_to_none=True)
        best = min(best, time.perf_counter() - begin)
    return best


if __name__ == "__main__":
    print(_step(json.loads(sys.argv[1])))
