"""The results of a contest as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from benchmarks.markdown import table
from benchmarks.tuned.contest import Result
from benchmarks.tuned.tasks import Task


def in_markdown(results: Iterable[Result], tasks: Mapping[str, Task], note: str | None = None) -> str:
    """A row a task, a column a contestant: the median of its seeds and their range, in points; what must be
    known of a task, and with `note` of the model, below."""
    found: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        found.setdefault((result["task"], result["contestant"]), []).append(result)
    names = list(dict.fromkeys(name for name, _ in found))
    everyone = sorted(dict.fromkeys(who for _, who in found), key=lambda who: who != "model")
    rows = [
        [
            name,
            tasks[name].metric,
            f"{next(r['steps'] for (n, _), rs in found.items() for r in rs if n == name):,}",
            *(_cell(found.get((name, who), [])) for who in everyone),
        ]
        for name in names
    ]
    seeds = sorted({result["seed"] for rows in found.values() for result in rows})
    numbers = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    head = (
        f"Tuned for the steps below, {numbers}; everyone has the same steps, rate and batch. "
        "Median, lowest and highest over the seeds, and their number, judged once at the end.\n\n"
    )
    notes = [f"\n- {name}: {tasks[name].note}." for name in names if tasks[name].note]
    notes += [f"\n- model: {note}."] if note else []
    return head + table(["task", "metric", "steps", *everyone], rows) + "".join(notes) + "\n"


def _cell(results: list[Result]) -> str:
    scores = [100 * result["score"] for result in results]
    if not scores:
        return "–"
    return f"{median(scores):.1f} ({min(scores):.1f} to {max(scores):.1f}; {len(scores)})"
