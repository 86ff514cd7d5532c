"""Relative attention, memory and the second stream, as parts of docs/results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import relative_shift, sliding, xlnet_step
from benchmarks.intervals import interval
from benchmarks.markdown import Result, newest, newest_of_each, table


def steps(hardware: Path) -> Iterator[str]:
    speed, memory = (newest(hardware, f"xlnet-{part}") for part in ("speed", "memory"))
    if speed is None and memory is None:
        return
    yield "## A step of XLNet's pretraining\n\n`python -m benchmarks.xlnet_step --save`: forward and "
    yield "backward of the permutation LM beside transformers' XLNetLMHeadModel, from equal weights, with "
    yield "equal losses and gradients; theirs is in bfloat16 under autocast.\n\n"
    if speed is not None:
        yield f"{speed['date']}, {speed['threads']} threads: medians of the rounds in milliseconds; ratios "
        yield "are medians of those of single rounds.\n\n" + xlnet_step.table_of_speed(speed["points"]) + "\n"
    if memory is not None:
        middle, first = xlnet_step.MIDDLE, memory["points"][0]
        yield f"{memory['date']}, {memory['threads']} threads: peak megabytes of a process that makes a step "
        yield "above those of one that does everything else. "
        yield f"{first['batch']} segments of {middle.length} tokens, {middle.memory} remembered, "
        yield f"{middle.targets} predicted, {first['depth']} layers of {first['width']}; one of these is "
        yield "moved.\n\n" + xlnet_step.table_of_memory(memory["points"]) + "\n"


def shift(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "relative-shift")) is None:
        return
    yield "## The shift of relative scores\n\n`python -m benchmarks.relative_shift --save`, "
    yield f"{found['date']}, {found['threads']} threads: one sequence of {found['length']} tokens with a "
    yield f"memory of {found['memory']}, width {found['width']}; scores read as one view, and moved by "
    yield "reshapes. Medians of the rounds; peaks above a process that does everything else.\n\n"
    yield relative_shift.written(found["points"]) + "\n"


def transformer_xl(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "transformer-xl")) is None or (speed := found.get("speed")) is None:
        return
    yield "## A training step of Transformer-XL\n\n`python -m benchmarks.transformer_xl CODE --speed "
    yield f"--save`, {found['date']}: beside the published code, equal weights and losses, 8 segments of "
    yield "150 tokens with as many remembered, 4 layers of 410. Medians of the rounds in milliseconds.\n\n"
    yield "| step | ms | times as fast |\n| --- | ---: | ---: |\n"
    (peer, theirs), *ours = speed["runs"].items()
    yield f"| {peer} | {theirs['median_ms']:.0f} | 1.00 |\n"
    for name, run in ours:
        ratio = speed["ratios"].get(f"{name} / {peer}")  # none of a busy machine
        yield f"| {name} | {run['median_ms']:.0f} | {'' if ratio is None else f'{ratio:.2f}'} |\n"


def longer_memories(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "sliding")) is None:
        return
    yield "## Longer memories than in training\n\n`python -m benchmarks.sliding RUN CORPUS --save`, "
    yield f"{found['date']}, {found['run']}: held-out text in the segments of the training, and in short "
    yield "ones with longer memories; distances beyond the training's as they are, and clamped.\n\n"
    yield sliding.written(found["points"]) + "\n"


def tasks(hardware: Path) -> Iterator[str]:
    results = [newest(hardware, "xlnet-tasks"), *newest_of_each(hardware, "xlnet-tasks").values()]
    for number, found in enumerate(found for found in results if found is not None):
        yield "\n" if number else "## An XLNet tuned here and by transformers\n\n"
        yield from _tasks(found)


def _tasks(found: Result) -> Iterator[str]:
    first = found.get("first_seed", 1)
    yield f"`python -m benchmarks.xlnet_tasks FOLDERS --tasks {' '.join(found['runs'])}"
    yield f"{'' if first == 1 else f' --first {first}'} --save`, {found['date']}: equal random weights, in "
    yield "percent, one column a seed, ours and theirs; the mean of ours less theirs with its 95 % interval."
    yield "\n\n"
    rows, every = [], list[float]()
    for task, runs in found["runs"].items():
        gaps = [100 * (run["albertine"] - run["transformers"]) for run in runs]
        every += gaps
        scores = (f"{100 * run['albertine']:.1f}, {100 * run['transformers']:.1f}" for run in runs)
        rows.append([task, *scores, "{:+.2f} ± {:.2f}".format(*interval(gaps))])
    seeds = max(map(len, found["runs"].values()))
    rows.append(["all", *[""] * seeds, "{:+.2f} ± {:.2f}".format(*interval(every))])
    yield table(["task", *(f"seed {first + n}" for n in range(seeds)), "difference"], rows)
