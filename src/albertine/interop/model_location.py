"""Where the model lies that a person means: in a folder, in a run, among those that come with the package, or
on the hub."""

from __future__ import annotations

import os.path
from pathlib import Path

from albertine.core.files import is_run_checkpoint, resolve_folder, user_path
from albertine.core.released import model_name_help
from albertine.errors import ModelError, SettingsError


def model_folder(what: str | Path) -> Path:
    """The folder of a model by its path, that of its run (whose best model is meant, else the last) or a
    checkpoint of one, its released name or its `owner/name` on the hub (`hub.hub_folder`); a path that exists
    wins.

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
    wanted = "Name a model folder, a released model, or OWNER/NAME of the Hugging Face hub"
    path = resolve_folder(user_path(what, instead=wanted))
    if os.path.exists(path):  # unlike Path.exists it takes a whole sentence for a name that is not there
        return path
    from albertine.interop.hub.download import hub_folder, is_hub_name
    from albertine.model.presets import is_preset

    name = str(what)
    if is_hub_name(name):
        return hub_folder(name)
    if is_preset(name):
        raise ModelError(
            "is a preset, a shape without weights",
            where=name,
            remedy=f"{model_name_help(name)}. For random weights: albertine.load({name!r}, random=True)",
        )
    if path.name.startswith("step-") and (others := checkpoints_in(path.parent)):
        steps = ", ".join(other.name for other in others)
        remedy = f"There are {steps}; a run keeps as many as watching.keep says"
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
