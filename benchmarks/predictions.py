"""How fast files are predicted and small tasks begin from Python, as parts of docs/results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.markdown import newest, table


def predicted_files(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "predict-file")) is None:
        return
    yield f"## A file of rows\n\n`python -m benchmarks.predict_file --save`, {found['date']}: "
    yield f"{found['rows']:,} texts of SST-2 through `predict classify --file` with a tiny model, the start "
    yield "of the program included, beside the same texts in memory.\n\n"
    rates = found["texts_a_second"]
    rows = [[name, f"{rate:,.0f}", f"{rates['file'] / rate:.2f}"] for name, rate in rates.items()]
    yield table(["", "texts a second", "file over it"], rows)
    peak = ", ".join(f"{name} {value:,.0f}" for name, value in found["peak_megabytes"].items())
    same = "the same" if found["the_same_after_kills"] else "another"
    yield f"\nPeak memory in MB: {peak}. Killed {found['kills']} times on its way it wrote {same} file.\n"


def from_python(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "from-python")) is None:
        return
    yield f"## From Python\n\n`python -m benchmarks.from_python --save`, {found['date']}: "
    times = (f"{name} {seconds:.2f} s" for name, seconds in found["import_seconds"].items())
    yield f"to import {', '.join(times)}. `albertine.finetune` from a frame of {found['rows']:,} sentences "
    yield f"of SST-2, one epoch: {found['first_call']['seconds']:.0f} s in a new process, "
    yield f"{found['second_call']['seconds']:.0f} s when called again.\n"
