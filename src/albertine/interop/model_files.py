"""Which files of a folder are its model, in every layout that is read; does not import torch."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from albertine.errors import ModelError
from albertine.interop.pickled import PICKLED, PICKLED_INDEX

INDEX = ".index"
"""Suffix of the file that lists the variables of a TensorFlow checkpoint."""
EXPORT = "export"
"""The folder in a model folder that holds its export, and does not decide what the model computes."""
_CHOSEN = re.compile(r'^model_checkpoint_path:\s*"([^"]+)"', re.MULTILINE)
_DECIDING = (
    *("*.json", "*.safetensors", "*.bin"),
    "assets/*.json",  # of TF-Hub
    "*/config.json",  # of the modules of sentence-transformers
    *("onnx/*", "openvino/*"),  # of exported models
)


def files_of_model(folder: Path) -> list[Path]:
    """The files that decide what the model of a folder computes, in the order of their paths: configuration
    and weights, in whole or in shards, pickled, as a checkpoint of TensorFlow or as graphs. The vocabulary
    is not among them, unless it is JSON.

    Raises:
        ModelError: several checkpoints, and none is named.
    """
    found = {path for pattern in _DECIDING for path in folder.glob(pattern)}
    found -= {path for path in found if path.parent == folder / EXPORT}
    if (prefix := checkpoint_in(folder)) is not None:
        found.add(prefix.with_name(prefix.name + INDEX))
        found.update(p for p in prefix.parent.iterdir() if p.name.startswith(f"{prefix.name}.data-"))
    return sorted(path for path in found if path.is_file())


def digest_of(folder: Path) -> str:
    """A digest of what decides the numbers of a model: its configuration and weights."""
    digest = hashlib.blake2b(digest_size=16)
    for path in files_of_model(folder):
        digest.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def checkpoint_in(folder: Path) -> Path | None:
    """The checkpoint of a folder, its path without `.index`; None: there is none, or what is meant is the
    model of transformers beside it.

    Of several it is the one that the file `checkpoint` names, as TensorFlow has it.

    Raises:
        ModelError: several, and none is named.
    """
    # Pickled weights beside a checkpoint are a model that was fine-tuned from it.
    pickled = any((folder / name).is_file() for name in (PICKLED, PICKLED_INDEX))
    alone = pickled or not any(folder.glob("*.data-*-of-*"))
    of_transformers = (folder / "config.json").is_file() and alone
    if of_transformers or any(folder.glob("*.safetensors")):
        return None
    found = [p.with_suffix("") for p in sorted(folder.glob(f"*{INDEX}")) if p.is_file()]
    saved = folder / "variables" / f"variables{INDEX}"
    if not found and saved.is_file():
        return saved.with_suffix("")
    if len(found) < 2:
        return found[0] if found else None
    state = folder / "checkpoint"
    text = state.read_bytes()[: 1 << 16].decode(errors="replace") if state.is_file() else ""
    named = _CHOSEN.search(text)
    chosen = [path for path in found if named and path.name == named[1].replace("\\", "/").rpartition("/")[2]]
    if not chosen:
        raise ModelError(
            f"holds several checkpoints ({', '.join(p.name for p in found[:4])})",
            where=folder,
            remedy="Leave one, or name it in the file `checkpoint`, as TensorFlow does",
        )
    return chosen[0]
