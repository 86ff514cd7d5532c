"""Where the time of a step and of a text goes: the card's kernels by name, and how long it waits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import albertine
from albertine.bench.inputs import inputs
from albertine.model.model import Model
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.place import Place
from benchmarks.gpu.rates import LENGTH, SEQUENCES, Work, _ours, saved, shape_of

SHOWN = 14
PRESET = "albert-base-v2"


def kernels(place: Place, found: Findings) -> None:
    """A training step of ALBERT-base, plain and compiled, and one text through it."""
    torch.set_float32_matmul_precision("high")
    shape = shape_of(PRESET, place)
    sequences, length = (2, 32) if place.rehearsal else (SEQUENCES[PRESET], LENGTH)
    work = Work.of(shape, sequences, length, 1.0)
    with saved(shape) as folder:
        for name, compiled in (("a step", False), ("a compiled step", True)):
            place.freed()
            step = _ours(folder, place, "adamw", compiled, False)(work)
            found.note(name, timed(place, step))
        model: Model = place.ready(albertine.load(folder)).eval()
        model.precision = "bfloat16"
        packed = inputs("gpu", [32], shape.vocab_size).packed.to(place.device)
        with torch.inference_mode():
            found.note("one text of 32", timed(place, lambda: model.encoder(packed)))


def timed(place: Place, run: Callable[[], Any], rounds: int = 3) -> dict[str, Any]:
    """Milliseconds a round by the clock and of kernels, their number, and the longest of them by name."""
    for _ in range(3):
        run()
    place.wait()
    begin = time.perf_counter()
    for _ in range(rounds):
        run()
    place.wait()
    clock = 1e3 * (time.perf_counter() - begin) / rounds
    kind = ProfilerActivity.CPU if place.rehearsal else ProfilerActivity.CUDA
    with profile(activities=[kind]) as watched:
        for _ in range(rounds):
            run()
        place.wait()
    spent: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for event in watched.events() or []:
        took = event.self_cpu_time_total if place.rehearsal else event.self_device_time_total
        if took > 0:
            spent[event.name] += took
            times[event.name] += 1
    longest = {
        name[:110]: [round(took / 1e3 / rounds, 3), times[name] / rounds]
        for name, took in spent.most_common(SHOWN)
    }
    all_ms = sum(spent.values()) / 1e3 / rounds
    return {
        "clock_ms": clock,
        "kernels_ms": all_ms,
        "kernels": sum(times.values()) / rounds,
        "longest": longest,
    }
