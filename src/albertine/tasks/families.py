"""The registry of families and kinds of tasks: from settings to a kind, from a model folder to its family."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from albertine.core.files import is_run_checkpoint, run_of_checkpoint
from albertine.core.settings import Settings, read_recipe, read_yaml, recipe_names
from albertine.errors import AlbertineError, ModelError, SettingsError
from albertine.evaluation.metrics import METRICS
from albertine.interop.heads import Task, read_classifier, task_of
from albertine.interop.huggingface.config import our_flags
from albertine.interop.model_folder import ModelDescription, ModelFolder
from albertine.tasks.dataset_registry import SPLITS, Dataset, described, listed
from albertine.tasks.family import Family, OneLayer, Tuned, TunedOnDev
from albertine.tasks.kind_settings import Registration, TaskChoice, is_of_own_files, named_or_file
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.model.task_model import TaskModel

MODULES = (
    "datasets.classes",
    "datasets.multiple_choice",
    "datasets.entities",
    "datasets.answer",
    "datasets.relations",
    "datasets.similarity",
    "datasets.generation",
)
"""The modules of `albertine.tasks` with a `FAMILY`. A new family is added here."""
FAMILIES: dict[Task, Registration] = {}
"""The families by their tasks."""
KINDS: dict[str, type[TaskChoice]] = {}
"""The kinds of task by their names."""


def register(family: Registration) -> None:
    """Register a family and its kinds of task."""
    FAMILIES[family.task] = family
    KINDS.update({kind: task for task in family.kinds for kind in kinds_of(task)})


def kinds_of(task: type[TaskChoice]) -> tuple[str, ...]:
    """The names of a kind of task in settings."""
    return get_args(task.model_fields["kind"].annotation)


for _module in MODULES:
    register(import_module(f"albertine.tasks.{_module}").FAMILY)


def of_its_kind(values: Any) -> Any:
    """The settings of a task as the class of its kind, which is in the settings or that of the data set.

    Raises:
        ValueError: a setting, or the data set, is for other kinds. SettingsError: there is no such data set.
    """
    if isinstance(values, TaskChoice):
        return values
    if not isinstance(values, dict):
        raise ValueError("give its settings, such as task.train=FILE")
    kind = kind_of(values)
    for name in values:
        others = [other for other, model in KINDS.items() if name in model.model_fields]
        if others and kind not in others:
            raise ValueError(f"task.{name} is for {', '.join(others)}, and this task is {kind}")
    return KINDS[kind].model_validate({**values, "kind": kind})


def checked(dataset: str | Path) -> Dataset:
    """A data set by its name or YAML file, with its kind, metrics and reader checked.

    Raises:
        SettingsError: one of them is unknown, or there is no such data set.
    """
    found = described(dataset)
    if (kind := KINDS.get(found.kind)) is None:
        raise SettingsError(f"there is no kind `{found.kind}`; known are {', '.join(KINDS)}", where=dataset)
    allowed = (*kind.default_metrics, *kind.other_metrics)
    which = f"of {found.kind} there are {', '.join(allowed)}" if allowed else "answers go by `rules`"
    for name in found.metrics:
        if name not in allowed:
            why = "is not of this kind" if name in METRICS else "is unknown"
            raise SettingsError(f"the metric `{name}` {why}; {which}", where=dataset)
    if found.reader not in (None, *kind.readers):
        raise SettingsError(
            f"there is no reader `{found.reader}` of {found.kind}; leave it out"
            + (f", or name {', '.join(kind.readers)}" if kind.readers else ""),
            where=dataset,
        )
    return found


def kind_of(task: Mapping[str, Any]) -> str:
    """The kind of a task from its settings. Raises as `of_its_kind`."""
    dataset, kind = named_or_file(task.get("dataset")), task.get("kind")
    if kind is not None and str(kind) not in KINDS:
        known = (f"{name}: {_in_words(choice)}" for name, choice in KINDS.items())
        raise ValueError(f"there is no task.kind `{kind}`; known are {'; '.join(known)}")
    if not isinstance(dataset, Path | str):
        return kind or "single"
    kinds = checked(dataset).kinds
    if kind not in (*kinds, "single", None):
        others = ", ".join(listed(kind))
        raise ValueError(
            f"`{dataset}` is no data set of the kind {kind}, but of {', '.join(kinds)}"
            + (f"; known of {kind}: {others}" if others else "")
        )
    return kind if kind in kinds else kinds[0]


def _in_words(task: type[TaskChoice]) -> str:
    summary = (task.__doc__ or "").partition("\n")[0].removesuffix(".")
    return summary[:1].lower() + summary[1:]


def saved(task: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a saved task that others may override: without those of other kinds than that of the
    result, and beside a named data set without those of own files.

    Args:
        now: the result, not yet checked.
    """
    try:
        own = KINDS[kind_of(now)]
    except (ValueError, AttributeError):
        return task  # its validation reports the error
    others = {name for model in KINDS.values() for name in model.model_fields} - own.model_fields.keys()
    task = {name: value for name, value in task.items() if name not in others}
    return _of_data_set(task, own) if now.get("dataset") else task


