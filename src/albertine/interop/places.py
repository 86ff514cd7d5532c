"""Where the model lies that a person means: in a folder, or among those that come with the package."""

from __future__ import annotations

from pathlib import Path

from albertine.errors import ModelError
from albertine.files import standing
from albertine.released import which


def model_folder(what: str | Path) -> Path:
    """The folder of a model by its path or its released name; a path that exists wins.

    Raises:
        ModelError: there is neither; the message says which released models there are.
    """
    folder = standing(Path(what))
    if not folder.exists():
        raise ModelError("is neither a folder nor a released model", where=what, remedy=which(str(what)))
    return folder
