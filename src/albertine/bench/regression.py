"""Whether a result is as good as the one that is kept: ratios only, since times move with the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from albertine.bench.machine import ALIKE, alike, hardware, saved_results
from albertine.core.files import read_json
from albertine.errors import RunError

ALLOWED = 0.15
"""Ratios of times differ by so much from run to run."""

ABLE = 0.8
"""Share of its matrix products. A machine that has fewer left takes more from some programs than from
others."""


def kept(name: str, results: Path, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The newest kept result of that name on this kind of hardware, with the preset and threads of `found`.

    Raises:
        RunError: there is none.
    """
    for path in saved_results(results / hardware(), name):
        result = read_json(path)
        if alike(result, found):
            return result
    raise RunError(
        f"holds no result `{name}` of {hardware()} with "
        + " and ".join(f"{key} {found[key]}" for key in ALIKE),
        where=results,
        remedy="Keep one: the same command with --save",
    )


def fallen(found: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """A line for every ratio that has fallen by more than 15 %, or is no longer there; of measurements that
    can be compared with the kept ones."""
    lines = []
    for where, now, was in _pairs(found, before):
        if _obstacle(now, was):
            continue
        ratios = now["ratios"]
        for name, ratio in was["ratios"].items():
            if name not in ratios:
                lines.append(f"{where}{name} was {ratio:.2f} and is not there")
            elif ratios[name] < (1 - ALLOWED) * ratio:
                lines.append(f"{where}{name} was {ratio:.2f} and is {ratios[name]:.2f}")
    return lines


def not_compared(found: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """A line for every measurement that cannot be compared with the kept one, with the reason."""
    reasons = ((where, _obstacle(now, was)) for where, now, was in _pairs(found, before))
    return [f"{where}{reason}" for where, reason in reasons if reason]


def _pairs(
    found: Mapping[str, Any], before: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Every requested measurement: its place, what it is now, what was kept of it."""
    was = dict(_contests(before))
    for where, now in _contests(found):
        yield where, now, was.get(where, {})


def _obstacle(now: Mapping[str, Any], was: Mapping[str, Any]) -> str | None:
    """Why the two cannot be compared: none was kept, other programs ran, or the machine was less able."""
    if not was:
        return "the kept result has no such measurement"
    if not now.get("quiet", True):
        return "the machine was busy"
    if not was.get("quiet", True):
        return "the machine was busy when the kept result was made"
    if (able := _able(now, was)) < ABLE:
        return f"the machine's own products made {able:.0%} of what they made when the kept result was"
    return None


def _able(now: Mapping[str, Any], was: Mapping[str, Any]) -> float:
    """The least share of its kept matrix products that a machine made, over the formats; 1 where it is not
    known."""
    pairs = ((now.get("tflops", {}).get(name), rates) for name, rates in was.get("tflops", {}).items())
    return min((median(rates) / median(kept) for rates, kept in pairs if rates and kept), default=1.0)


def _contests(result: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Everything that holds ratios, by its place."""
    if "ratios" in result:
        yield where, result
    for key, value in result.items():
        if isinstance(value, Mapping):
            yield from _contests(value, f"{key}: ")
