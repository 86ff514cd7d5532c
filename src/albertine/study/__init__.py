"""Studies: a table or figure of a paper, computed again, with a verdict on each of its conclusions.

`albertine.study.run`, `status` and `report` do what `albertine study run`, `status` and `report` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from albertine.core.files import user_path
from albertine.errors import SettingsError, check_integer, needs_torch

if TYPE_CHECKING:
    from albertine.study.engines import EngineName
    from albertine.study.runner import TrialStatus
    from albertine.study.units import Plan

__all__ = ["report", "run", "status"]
OUTPUT, DATA, DEFAULT_SCALE = "studies", "data", "two-core"
REPORTS = "reports"
"""Folder of reports in the folder of studies."""


@needs_torch
def run(
    study: str | Path,
    settings: Sequence[str] = (),
    *,
    output: str | Path = OUTPUT,
    data: str | Path = DATA,
    scale: str = DEFAULT_SCALE,
    parallel: int | None = None,
    engine: EngineName = "local",
    update: Callable[[str], None] | None = None,
) -> list[TrialStatus]:
    """Compute the cells of a study that are not computed yet. A cell that fails does not stop the others, and
    the next call tries it again.

    Args:
        study: a YAML file, or the name of one in the package.
        settings: over those of the study, as `seeds=[1,2]` and `budget.steps=500`.
        output: folder of all studies; cells that they have in common are computed once.
        data: folder of the texts and data sets that the study names.
        scale: of the study, such as two-core or gpu.
        parallel: cells at once; default: one here, as many as there are cores on Ray.
        engine: "local", processes of this machine, or "ray", tasks of a cluster.
        update: called with a line for everything that begins or ends.

    Returns:
        How far every cell with every seed is.

    Raises:
        SettingsError: an unknown setting, or cells with the same settings. DataError: a file is missing.
        RunError: the folder belongs to another study, or there is no cluster at RAY_ADDRESS. MissingExtra:
            Ray is not installed.
    """
    from albertine.study.engines import engine as begin
    from albertine.study.engines import threads_of
    from albertine.study.runner import claim_folder, run_plan, status_of, study_folder

    if parallel is not None:
        check_integer("parallel", parallel, 1)
    if engine not in ("local", "ray"):
        raise SettingsError(f"there is no engine `{engine}`", remedy="Give local or ray")
    folder = user_path(output)
    plan = _plan(study, settings, data, scale, threads=threads_of(engine, parallel))
    claim_folder(plan, study_folder(folder, plan.study.name, scale), write=False)
    computing = begin(engine, parallel)  # before anything is written
    claim_folder(plan, study_folder(folder, plan.study.name, scale))
    run_plan(plan, folder, computing, update or (lambda line: None))
    return status_of(plan, folder)


@needs_torch
def status(
    study: str | Path,
    settings: Sequence[str] = (),
    *,
    output: str | Path = OUTPUT,
    data: str | Path = DATA,
    scale: str = DEFAULT_SCALE,
) -> list[TrialStatus]:
    """How far every cell of a study is, with every seed: done, running, failed or waiting. Arguments as
    `run`."""
    from albertine.study.runner import claim_folder, status_of, study_folder

    folder = user_path(output)
    plan = _plan(study, settings, data, scale, output=folder)
    claim_folder(plan, study_folder(folder, plan.study.name, scale), write=False)
    return status_of(plan, folder)


def report(
    study: str | Path,
    settings: Sequence[str] = (),
    *,
    output: str | Path = OUTPUT,
    data: str | Path = DATA,
    scale: str = DEFAULT_SCALE,
    to: str | Path | None = None,
) -> dict[str, Any]:
    """Write the report of a study as Markdown and HTML, the file of its results, and the page of all
    verdicts.

    Args:
        study: as `run`; or the file of results of an earlier report, NAME.json, which needs no runs.
        to: folder of the reports; default: `reports` in the folder of the studies, or that of the file.

    Returns:
        The paths, and each conclusion with the difference found and its verdict.

    Raises:
        DataError: there are no results. RunError: matplotlib is not installed.
    """
    from albertine.study.results import read_results
    from albertine.study.study_report import write_study_report

    path = user_path(study)
    if path.suffix == ".json":
        return write_study_report(read_results(path), path.parent if to is None else user_path(to))
    return _report_of_runs(study, settings, user_path(output), data, scale, to)


@needs_torch
def _report_of_runs(
    study: str | Path,
    settings: Sequence[str],
    output: Path,
    data: str | Path,
    scale: str,
    to: str | Path | None,
) -> dict[str, Any]:
    from albertine.study.results import collect
    from albertine.study.runner import claim_folder, study_folder
    from albertine.study.study_report import write_study_report

    plan = _plan(study, settings, data, scale, output=output)
    claim_folder(plan, study_folder(output, plan.study.name, scale), write=False)
    words = [
        "albertine",
        "study",
        "run",
        str(study),
        *settings,
        *([] if scale == DEFAULT_SCALE else ["--scale", scale]),
    ]
    results = collect(plan, output, scale=scale, command=join(words))
    return write_study_report(results, output / REPORTS if to is None else user_path(to))


def _plan(
    study: str | Path,
    settings: Sequence[str],
    data: str | Path,
    scale: str,
    *,
    threads: int | None = None,
    output: Path | None = None,
) -> Plan:
    """
    Args:
        threads: of a unit; default: those of the study's record in the folder `output`.
    """
    from albertine.study.definition import read_study
    from albertine.study.runner import recorded_threads, study_folder
    from albertine.study.units import plan_of

    known = read_study(study, scale, settings)
    if threads is None and output is not None:
        threads = recorded_threads(study_folder(output, known.name, scale))
    return plan_of(known, user_path(data), threads)
