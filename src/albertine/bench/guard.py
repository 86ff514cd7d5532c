"""Whether a result is as good as the one that is kept: ratios only, since times move with the machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from albertine.bench.machine import hardware, newest
from albertine.errors import RunError

ALLOWED = 0.15
"""Ratios of times differ by so much from run to run."""


def kept(name: str, results: Path) -> Mapping[str, Any]:
    """The newest kept result of that name on this kind of hardware.

    Raises:
        RunError: there is none.
    """
    path = newest(results / hardware(), name)
    if path is None:
        raise RunError(
            f"holds no result `{name}` of {hardware()}",
            where=results,
            remedy="Keep one: the same command with --save",
        )
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def fallen(found: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """A line for every ratio that has fallen by more than 15 %, or is no longer there."""
    now = dict(_ratios(found))
    lines = []
    for name, was in _ratios(before):
        if name not in now:
            lines.append(f"{name} was {was:.2f} and is not there")
        elif now[name] < (1 - ALLOWED) * was:
            lines.append(f"{name} was {was:.2f} and is {now[name]:.2f}")
    return lines


def _ratios(result: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, float]]:
    for key, value in result.items():
        if key == "ratios":
            yield from ((f"{where}{name}", ratio) for name, ratio in value.items())
        elif isinstance(value, Mapping):
            yield from _ratios(value, f"{key}: ")
