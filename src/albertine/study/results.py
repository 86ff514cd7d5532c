"""The results of a study as one small file, from which its report is written without the runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from albertine.core.files import read_json, to_json
from albertine.errors import DataError
from albertine.study.definition import Cell, Conclusion, chosen_cells
from albertine.study.metrics import HIDDEN, IN_PLACE_OF
from albertine.study.runner import status_of, unit_folder
from albertine.study.units import Plan
from albertine.study.verdicts import Interval, Verdict, interval, verdict
from albertine.study.work import RESULT

FORMAT = 1
MOST_BYTES = 1_000_000
DIGITS = 6
"""Significant digits of a number in the file: those that do not depend on the process that scores a model."""


@dataclass(frozen=True)
class Compared:
    """A conclusion with what was found.

    Attributes:
        difference: None where no seed has both sides.
    """

    claim: str
    metric: str
    comparison: str
    expected: str
    difference: Interval | None
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        found = None if self.difference is None else self.difference.as_dict()
        return {**self.__dict__, "difference": found}


def collect(plan: Plan, output: Path, *, scale: str, command: str) -> dict[str, Any]:
    """The results of a study as far as it is computed, as JSON data.

    Args:
        command: that makes them.
    """
    study = plan.study
    cells: list[dict[str, Any]] = [
        {"name": cell.name, "at": dict(cell.at), "changes": dict(cell.changes), "seeds": {}}
        for cell in plan.cells
    ]
    by_name = {cell["name"]: cell for cell in cells}
    computed = {key: read_json(unit_folder(output, key) / RESULT) for key in plan.units}
    machines: dict[str, dict[str, Any]] = {}
    dates = []
    for trial in plan.trials:
        found: dict[str, Any] = {"scores": {}, "facts": {}}
        for key in trial.units:
            result = computed[key]
            for part in ("scores", "facts"):
                found[part] |= result.get(part, {})
            for part in ("curve", "layers"):
                if part in result:
                    found[part] = result[part]
            if "machine" in result:
                machines.setdefault(to_json(result["machine"], sort_keys=True), result["machine"])
                dates.append(str(result["date"]))
        if any(found.values()):
            by_name[trial.cell.name]["seeds"][str(trial.seed)] = found
    seconds = sum(float(result.get("seconds", 0.0)) for result in computed.values())
    corpora = [unit for unit in plan.units.values() if unit.kind == "corpus"]
    states = [one for one in status_of(plan, output) if one.state != "done"]
    tree = {
        "format": FORMAT,
        "study": study.name,
        "scale": scale,
        **study.model_dump(
            mode="json", include={"title", "source", "budget", "judged", "conclusions", "notes"}
        ),
        "corpora": [{"text": unit.work["names"], **computed[unit.key].get("facts", {})} for unit in corpora],
        "cells": cells,
        "missing": [
            {"cell": one.cell, "seed": one.seed, "state": one.state, "reason": one.reason} for one in states
        ],
        "machines": list(machines.values()),
        "first": min(dates, default=None),
        "last": max(dates, default=None),
        "hours": round(seconds / 3600, 2),
        "command": command,
    }
    return dict(_rounded(tree))


def _rounded(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _rounded(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_rounded(value) for value in tree]
    return float(f"{tree:.{DIGITS}g}") if isinstance(tree, float) else tree


def read_results(path: Path) -> dict[str, Any]:
    """The results in a file.

    Raises:
        DataError: it holds none.
    """
    tree = read_json(path)
    if not is_results(tree):
        raise DataError(
            "holds no results of a study", where=path, remedy="albertine study report NAME writes them"
        )
    return tree


def is_results(tree: Mapping[str, Any]) -> bool:
    """Whether the data of a JSON file are results of a study."""
    return tree.get("format") == FORMAT and {"study", "scale", "cells", "conclusions"} <= tree.keys()


def metrics_of(results: Mapping[str, Any], cell: Mapping[str, Any], seed: str) -> dict[str, float]:
    """All scores and measurements of a cell with one seed; `tasks` is the mean over tasks."""
    found = cell["seeds"].get(seed, {})
    values: dict[str, float] = {**found.get("facts", {}), **found.get("scores", {})}
    tasks = [name for name, task in (results["judged"].get("tasks") or {}).items() if task is not None]
    if len(tasks) > 1 and all(task in values for task in tasks):
        values["tasks"] = fmean(values[task] for task in tasks)
    return values


def seeds_of(results: Mapping[str, Any]) -> list[str]:
    """All seeds in the results, in order."""
    return sorted({seed for cell in results["cells"] for seed in cell["seeds"]}, key=int)


def values_of(results: Mapping[str, Any], cell: Mapping[str, Any], name: str) -> list[float]:
    """A score of a cell over its seeds."""
    found = (metrics_of(results, cell, seed).get(name) for seed in seeds_of(results))
    return [value for value in found if value is not None]


def compared(results: Mapping[str, Any]) -> list[Compared]:
    """Every conclusion with the difference that was found and its verdict."""
    from albertine.core.settings import resolve

    return [_compared(results, resolve(Conclusion, dict(one))) for one in results["conclusions"]]


def _compared(results: Mapping[str, Any], conclusion: Conclusion) -> Compared:
    sides = [_named(results, conclusion, conclusion.of)]
    if not isinstance(conclusion.minus, float):
        sides.append(_named(results, conclusion, conclusion.minus))
    differences = []
    for seed in seeds_of(results):
        means = [_mean(results, side, seed, conclusion.metric) for side in sides]
        if isinstance(conclusion.minus, float):
            means.append(conclusion.minus)
        if (one := means[0]) is not None and (other := means[1]) is not None:
            differences.append(one - other)
    found = interval(differences) if differences else None
    how = {"within": conclusion.within, "threshold": conclusion.threshold}
    words = [_side(side) for side in (conclusion.of, conclusion.minus)]
    expected = (
        "= 0 ± " + f"{conclusion.within:g}"
        if conclusion.within
        else {"greater": "> 0", "less": "< 0"}[conclusion.expected]
    )
    return Compared(
        conclusion.claim,
        conclusion.metric,
        f"{words[0]} − {words[1]}",
        expected,
        found,
        "not decided" if found is None else verdict(found, conclusion.expected, **how),
    )


def _side(side: Any) -> str:
    if isinstance(side, Mapping):
        return ", ".join(f"{axis} {value}" for axis, value in side.items())
    return f"{side:g}" if isinstance(side, float) else str(side)


def _named(results: Mapping[str, Any], conclusion: Conclusion, side: Any) -> list[Mapping[str, Any]]:
    by_name = {cell["name"]: cell for cell in results["cells"]}
    cells = [Cell(cell["name"], cell["at"], cell["changes"]) for cell in results["cells"]]
    return [by_name[cell.name] for cell in chosen_cells(results["study"], cells, side, conclusion)]


def _mean(
    results: Mapping[str, Any], cells: Iterable[Mapping[str, Any]], seed: str, name: str
) -> float | None:
    values = [metrics_of(results, cell, seed).get(name) for cell in cells]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def columns_of(results: Mapping[str, Any]) -> list[str]:
    """The scores that the table of a report has as columns."""
    found: dict[str, None] = {}
    for cell in results["cells"]:
        for seed in cell["seeds"]:
            found |= dict.fromkeys(metrics_of(results, cell, seed))
    compared = {one["metric"] for one in results["conclusions"]}
    hidden = HIDDEN | {name for name, better in IN_PLACE_OF.items() if better in found}
    minutes = "pretrain.training.minutes"
    timed = (results["budget"] or {}).get("minutes") or any(
        minutes in cell["changes"] for cell in results["cells"]
    )
    if not timed and results["budget"]:  # without a budget nothing is trained, and speed is what is measured
        hidden |= {"tokens_per_second"}  # cells run side by side, and their speed decides nothing
    return [name for name in found if name in compared or ("." not in name and name not in hidden)]
