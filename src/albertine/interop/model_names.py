"""Names of models: what each of them names, and the folder of the model."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import Literal, NamedTuple

from albertine.core.files import is_run_checkpoint, resolve_folder, user_path
from albertine.core.released import model_name_help
from albertine.errors import ModelError, SettingsError


class ModelName(NamedTuple):
    """What a name is.

    Attributes:
        kind: "path", a file or folder that exists, or the folder of a released model; "preset", an encoder
            without weights; "recipe" of the package; "hub", `owner/name`; None: none of these.
        path: of a file or folder; where there is none, as the name stands.
    """

    kind: Literal["path", "preset", "recipe", "hub"] | None
    path: Path


def identify(what: str | Path) -> ModelName:
    """What a name is: the first kind of `ModelName` that fits.

    Raises:
        SettingsError: it is empty, or no name or path.
    """
    wanted = "Name a model folder, a released model, or OWNER/NAME of the Hugging Face hub"
    path = resolve_folder(user_path(what, instead=wanted))
    if os.path.exists(path):  # unlike Path.exists, False for a path that is too long
        return ModelName("path", path)
    from albertine.core.settings import recipe_file, recipe_names
    from albertine.interop.hub.download import is_hub_name
    from albertine.model.presets import is_preset

    name = str(what)
    if is_preset(name):
        return ModelName("preset", path)
    # Recipes without suffix are those of pretraining: a recipe of a task has no encoder.
    if name.endswith((".yaml", ".yml")) or ("/" not in name and name in recipe_names()):
        file = recipe_file(Path(name))
        if os.path.isfile(file):
            return ModelName("recipe", file)
    return ModelName("hub" if is_hub_name(name) else None, path)


def model_folder(what: str | Path) -> Path:
    """The folder of a model by its path, that of its run (whose best model is meant, else the last) or a
    checkpoint of one, its released name or its `owner/name` on the hub
    (`hub.download.hub_folder`); a path that exists wins.

    Raises:
        ModelError: there is none of these, or no weights, or a corpus; the message lists what there is.
    """
    folder = resolve_model(what)
    if (folder / "config.json").is_file() or is_run_checkpoint(folder):
        return folder
    if (folder / "settings.yaml").is_file():
        return model_of_run(folder)
    if (folder / "train").is_dir() and (folder / "tokenizer").is_dir():
        raise ModelError("is a corpus, and no model", where=folder, remedy=model_name_help(folder.name))
    if found := checkpoints_in(folder):
        raise ModelError(
            "holds the checkpoints of a run", where=folder, remedy=f"Name one, such as {found[-1]}"
        )
    return folder


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of runs in a folder, by their steps."""
    found = (path for path in folder.glob("step-*") if is_run_checkpoint(path))
    steps = {path: path.name.removeprefix("step-") for path in found}
    return sorted((path for path, step in steps.items() if step.isdecimal()), key=lambda p: int(steps[p]))


def resolve_model(what: str | Path) -> Path:
    """As `model_folder`, for what may also be a file, a corpus or a run: those are left as they are."""
    (kind, path), name = identify(what), str(what)
    if kind == "path":
        return path
    if kind == "hub":
        from albertine.interop.hub.download import hub_folder

        return hub_folder(name)
    if kind == "preset":
        raise ModelError(
            "is a preset, a shape without weights",
            where=name,
            remedy=f"{model_name_help(name)}. For random weights: albertine.load({name!r}, random=True)",
        )
    if path.name.startswith("step-") and (others := checkpoints_in(path.parent)):
        steps = ", ".join(other.name for other in others)
        remedy = f"There are {steps}; watching.keep sets how many a run keeps"
        raise ModelError("there is no such checkpoint", where=name, remedy=remedy)
    raise ModelError("is neither a folder nor a released model", where=name, remedy=model_name_help(name))


def check_separate(source: Path, output: Path) -> None:
    """
    Raises:
        SettingsError: what is written would take the place of what is read.
    """
    if source.resolve() == output.resolve():
        raise SettingsError("is both read and written", where=source, remedy="Name another folder to write")


def model_of_run(run: Path) -> Path:
    """The folder of a run's best model by its dev set; of its last one where there is none.

    Raises:
        ModelError: it holds no model yet.
    """
    for folder in (resolve_folder(run / name) for name in ("best", "final")):
        if (folder / "config.json").is_file():
            return folder
    raise ModelError(
        "is a run that holds no model yet", where=run, remedy="The command that began the run finishes it"
    )
