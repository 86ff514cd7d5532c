"""Run a study, and say how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Literal

from albertine.core.files import make_folder, os_errors_as_run_errors, read_json, to_json, write_json
from albertine.errors import RunError
from albertine.study import DEFAULT_SCALE
from albertine.study.engines import Engine
from albertine.study.units import ALONE, CELLS, RANK, RUN, Plan, Trial, Unit
from albertine.study.work import FAILED, LOG, RESULT, UNIT, is_running
from albertine.training.metrics import read_metrics

RECORD = "study.json"
State = Literal["done", "running", "failed", "waiting"]


@dataclass(frozen=True)
class TrialStatus:
    """How far a cell with one seed is.

    Attributes:
        done, units: how many of its units are computed, and how many there are.
        step, steps: of the training run that is under way.
        left: seconds to the end of what runs now; None if unknown. reason: why it failed.
        folder: of the unit that failed or runs.
    """

    cell: str
    seed: int
    state: State
    done: int
    units: int
    step: int | None = None
    steps: int | None = None
    left: float | None = None
    reason: str | None = None
    folder: Path | None = None


def study_folder(output: Path, name: str, scale: str) -> Path:
    """The folder of a study's record and report."""
    return output / (name if scale == DEFAULT_SCALE else f"{name}-{scale}")


def claim_folder(plan: Plan, folder: Path, *, write: bool = True) -> None:
    """Check that a folder is new or of this study, and write its record.

    Cells and seeds may be added to a study; a cell of the same name with other settings, or from another
    text, is of another study.

    Raises:
        RunError: it belongs to another study, or is no folder of a study; or its results depend on threads,
            and those of its cells are others.
    """
    remedy = "Name another folder with --output, or give the study another name"
    if folder.exists() and not (folder / RECORD).is_file() and (folder.is_file() or any(folder.iterdir())):
        raise RunError("holds something else than a study", where=folder, remedy=remedy)
    before = read_json(folder / RECORD)
    if before.get("name", plan.study.name) != plan.study.name:
        raise RunError(f"belongs to another study, `{before['name']}`", where=folder, remedy=remedy)
    if plan.timed and (threads := before.get("threads", plan.threads)) != plan.threads:
        raise RunError(
            f"was computed with {threads} threads a cell, now {plan.threads}, and its results depend on them",
            where=folder,
            remedy="Give --parallel and OMP_NUM_THREADS as then, or another folder with --output",
        )
    cells: dict[str, Any] = dict(before.get("cells", {}))
    for trial in plan.trials:
        own = {"changes": dict(trial.cell.changes), "seeds": {str(trial.seed): trial.units[0]}}
        known = cells.get(trial.cell.name, {"changes": own["changes"], "seeds": {}})
        seed = known["seeds"].get(str(trial.seed), trial.units[0])
        if (
            to_json(known["changes"], sort_keys=True) != to_json(own["changes"], sort_keys=True)
            or seed != trial.units[0]
        ):
            raise RunError(
                f"belongs to another study: its cell `{trial.cell.name}` has other settings or another text",
                where=folder,
                remedy=remedy,
            )
        cells[trial.cell.name] = {**own, "seeds": {**known["seeds"], **own["seeds"]}}
    if write:
        with os_errors_as_run_errors(folder):
            make_folder(folder)
            record = {"name": plan.study.name, "title": plan.study.title, "cells": cells}
            write_json(folder / RECORD, record | ({"threads": plan.threads} if plan.timed else {}))


def recorded_threads(folder: Path) -> int | None:
    """The threads of a unit that the record of a study names; None where results do not depend on them."""
    found = read_json(folder / RECORD).get("threads")
    return found if isinstance(found, int) else None


def run_plan(
    plan: Plan, output: Path, engine: Engine, update: Callable[[str], None] = lambda line: None
) -> bool:
    """Compute all units of a plan that are not computed yet. One that fails does not stop the others.

    Args:
        output: the folder of all studies.
        update: called with a line for every unit that begins or ends.

    Returns:
        Whether all are computed.
    """
    order = TopologicalSorter({key: unit.needs for key, unit in plan.units.items()})
    order.prepare()
    places = {key: number for number, key in enumerate(plan.units)}
    ready: list[str] = []
    running: dict[Future[int], str] = {}
    try:
        while True:
            ready += _next_ready(order, output)
            ready.sort(key=lambda key: (RANK[plan.units[key].kind], places[key]))
            while ready and len(running) < engine.slots:
                kinds = {plan.units[key].kind for key in (ready[0], *running.values())}
                if running and ALONE in kinds:
                    break
                unit = plan.units[ready.pop(0)]
                update(f"begins: {in_words(unit)}")
                running[engine.submit(prepared(unit, output))] = unit.key
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                unit = plan.units[running.pop(future)]
                if (reason := _failure(future, unit_folder(output, unit.key))) is None:
                    order.done(unit.key)
                    update(f"done: {in_words(unit)}")
                else:
                    update(f"failed: {in_words(unit)}: {reason}")
    finally:
        engine.close()
    return all(is_done(output, key) for key in plan.units)


