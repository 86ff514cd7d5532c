"""Prepared weights, kept between the forward passes of inference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import nn

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


class Kept(Generic[P]):
    """A block's weights, fused and cast, for as long as none of its parameters changes.

    Every in-place operation raises a parameter's counter. Writing through `.data` raises none: after that
    call `model.train()` and a forward pass, or better, write under `torch.no_grad()`.
    """

    def __init__(self) -> None:
        self._entry: tuple[Format, list[Stamp], P] | None = None

    def get(self, block: nn.Module, form: Format, build: Callable[[Format], P]) -> P:
        """The prepared weights of `block`, by `build` unless they are at hand and no gradient is wanted."""
        if block.training or torch.is_grad_enabled() or torch.compiler.is_compiling():
            self._entry = None
            return build(form)
        parameters = list(block.parameters())
        if any(p.is_inference() or p.is_meta for p in parameters):
            return build(form)
        stamps = [Stamp.of(p) for p in parameters]
        entry = self._entry
        if entry is not None and entry[0] == form and _all_hold(entry[1], stamps):
            return entry[2]
        built = build(form)
        self._entry = (form, stamps, built)
        return built

    def __deepcopy__(self, memo: object) -> Kept[P]:
        return Kept()

    def __reduce__(self) -> tuple[type[Kept[P]], tuple[()]]:
        return Kept, ()


def _all_hold(old: list[Stamp], new: list[Stamp]) -> bool:
    return len(old) == len(new) and all(a.holds(b) for a, b in zip(old, new, strict=True))
