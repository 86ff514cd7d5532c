"""The two layers that all is made of, computed by the backend, and torch's module with quicker attributes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from albertine.model.backend import current


class Linear(nn.Linear):
    """x·Wᵀ + b in the format of x, (…, in) to (…, out); parameters are float32."""

    computed_by_backend = True

    def forward(self, x: Tensor) -> Tensor:
        return current().linear(self, x)


class LayerNorm(nn.LayerNorm):
    """(x - mean) / standard deviation of each row, times a scale plus a shift; in the format of x."""

    def forward(self, x: Tensor) -> Tensor:
        return current().layer_norm(self, x)


class Module(nn.Module):
    """torch's, whose children are found as fast as any attribute: torch looks for a child when Python's own
    lookup has failed with an exception, a microsecond later, and a pass asks for ten of them a depth."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Module) and not hasattr(type(self), name):
            setattr(type(self), name, Child(name))
        super().__setattr__(name, value)


class Child:
    """A child as an attribute of its parent's class; where it is kept, and replaced, is torch's affair."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, parent: nn.Module | None, kind: type) -> Any:
        try:
            return self if parent is None else parent._modules[self.name]
        except KeyError:
            raise AttributeError(self.name) from None  # upon which torch looks for it, and says so
