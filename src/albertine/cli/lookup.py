"""What a word on the command line means: a preset, a configuration file, or a folder of ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertine.errors import ModelError
from albertine.model.config import EncoderConfig


@dataclass(frozen=True)
class Found:
    """Something that is no model: its kind, and facts worth printing."""

    kind: str
    facts: dict[str, Any]


def look_up(what: str) -> EncoderConfig | Found:
    """The encoder that `what` stands for, or facts about the corpus it names; a path wins over a preset.

    Raises:
        AlbertineError: nothing of the kind, with the nearest preset.
    """
    path = Path(what)
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        return _file(path)
    from albertine.errors import SettingsError
    from albertine.model.presets import preset

    try:
        return preset(what)
    except SettingsError as error:
        if "/" in what or path.suffix:
            raise ModelError(
                "there is no such file or folder", where=what, remedy="Check the path"
            ) from error
        raise


def _folder(folder: Path) -> EncoderConfig | Found:
    for inner in ("config.json", "final/config.json", "best/config.json"):
        if (folder / inner).is_file():
            return _file(folder / inner)
    raise ModelError(
        "holds no model, corpus or run",
        where=folder,
        remedy="Name a folder with config.json, manifest.json or settings.yaml",
    )


def _file(path: Path) -> EncoderConfig | Found:
    from albertine.interop.huggingface_config import read_config, read_model_type
    from albertine.interop.weights import read_json

    tree = read_json(path)
    return read_config(read_model_type(tree), tree)
