"""What differs between two nested mappings, such as settings or the shapes of tensors, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

ABSENT: Final = object()
FEW = 6


class Change(NamedTuple):
    """A key of a nested mapping, dotted, and its two values; `ABSENT` where there is none."""

    key: str
    before: Any
    now: Any

    def __str__(self) -> str:
        if self.before is ABSENT:
            return f"{self.key}: not in the checkpoint, now {_short(self.now)}"
        now = "absent" if self.now is ABSENT else _short(self.now)
        return f"{self.key}: checkpoint {_short(self.before)}, now {now}"


def changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[Change]:
    """All keys of two nested mappings of JSON data whose values differ, in the order of their names."""
    for key in sorted({*before, *now}):
        old, new = before.get(key, ABSENT), now.get(key, ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from changes(old, new, f"{prefix}{key}.")
        elif old is not new and (old != new or type(old) is not type(new)):
            yield Change(f"{prefix}{key}", old, new)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Lines `key: checkpoint A, now B` for all that `changes` finds."""
    return list(map(str, changes(before, now)))


def misfits(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """How the shapes of two models differ; of more than a few tensors that only one of them has, how many
    these are."""
    lost, new = sorted(before.keys() - now.keys()), sorted(now.keys() - before.keys())
    if max(len(lost), len(new)) <= FEW:
        return differences(before, now)
    both = before.keys() & now.keys()
    found = differences({name: before[name] for name in both}, {name: now[name] for name in both})
    if lost:
        found.append(f"{len(lost)} of its tensors are not there now, such as {lost[0]}")
    if new:
        found.append(f"{len(new)} are not in it, such as {new[0]}")
    return found


def listed(lines: Sequence[str], most: int = 12) -> str:
    """Lines as one, of many the first and how many more there are."""
    rest = len(lines) - most
    return "; ".join(lines[:most]) + (f"; and {rest} more" if rest > 0 else "")


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 80 else text[:77] + "..."
