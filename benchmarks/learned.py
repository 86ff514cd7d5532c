"""What small models learn, as parts of docs/results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from albertine.bench.machine import saved_results
from benchmarks.ladder import table as rungs
from benchmarks.markdown import newest, newest_of_each, table
from benchmarks.universal import TASKS, table_of_algorithms, table_of_pondering


def ladder(hardware: Path) -> Iterator[str]:
    """A table for each budget, the newest first, of every row as it was measured last."""
    budgets: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for path in saved_results(hardware, "ladder"):
        found = json.loads(path.read_text(encoding="utf-8"))
        until = f"--steps {found['steps']}" if "steps" in found else f"--minutes {found['minutes']:g}"
        rows = budgets.setdefault(f"corpora/{found['corpus']} {until} --threads {found['threads']}", {})
        runs = [run | {"date": path.name[:10]} for run in found["runs"]]
        for row in dict.fromkeys(run["row"] for run in runs):
            rows.setdefault(row, [run for run in runs if run["row"] == row])
    if not budgets:
        return
    yield "## What helps to learn from little text\n\nPretraining runs that differ in one thing, judged by "
    yield "the same masked tokens of held-out text, all of them [MASK]; numbers in brackets are decisions.\n"
    for budget, rows in budgets.items():
        every = [run for runs in rows.values() for run in runs]
        seeds = ",".join(map(str, sorted({run["seed"] for run in every})))
        budget += "" if seeds == "1" else f" --seeds {seeds}"
        yield f"\n`python -m benchmarks.ladder {budget} --rows {','.join(rows)} --save`:\n\n{rungs(every)}\n"


def blocks(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "blocks")) is None:
        return
    yield "## A training step of each kind of block\n\n`python -m benchmarks.blocks --save`, "
    yield f"{found['date']}: {found['tokens']:,} tokens in samples of {found['length']}, one shared block; "
    yield "least of its rounds.\n\n"
    whole = {name: sum(row.values()) for name, row in found["milliseconds"].items()}
    first = next(iter(whole.values()))
    rows = [
        [name, *(f"{row[part]:.0f}" for part in ("gradients", "update")), f"{whole[name] / first:.2f}"]
        for name, row in found["milliseconds"].items()
    ]
    yield table(["block", "gradients, ms", "Muon's update, ms", "whole step over ALBERT's"], rows)


def tuned(hardware: Path) -> Iterator[str]:
    for language, found in newest_of_each(hardware, "tuned").items():
        words = ["--contestants", *found["contestants"]]
        if tasks := list(found.get("tasks", ())):
            words += ["--tasks", *tasks]
        for written in sorted(hardware.glob(f"????-??-??-tuned-{language}.md"))[-1:]:
            yield f"## Tuned for tasks, {language}\n\n`python -m benchmarks.tuned {found['model']} "
            yield f"{' '.join(words)} --save` (with `--steps` where the table has others than the task), "
            yield f"{written.name[:10]}. {written.read_text(encoding='utf-8')}\n"


def distilled(hardware: Path) -> Iterator[str]:
    """The students of the released models, of both languages under one heading."""
    written = [sorted(hardware.glob(f"????-??-??-distilled-{name}.md"))[-1:] for name in ("en", "zh")]
    if not any(written):
        return
    yield "## A student of two layers\n\n`python -m benchmarks.distilled LANGUAGE RUN --seeds 3 --save`: a "
    yield "student of the released model, made by its recipe (`albertine distill`), tuned beside its "
    yield "teacher with the same steps, rate and batch; it also learns from its tuned teacher's predictions "
    yield "for the training rows, but for sts-b. Columns of `--beside`: `cut`, the teacher's first and "
    yield "third layer as they are, and `untrained`, both tuned on labels alone. Scored once, at the end; "
    yield "`kept` is the student's score over its teacher's, of the same seed. Of several seeds of tuning "
    yield "the mean and half the width of its 95 % interval. Since 2026-11-25 heads of sts-b, sick and lcqmc "
    yield "use the first layer only.\n"
    for path in (path for found in written for path in found):
        yield f"\n{path.stem[-2:]}, {path.name[:10]}:\n\n{path.read_text(encoding='utf-8')}\n"


def vectors(hardware: Path) -> Iterator[str]:
    for language, found in newest_of_each(hardware, "vectors").items():
        yield f"## Vectors of texts without tuning, {language}\n\n`python -m benchmarks.vectors "
        yield f"{found['model']} --text TEXT --save`, {found['date']}: Spearman's correlation of the cosines "
        yield f"with the scores of dev sets, {found['pairs']:,} pairs at most; whitening is measured on "
        yield f"{found['sentences']:,} sentences of other text.\n\n"
        sets = list(next(iter(found["spearman"].values())))
        rows = [[way, *(f"{row[s]:.3f}" for s in sets)] for way, row in found["spearman"].items()]
        yield table(["mean over the tokens of", *sets], rows) + "\n"


def loops(hardware: Path) -> Iterator[str]:
    if not (found := newest_of_each(hardware, "universal")):
        return
    yield "## What a loop learns\n\n`python -m benchmarks.universal --save`, with "
    sizes = (f"{x['depth']} layers and {x['steps']} updates for {part}" for part, x in found.items())
    yield f"{', '.join(sizes)}, one seed, {' and '.join(sorted({x['date'] for x in found.values()}))}."
    if runs := [run for part in TASKS if part in found for run in found[part]["runs"]]:
        yield " Learned from sequences of up to 40 symbols, judged on others of up to 40 and on sequences of "
        yield "400: symbols and whole sequences that are right.\n\n"
        yield table_of_algorithms(runs) + "\n"
    for part in (name for name in found if name.startswith("pondering")):
        yield f"Sums of up to {found[part].get('longest', 40)} digits, with a price on every step: mean "
        yield "steps of a digit of the sum, and Spearman's correlations: of them with the sum's length, of "
        yield "the steps until all of the sum has halted with its length, of the mean with its longest run "
        yield "of carries.\n\n"
        yield table_of_pondering(found[part]["runs"]) + "\n"
