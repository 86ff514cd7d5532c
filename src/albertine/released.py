"""The trained models that come with the package, each a folder beside this file, asked for by name."""

from __future__ import annotations

import difflib
import os.path
from pathlib import Path

from albertine.errors import ModelError

FOLDER = Path(__file__).with_name("released")
BY_LANGUAGE = {"en": "albertine-mini-en", "zh": "albertine-mini-zh"}
"""What is asked where nobody names a model."""


def released_names() -> tuple[str, ...]:
    """The models that are installed, in order."""
    return tuple(sorted(file.parent.name for file in FOLDER.glob("*/config.json")))


def released_folder(name: str) -> Path:
    """Where a released model lies.

    Raises:
        ModelError: there is none of that name; the message says which there are.
    """
    if name not in released_names():
        raise ModelError("is no released model", where=name, remedy=which(name))
    return FOLDER / name


def released_or(path: Path) -> Path:
    """The folder of the released model that `path` is the name of; `path` itself where it is none's."""
    # os.path.isfile, unlike that of Path, takes a whole sentence for a name that is not there.
    return FOLDER / path if len(path.parts) == 1 and os.path.isfile(FOLDER / path / "config.json") else path


def which(name: str) -> str:
    """What to write instead of a name that is not there."""
    names = released_names()
    if not names:
        return "No released model is installed here; name a model folder"
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"Did you mean `{near[0]}`? " if near else ""
    return f"{meant}Released models: {', '.join(names)}; or name a model folder"
