"""Prepared weights of inference, kept until a parameter changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from albertine.precision import Format

P = TypeVar("P")


@dataclass(frozen=True)
class Stamp:
    """What changes about a parameter when its values do: the object, its in-place counter, its storage."""

    parameter: nn.Parameter
    version: int
    address: int

    @classmethod
    def of(cls, parameter: nn.Parameter) -> Stamp:
        return cls(parameter, parameter._version, parameter.data_ptr())

    def holds(self, other: Stamp) -> bool:
        # The object is held, not its id: an id or an address alone may come again for another parameter.
        same = self.parameter is other.parameter and self.address == other.address
        return same and self.version == other.version


_Entry = tuple[Format, list[Stamp], Any]
_entries: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], _Entry]] = WeakKeyDictionary()


def cached(layers: Sequence[nn.Module], form: Format, build: Callable[[], P]) -> P:
    """What `build` made of these layers' parameters in that format, made again when one of them changed.

    Every in-place operation raises a parameter's counter, and so do optimizers (below). Writing through
    `.data` raises none: write under `torch.no_grad()`.
    """
    parameters = [p for layer in layers for p in layer.parameters()]
    if any(p.is_inference() or p.is_meta for p in parameters):
        return build()
    stamps = [Stamp.of(p) for p in parameters]
    own = _entries.setdefault(layers[0], {})
    which = tuple(map(id, layers))
    entry = own.get(which)
    if entry is not None and entry[0] == form and _all_hold(entry[1], stamps):
        built: P = entry[2]
        return built
    built = build()
    own[which] = form, stamps, built
    return built


def _all_hold(old: list[Stamp], new: list[Stamp]) -> bool:
    return len(old) == len(new) and all(a.holds(b) for a, b in zip(old, new, strict=True))


def _count_update(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """torch's fused optimizers write into parameters without raising their counters."""
    written = [p for group in optimizer.param_groups for p in group["params"] if not p.is_inference()]
    torch.autograd.graph.increment_version(written)


register_optimizer_step_post_hook(_count_update)
