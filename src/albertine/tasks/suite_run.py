"""Run the tasks of a suite, each with its own run folder or one a seed, and write a report on all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from albertine.errors import AlbertineError, DataError
from albertine.evaluation.report import best_run, write_report
from albertine.evaluation.runs import Run, read_run
from albertine.interop.model_names import model_of_run
from albertine.tasks.finetune import FinetuneResult, finetune
from albertine.tasks.seeds import over_seeds
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.suite import SuiteTask, TaskSuite
from albertine.training.distributed import is_main


@dataclass(frozen=True)
class SuiteResult:
    """The result of a suite.

    Attributes:
        runs: the runs of every finished task, one a seed.
        left_out: the reason why each other task is not finished: a missing file, or the message of an error.
        failed: the tasks among them that ended with an error.
        report: the report's folder. exit_code: 0; 1 if a task failed; or that of a signal.
    """

    runs: Mapping[str, tuple[Run, ...]]
    left_out: Mapping[str, str]
    failed: tuple[str, ...]
    report: Path
    exit_code: int

    @property
    def stopped(self) -> bool:
        """Whether a signal ended it; the same command resumes it."""
        return self.exit_code > 1


def run_suite(
    suite: TaskSuite,
    *,
    seeds: int = 1,
    resume: str = "auto",
    run: Callable[..., FinetuneResult] = finetune,
    log: Callable[[str], None] = lambda message: None,
) -> SuiteResult:
    """Run the tasks of a suite; finished ones are not repeated, and the others run even if one fails.

    Args:
        seeds: number of runs of each task; one that starts from another starts from its best seed.
        log: called with a message for every task that begins, fails or is left out.

    Raises:
        DataError: the files of no task are there.
    """
    if all(task.missing for task in suite.tasks):
        absent = suite.tasks[0]
        raise DataError(
            f"no task has its files; {absent.name}: {absent.missing}", remedy="Name their folder: data=FOLDER"
        )
    done: dict[str, tuple[Run, ...]] = {}
    best: dict[str, Path] = {}
    left_out = {task.name: task.missing for task in suite.tasks if task.missing}
    failed: list[str] = []
    remarks = [f"Left out, a file is missing: {name} ({why})." for name, why in left_out.items()]
    for message in remarks:
        log(message)
    code = 0
    for task in suite.tasks:
        if task.missing:
            continue
        settings, started = _started(task, best)
        log(f"{task.name}: {started}")
        remarks += [f"{task.name}: {started}."] if task.start_from else []
        try:
            results = _runs(settings, seeds, resume, run)
        except AlbertineError as error:
            left_out[task.name], code = str(error), 1
            failed.append(task.name)
            remarks.append(f"Failed: {task.name} ({error}).")
            log(f"{task.name} failed: {error}")
            continue
        if not results[-1].outcome.done:
            code = results[-1].outcome.exit_code
            break
        done[task.name] = tuple(read_run(result.folder) for result in results)
        best[task.name] = model_of_run(best_run(done[task.name]).folder)
    report = suite.folder / "report"
    if done and is_main():
        write_report(report, suite.name, done, remarks)
    return SuiteResult(done, left_out, tuple(failed), report, code)


def _runs(
    settings: FinetuneSettings, seeds: int, resume: str, run: Callable[..., FinetuneResult]
) -> tuple[FinetuneResult, ...]:
    if seeds > 1:
        return over_seeds(settings, seeds, resume=resume, run=run).results
    return (run(settings, resume=resume),)


def _started(task: SuiteTask, best: Mapping[str, Path]) -> tuple[FinetuneSettings, str]:
    """The settings of a task with the model that it starts from, and a description of that."""
    settings = task.settings
    if task.start_from is None:
        return settings, f"from {settings.encoder.folder}"
    if task.start_from not in best:
        return settings, f"from {settings.encoder.folder}, since {task.start_from} was not run"
    folder = best[task.start_from]
    encoder = settings.encoder.model_copy(update={"folder": folder})
    return settings.model_copy(update={"encoder": encoder}), f"from {task.start_from}, {folder}"
