"""Whether a result is as good as the one that is kept: ratios only, since times move with the machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from albertine.bench.machine import hardware
from albertine.errors import RunError

ALLOWED = 0.15
"""Ratios of times differ by so much from run to run."""


def newest(name: str, results: Path) -> Mapping[str, Any]:
    """The newest kept result of that name on this kind of hardware.

    Raises:
        RunError: there is none.
    """
    files = sorted((results / hardware()).glob(f"????-??-??-{name}.json"))
    if not files:
        raise RunError(
            f"holds no result `{name}` of {hardware()}",
            where=results,
            remedy="Keep one: the same command with --save",
        )
    kept: dict[str, Any] = json.loads(files[-1].read_text(encoding="utf-8"))
    return kept


def fallen(found: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """A line for every ratio that has fallen by more than 15 %, or is no longer there."""
    now = dict(_ratios(found))
    lines = []
    for name, before in _ratios(kept):
        if name not in now:
            lines.append(f"{name} was {before:.2f} and is not there")
        elif now[name] < (1 - ALLOWED) * before:
            lines.append(f"{name} was {before:.2f} and is {now[name]:.2f}")
    return lines


def _ratios(result: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, float]]:
    for key, value in result.items():
        if key == "ratios":
            yield from ((f"{where}{name}", ratio) for name, ratio in value.items())
        elif isinstance(value, Mapping):
            yield from _ratios(value, f"{key}: ")
