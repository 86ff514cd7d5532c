"""Whether a result is as good as the one that is kept: ratios only, since times move with the machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from albertine.bench.machine import hardware, newest
from albertine.errors import RunError

ALLOWED = 0.15
"""Ratios of times differ by so much from run to run."""

ABLE = 0.8
"""Share of its matrix products. A machine that has fewer left takes more from some programs than from
others."""


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
    """A line for every ratio that has fallen by more than 15 %, or is no longer there; of measurements for
    which the machine was as able as it was for the kept ones."""
    lines = []
    for where, now, was, able in _pairs(found, before):
        if able < ABLE:
            continue
        ratios = now.get("ratios", {})
        for name, ratio in was["ratios"].items():
            if name not in ratios:
                lines.append(f"{where}{name} was {ratio:.2f} and is not there")
            elif ratios[name] < (1 - ALLOWED) * ratio:
                lines.append(f"{where}{name} was {ratio:.2f} and is {ratios[name]:.2f}")
    return lines


def not_compared(found: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """A line for every measurement for which the machine was less able."""
    return [
        f"{where}the machine's own products made {able:.0%} of what they made when the kept result was"
        for where, _, _, able in _pairs(found, before)
        if able < ABLE
    ]


def _pairs(
    found: Mapping[str, Any], before: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any], float]]:
    """Every kept measurement: its place, what there is of it now, what there was, and `_able` of both."""
    now = dict(_contests(found))
    for where, was in _contests(before):
        there: Mapping[str, Any] = now.get(where, {})
        yield where, there, was, _able(there, was)


def _able(now: Mapping[str, Any], was: Mapping[str, Any]) -> float:
    """The least share of its kept matrix products that a machine made, over the formats; 1 where it is not
    known."""
    pairs = ((now.get("tflops", {}).get(name), rates) for name, rates in was.get("tflops", {}).items())
    return min((median(rates) / median(kept) for rates, kept in pairs if rates and kept), default=1.0)


def _contests(result: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Everything that tells ratios, by its place."""
    if "ratios" in result:
        yield where, result
    for key, value in result.items():
        if isinstance(value, Mapping):
            yield from _contests(value, f"{key}: ")
