"""The files of corpus, run, model and export folders, and the keys and columns in them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import safe_open

from tests.contracts.products import Products
from tests.contracts.snapshots import shape_of
from tests.inference.exports import FAMILIES, tuned

OPEN_KEYS = ("environment.json",)
"""Files whose values depend on the machine: keys alone are compared."""


def contract(products: Products) -> dict[str, Any]:
    """By folder its files, each with what is in it."""
    return {
        "corpus": tree(products.corpus),
        "pretraining run": tree(products.pretrained.folder),
        "tuned run": tree(products.tuned.folder),
        "model": tree(products.model),
        "export": tree(products.export),
        "predictions": _content(products.predictions),
        "tuned models": {
            name: _content(tuned(name, products.folder / "families" / name.replace(" ", "-")) / "config.json")
            for name in FAMILIES
        },
    }


def tree(folder: Path) -> dict[str, Any]:
    """By path the content of every file below a folder."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = _content(path)
        same = next((name for name, other in found.items() if other == content != "file"), None)
        found[_name(path.relative_to(folder))] = f"as {same}" if same and len(content) > 5 else content
    return found


def _name(path: Path) -> str:
    """The path with a mark in place of digests."""
    return re.sub(r"[0-9a-f]{16,}", "DIGEST", path.as_posix())


def _content(path: Path) -> Any:
    read = READERS.get(path.suffix)
    # Of a checkpoint, the state decides whether a later version resumes the run.
    if read is None or ("checkpoints" in path.parts and path.name != "state.json"):
        return "file"
    found = read(path)
    return sorted(found) if path.name in OPEN_KEYS else found


def _lines(path: Path) -> Any:
    return shape_of([json.loads(line) for line in path.read_text(encoding="utf-8-sig").splitlines()])


def _tensors(path: Path) -> dict[str, str]:
    with safe_open(path, "np") as file:
        slices = {name: file.get_slice(name) for name in sorted(file.keys())}
        return {name: f"{one.get_dtype()} {one.get_shape()}" for name, one in slices.items()}


def _array(path: Path) -> str:
    found = np.load(path, mmap_mode="r")
    return f"{found.dtype} with {found.ndim} axes"


def _columns(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def _json(path: Path) -> Any:
    # That file is the library `tokenizers`' own, and holds the whole vocabulary.
    return (
        "file"
        if path.name == "tokenizer.json"
        else shape_of(json.loads(path.read_text(encoding="utf-8-sig")))
    )


READERS: dict[str, Callable[[Path], Any]] = {
    ".json": _json,
    ".jsonl": _lines,
    ".yaml": lambda path: shape_of(yaml.safe_load(path.read_text(encoding="utf-8-sig"))),
    ".safetensors": _tensors,
    ".npy": _array,
    ".csv": _columns,
    ".tsv": _columns,
}