def _of_data_set(part: Mapping[str, Any], model: type[Settings]) -> Mapping[str, Any]:
    """Settings without those of own files."""
    found = {name: value for name, value in part.items() if name not in SPLITS or value is not None}
    for name, field in model.model_fields.items():
        inner: Any = field.annotation
        if is_of_own_files(field):
            found.pop(name, None)
        elif isinstance(found.get(name), Mapping) and isinstance(inner, type) and issubclass(inner, Settings):
            found[name] = _of_data_set(found[name], inner)
    return found


def family_of(folder: ModelDescription, tokenizer: Tokenizer, where: Path) -> Family:
    """The family of the head in a folder, with the lengths, labels and thresholds with which it was
    evaluated.

    Raises:
        ModelError: it has no task head, or its configuration of the head is invalid.
    """
    if folder.left_aside:
        read_classifier(folder, where)  # raises an error that names the unsupported head
    if lacks_head(folder, where):
        raise ModelError(
            "is a checkpoint, of which only the encoder is read: how vectors are made, and the threshold for "
            "no answer, are written beside saved models",
            where=where,
            remedy="Name best/ or final/ of the run",
        )
    task = task_of(folder) or "classify"
    if task not in FAMILIES:
        raise ModelError(
            f"was tuned to `{task}`, which is unknown here", where=where, remedy="Update albertine"
        )
    return FAMILIES[task].of_folder(Tuned(folder, tokenizer, where))


def lacks_head(folder: ModelDescription, where: Path) -> bool:
    """Whether a folder is a checkpoint of a tuned model of which only the encoder was read."""
    if not is_run_checkpoint(where) or task_of(folder) is not None:
        return False
    run = run_of_checkpoint(where)
    return run is not None and "task" in read_yaml(run / "settings.yaml")


def tuned_model(folder: ModelFolder, family: Family, where: Path) -> TaskModel:
    """The model of a folder with its head, on the device of its encoder, in evaluation mode.

    Raises:
        ModelError: the head is not that of the family.
    """
    from albertine.core.devices import on_cpu

    with on_cpu():
        model = family.build(folder.model, 0.0, 0)
    take_head(model, family, folder, where)
    return model.to(folder.model.device).eval()


def take_head(model: TaskModel, family: Family, folder: ModelFolder, where: Path) -> None:
    """Load the head and the whitening of a folder into a model, and what was tuned on the dev set into its
    family.

    Raises:
        ModelError: the head is not that of the family, or needs a pooler that is missing.
    """
    from albertine.tasks.whitened_start import take_whitening

    pooled = isinstance(family, OneLayer) and family.pooling == "cls" and not family.per_token
    if pooled and folder.model.pooler is None:
        raise ModelError(
            "has a classifier, and no pooler that it could look at",
            where=where,
            remedy="Its file is incomplete, or its head one of transformers that Albertine does not compute; "
            "its encoder is read all the same: tune it with albertine finetune",
        )
    model.load_head(folder.extra, where)
    take_whitening(model, where)
    load_state(family, folder)


def load_state(family: Family, folder: ModelDescription) -> None:
    """Load what a family has tuned on the dev set, such as a threshold, from a folder."""
    if isinstance(family, TunedOnDev):
        family.load_state(our_flags(folder.config))


def task_of_kind(task: TaskChoice) -> Task:
    """The task of a model that is tuned with a kind of task."""
    return next(name for name, family in FAMILIES.items() if isinstance(task, family.kinds))


def in_words(task: Task) -> str:
    """What a family does, as a verb with object; its name if it is not registered."""
    return FAMILIES[task].words if task in FAMILIES else task


def wrong_task_error(found: Task | None, wanted: Task, where: Path) -> ModelError:
    """The error of using a model for another task than its own."""
    if found is not None:
        remedy = "Use it for its own task, or name a model tuned for this one"
        return ModelError(
            f"was tuned to {in_words(found)}, and cannot {in_words(wanted)}", where=where, remedy=remedy
        )
    return ModelError(
        f"was not tuned for a task, and cannot {in_words(wanted)}", where=where, remedy=_how_to_tune(wanted)
    )


def _how_to_tune(task: Task) -> str:
    """A remedy that names a kind of task for models of a family, and a recipe."""
    kinds = [name for name, kind in KINDS.items() if task in FAMILIES and kind in FAMILIES[task].kinds]
    if not kinds:  # "read" is no family of its own: it has the head of "generate"
        kinds = [task] if task in KINDS else ["reading"] if task == "read" else []
    if not kinds:
        return "Tune one for it: albertine finetune"
    known = next((name for name in recipe_names() if _recipe_kind(name) in kinds), None)
    recipe = f"; the recipe {known} is one (--config {known}, in Python config=)" if known else ""
    return f"Tune one for it: albertine finetune with task.kind={kinds[0]}{recipe}"


def _recipe_kind(name: str) -> str | None:
    """The kind of task of a recipe in the package; None if it is no fine-tuning recipe."""
    with suppress(AlbertineError, ValueError):
        task = read_recipe(Path(name)).get("task")
        return kind_of(task) if isinstance(task, Mapping) else None
    return None
