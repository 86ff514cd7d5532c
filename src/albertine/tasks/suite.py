"""Suites: many tasks in one command with one report, such as GLUE and CLUE, described by a suite file.

A suite file is a recipe whose settings hold for all of its tasks, with a list `tasks` of what each changes:

    name: glue
    encoder: {folder: MODEL}
    tasks:
      mnli: {recipe: ../finetune/mnli.yaml, task: {folder: MNLI}}
      rte: {recipe: ../finetune/rte.yaml, task: {folder: RTE}, start_from: mnli}

What comes later wins: the suite's own settings, the recipe of a task (its path is relative to the suite
file; or the name of one in the package), the task's own settings, the command line. `data` is the folder in
which the tasks' folders and files lie.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from albertine.core.files import user_path
from albertine.core.settings import apply_overrides, merge, read_recipe, recipe_file, resolve
from albertine.errors import SettingsError
from albertine.tasks.initial_model import open_encoder
from albertine.tasks.kind_settings import named_or_file
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import missing

OWN_KEYS = ("name", "output", "data")
"""Settings of the suite itself."""


@dataclass(frozen=True)
class SuiteTask:
    """One task of a suite.

    Attributes:
        settings: of its run.
        start_from: the task whose best model it starts from, if that task is run too.
        missing: which of its files does not exist; such a task is left out.
    """

    name: str
    settings: FinetuneSettings
    start_from: str | None
    missing: str | None


@dataclass(frozen=True)
class TaskSuite:
    """Tasks to run.

    Attributes:
        folder: of their runs and the report. tasks: each after the one that it starts from.
    """

    name: str
    folder: Path
    tasks: tuple[SuiteTask, ...]


def read_suite(path: Path, assignments: Iterable[str] = ()) -> TaskSuite:
    """Read a suite from its file and `key.sub=value` from the command line. All settings, encoders and files
    are checked before any task is run.

    Raises:
        AlbertineError: a setting, an encoder or a file is invalid.
    """
    assignments = list(assignments)
    of_suite = [a for a in assignments if a.partition("=")[0].split(".")[0] in (*OWN_KEYS, "tasks")]
    of_runs = [a for a in assignments if a not in of_suite]
    path = recipe_file(path)
    tree = apply_overrides(read_recipe(path), of_suite)
    changes = tree.pop("tasks", None)
    name = tree.pop("name", "")
    output, data = (
        user_path(str(tree.pop(key, usual))) for key, usual in (("output", "runs"), ("data", "."))
    )
    if not isinstance(changes, dict) or not changes or not name:
        raise SettingsError(
            "is no suite: it needs a `name` and `tasks`, settings by name of the task",
            where=path,
            remedy="See the suites that `albertine info` lists; one task alone is a recipe for --config",
        )
    folder = output / str(name)
    tasks = []
    for task, change in changes.items():
        if change is None:
            continue  # tasks.NAME=null leaves it out
        where = f"{path}, task {task}"
        own = _own_tree(change, path, where)
        start_from = own.pop("start_from", None)
        whole = merge(tree, own, {"name": str(task), "output": str(folder)})
        whole = _with_yaml(apply_overrides(whole, of_runs), data)
        settings = below(resolve(FinetuneSettings, whole, where), data)
        absent = missing(settings.task)
        if absent is None:
            open_encoder(settings)  # raises an error if it does not fit
        tasks.append(SuiteTask(str(task), settings, start_from, absent))
    if not tasks:
        raise SettingsError("every task of the suite was taken out", where=path)
    return TaskSuite(str(name), folder, _ordered(tasks, list(map(str, changes)), path))


def _own_tree(change: Any, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(change, dict):
        raise SettingsError(
            "holds no settings", where=where, remedy="Write task: {dataset: ..., folder: ...}"
        )
    own: dict[str, Any] = dict(change)
    recipe = own.pop("recipe", None)
    if not recipe:
        return own
    file = path.parent / str(recipe)
    return merge(read_recipe(file if file.is_file() else Path(str(recipe))), own)


def _with_yaml(tree: dict[str, Any], data: Path) -> dict[str, Any]:
    """The settings with the path of a data set's YAML file below a folder: the file gives the kind."""
    task = tree.get("task")
    if isinstance(task, dict) and isinstance(file := named_or_file(task.get("dataset")), Path):
        return {**tree, "task": {**task, "dataset": str(data / file)}}
    return tree


def below(settings: FinetuneSettings, data: Path) -> FinetuneSettings:
    """The settings with the files of the task below a folder; absolute paths stay."""
    task = settings.task
    moved: dict[str, Any] = {"folder": task.folder and data / task.folder}
    moved["train"] = tuple(data / path for path in task.own("train")) or None
    for name in ("dev", "test"):
        moved[name] = next((data / path for path in task.own(name)), getattr(task, name))
    return settings.model_copy(update={"task": task.model_copy(update=moved)})


def _ordered(tasks: list[SuiteTask], known: list[str], path: Path) -> tuple[SuiteTask, ...]:
    for task in tasks:
        if task.start_from is not None and task.start_from not in known:
            raise SettingsError(
                f"there is no task `{task.start_from}` to start {task.name} from",
                where=path,
                remedy=f"Its tasks: {', '.join(known)}",
            )
    try:
        before = {t.name: [t.start_from] if t.start_from else [] for t in tasks}
        order = TopologicalSorter(before).static_order()
        named = {task.name: task for task in tasks}
        return tuple(named[name] for name in order if name in named)
    except CycleError as error:
        circle = ", ".join(error.args[1])
        raise SettingsError(f"the tasks start from each other: {circle}", where=path) from error
