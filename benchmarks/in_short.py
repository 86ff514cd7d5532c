"""The table of docs/results/index.md: times as fast as transformers, on each kind of hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.markdown import newest, table

PEER = " / transformers float32"
COLUMNS = [
    "",
    "model",
    "texts of mixed lengths",
    "of equal lengths",
    "one text",
    "training step",
    "a file of rows",
]


def in_short(folders: list[Path], title: Callable[[str], str]) -> Iterator[str]:
    """Rows of what was measured; a hardware on which nothing was compared has none."""
    rows = []
    for hardware in folders:
        if any((row := _row(hardware))[1:]):
            rows.append([f"[{title(hardware.name)}]({hardware.name}.md)", *row])
    yield "\n## Speed in short\n\nHow many times as fast as transformers in float32 (for a file of rows, as "
    yield "its pipeline), with the fastest of our number formats in brackets. The pages by hardware have "
    yield "other programs and formats, and what models learn.\n\n"
    yield table(COLUMNS, rows)


def _row(hardware: Path) -> list[str]:
    encoding, step, file = (newest(hardware, name) for name in ("inference", "training-step", "predict-file"))
    shapes = encoding["shapes"] if encoding else {}
    ratios = [
        _fastest(_own(shapes[name])) if name in shapes else "" for name in ("varied", "dense", "single")
    ]
    trained = _fastest(step["ratios"]) if step else ""
    rows = f"{file['of_transformers']:.1f}" if file else ""
    return [encoding["preset"] if encoding else "", *ratios, trained, rows]


def _own(shape: dict[str, Any]) -> dict[str, float]:
    """Ratios of formats that differ here: where integers gain nothing int8 computes what bfloat16 does, and
    is as near to float32 to the last digit."""
    cosines = {name: run["least_cosine"] for name, run in shape["runs"].items()}
    same = "albertine int8" in cosines and cosines["albertine int8"] == cosines.get("albertine bfloat16")
    return {pair: x for pair, x in shape["ratios"].items() if not (same and "albertine int8" in pair)}


def _fastest(ratios: dict[str, float]) -> str:
    found = [(ratio, pair.split()[1].rstrip(",")) for pair, ratio in ratios.items() if PEER in pair]
    ratio, form = max(found, default=(0.0, ""))
    return f"{ratio:.1f} ({form})" if found else ""
