"""The trained models that come with the package, each a folder in `albertine/released`, asked for by name."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from albertine.errors import ModelError

FOLDER = Path(__file__).parents[1] / "released"
DEFAULT_MODELS = {"en": "albertine-mini-en", "zh": "albertine-mini-zh"}
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
        raise ModelError("is no released model", where=name, remedy=model_name_help(name))
    return FOLDER / name


def released_path_or(path: Path) -> Path:
    """The folder of the released model that `path` is the name of; `path` itself where it is none's."""
    # os.path.isfile, unlike that of Path, takes a whole sentence for a name that is not there.
    return FOLDER / path if len(path.parts) == 1 and os.path.isfile(FOLDER / path / "config.json") else path


def model_name_help(name: str) -> str:
    """What to write instead of a name that is not there."""
    names = released_names()
    there = f"Released models: {', '.join(names)}; or" if names else "No released model is installed here;"
    others = "name a model folder, or OWNER/NAME of the Hugging Face hub, as albert/albert-base-v2"
    return f"{suggestion(name, names)}{there} {others}"


def suggestion(name: str, names: Iterable[str]) -> str:
    """A question after the nearest of some names, else the nearest folder; empty where there is none."""
    near, path = difflib.get_close_matches(name, names, n=1), Path(name)
    found = near[0] if near else None if os.path.exists(path) else _nearest(path)
    return f"Did you mean `{found}`? " if found else ""


def _nearest(path: Path) -> Path | None:
    """The folder whose path is like another one, name by name; None where a name has none like it."""
    if os.path.isdir(path) or path == path.parent:
        return path
    if (above := _nearest(path.parent)) is None:
        return None
    with contextlib.suppress(OSError):
        names = [entry.name for entry in os.scandir(above) if entry.is_dir()]
        return next((above / name for name in difflib.get_close_matches(path.name, names, n=1)), None)
    return None
