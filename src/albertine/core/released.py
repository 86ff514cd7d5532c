"""Trained models in the package, each a folder of `albertine/released`, addressed by name."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from albertine.errors import ModelError

FOLDER = Path(__file__).parents[1] / "released"
DEFAULT_MODELS = {"en": "albertine-mini-en", "zh": "albertine-mini-zh"}
"""The model used by default, by language."""


def released_names() -> tuple[str, ...]:
    """Names of the installed released models, sorted."""
    return tuple(sorted(file.parent.name for file in FOLDER.glob("*/config.json")))


def released_folder(name: str) -> Path:
    """The folder of a released model.

    Raises:
        ModelError: unknown name; the message lists the known ones.
    """
    if name not in released_names():
        raise ModelError("is no released model", where=name, remedy=model_name_help(name))
    return FOLDER / name


def released_path_or(path: Path) -> Path:
    """The folder of the released model named `path`; `path` itself if there is none."""
    # os.path.isfile returns False for a path that is too long, Path.is_file raises.
    return FOLDER / path if len(path.parts) == 1 and os.path.isfile(FOLDER / path / "config.json") else path


def model_name_help(name: str) -> str:
    """Remedy for an unknown model name: a suggestion, the released models, and other kinds of names."""
    names = released_names()
    there = f"Released models: {', '.join(names)}; or" if names else "No released model is installed here;"
    others = "name a model folder, or OWNER/NAME of the Hugging Face hub, as albert/albert-base-v2"
    return f"{suggestion(name, names)}{there} {others}"


def suggestion(name: str, names: Iterable[str]) -> str:
    """A question naming the nearest of some names, else the nearest folder; empty if nothing is near."""
    near, path = difflib.get_close_matches(name, names, n=1), Path(name)
    found = near[0] if near else None if os.path.exists(path) else _nearest(path)
    return f"Did you mean `{found}`? " if found else ""


def _nearest(path: Path) -> Path | None:
    """The existing folder whose path is most similar, name by name; None if a name has no similar one."""
    if os.path.isdir(path) or path == path.parent:
        return path
    if (above := _nearest(path.parent)) is None:
        return None
    with contextlib.suppress(OSError):
        names = [entry.name for entry in os.scandir(above) if entry.is_dir()]
        return next((above / name for name in difflib.get_close_matches(path.name, names, n=1)), None)
    return None
