"""The newest results of a kind of hardware, and tables of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from albertine.bench import machine

Result = dict[str, Any]


def newest(hardware: Path, name: str) -> Result | None:
    """The newest result of that name, with its date."""
    if (path := machine.newest(hardware, name)) is None:
        return None
    result: Result = json.loads(path.read_text(encoding="utf-8"))
    return {**result, "date": path.name[:10]}


def newest_of_each(hardware: Path, kind: str) -> dict[str, Result]:
    """The newest result of every name that begins with `kind-`, by the rest of the name."""
    names = {path.stem[11:] for path in hardware.glob(f"????-??-??-{kind}-*.json")}
    found = {name[len(kind) + 1 :]: newest(hardware, name) for name in sorted(names)}
    return {name: result for name, result in found.items() if result is not None}


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