def _next_ready(order: TopologicalSorter[str], output: Path) -> Iterator[str]:
    """Units that can begin now; those that are computed already are passed."""
    while order.is_active() and (keys := order.get_ready()):
        for key in keys:
            if is_done(output, key):
                order.done(key)
            else:
                yield key


def unit_folder(output: Path, key: str) -> Path:
    """The folder of a unit."""
    return output / CELLS / key


def is_done(output: Path, key: str) -> bool:
    """Whether a unit is computed."""
    return (unit_folder(output, key) / RESULT).is_file()


def in_words(unit: Unit) -> str:
    """A unit as it is called in messages, such as `pretrain of sharing all, seed 1`."""
    if unit.kind == "corpus":
        return "corpus"
    return f"{unit.work.get('task') or unit.work.get('suite') or unit.kind.replace('_', ' ')} of {unit.label}"


def prepared(unit: Unit, output: Path) -> Path:
    """The folder of a unit with its description, without the failure of an earlier attempt."""
    folder = unit_folder(output, unit.key)
    with os_errors_as_run_errors(folder):
        make_folder(folder)
        write_json(folder / UNIT, unit.as_dict())
        (folder / FAILED).unlink(missing_ok=True)
    return folder


def _failure(future: Future[int], folder: Path) -> str | None:
    """Why a unit has no result, also written to its folder; None if it has one."""
    try:
        code = future.result()
    except Exception as error:  # of a cluster: a node is gone
        code, lost = 1, f"{type(error).__name__}: {error}"[:500]
    else:
        lost = f"its process ended with code {code}: {_last_line(folder / LOG)}"
        lost = f"its process was killed (signal {-code})" if code < 0 else lost
        lost = f"it was stopped (signal {code - 128}) and saved" if code > 128 else lost
    if (folder / RESULT).is_file():
        return None
    if not (folder / FAILED).is_file():
        write_json(folder / FAILED, {"reason": lost})
    return str(read_json(folder / FAILED).get("reason", lost))


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    return next((line.strip()[:500] for line in reversed(lines) if line.strip()), f"see {log}")


def status_of(plan: Plan, output: Path) -> list[TrialStatus]:
    """How far every cell with every seed is."""
    return [_trial_status(plan, trial, output) for trial in plan.trials]


def _trial_status(plan: Plan, trial: Trial, output: Path) -> TrialStatus:
    needed = [key for name in trial.units for key in (*plan.units[name].needs, name)]
    keys = list(dict.fromkeys(needed))
    folders = {key: unit_folder(output, key) for key in keys}
    pending = {key: folder for key, folder in folders.items() if not (folder / RESULT).is_file()}
    known, done = (trial.cell.name, trial.seed), len(keys) - len(pending)
    if not pending:
        return TrialStatus(*known, "done", done, len(keys))
    for key, folder in pending.items():
        if is_running(folder):
            step, steps, left = _progress(plan.units[key], folder)
            return TrialStatus(*known, "running", done, len(keys), step, steps, left, folder=folder)
    for folder in pending.values():
        if reason := read_json(folder / FAILED).get("reason"):
            return TrialStatus(*known, "failed", done, len(keys), reason=str(reason), folder=folder)
    return TrialStatus(*known, "waiting", done, len(keys))


def _progress(unit: Unit, folder: Path) -> tuple[int | None, int | None, float | None]:
    """Step, steps in all and seconds left of a run that is under way, as far as they are known."""
    rows = read_metrics(folder / RUN / "metrics.jsonl")
    training = unit.work.get("settings", {}).get("training", {})
    steps, minutes = training.get("steps"), training.get("minutes")
    if not rows:
        return None, steps, None if minutes is None else 60.0 * minutes
    step, elapsed = rows[-1]["step"], float(rows[-1].get("elapsed", 0.0))
    left = None if steps is None or not step else elapsed / step * (steps - step)
    return step, steps, left if minutes is None else max(0.0, 60.0 * minutes - elapsed)
