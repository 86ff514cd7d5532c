"""Prepared weights of inference, kept until a parameter changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from albertine.precision import Format

P = TypeVar("P")


SAMPLES = 64
"""Values of a parameter that are compared; all of a base model's together take some 50 microseconds."""


@dataclass(frozen=True, eq=False)
class Stamp:
    """What changes about a parameter when its values do.

    Attributes:
        parameter: the object, held because an id alone may come again for another one.
        version: its in-place counter. address: of its values.
        some: a view of a few values of a matrix where they lay; it holds their memory, so that no later
            values of the parameter come to the same address. were: what these values were. None of a vector:
            who writes through `.data` writes matrices.
    """

    parameter: nn.Parameter
    version: int
    address: int
    some: Tensor
    were: Tensor | None

    @classmethod
    def of(cls, parameter: nn.Parameter) -> Stamp:
        count = parameter.numel()
        step = max(1, count // SAMPLES) | 1  # odd, so that it visits other columns in other rows
        shape = (-(-count // step),)
        values = parameter.detach()
        some = (
            values.as_strided(shape, (step,), values.storage_offset()) if values.is_contiguous() else values
        )
        were = some.clone() if parameter.ndim > 1 else None
        return cls(parameter, parameter._version, parameter.data_ptr(), some, were)

    def holds(self, parameter: nn.Parameter) -> bool:
        """Whether this is the parameter as it was."""
        same = self.parameter is parameter and self.address == parameter.data_ptr()
        same = same and self.version == parameter._version
        return same and (self.were is None or torch.equal(self.some, self.were))


_Entry = tuple[Format, list[Stamp], Any]
_entries: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], _Entry]] = WeakKeyDictionary()


def cached(layers: Sequence[nn.Module], form: Format, build: Callable[[], P]) -> P | None:
    """What `build` made of weights and biases of these layers in that format, made again when one of them
    changed; None where one of them is no parameter of its layer: of what is computed anew in every pass, as
    by pruning or a parametrization, nobody can say whether it changed.

    Every in-place operation raises a parameter's counter, and so do optimizers (below). Writing through
    `.data` raises none; a few values are compared because of those who do (PEFT merges adapters that way). A
    write through `.data` to single values may go unseen: write under `torch.no_grad()`.
    """
    if (parameters := _parameters(layers)) is None:
        return None
    own, which = _entries.get(layers[0]), tuple(map(id, layers))
    entry = None if own is None else own.get(which)
    if entry is not None and entry[0] == form and _all_hold(entry[1], parameters):
        built: P = entry[2]
        return built
    if any(p.is_inference() or p.is_meta for p in parameters):
        return build()
    stamps = [Stamp.of(p) for p in parameters]
    built = build()
    _entries.setdefault(layers[0], {})[which] = form, stamps, built
    return built


def _parameters(layers: Sequence[nn.Module]) -> list[nn.Parameter] | None:
    """Weights, and biases where there are any; None where one is no parameter."""
    found: list[nn.Parameter] = []
    for layer in layers:
        own = layer._parameters
        weight = own.get("weight")
        if weight is None or "bias" not in own:
            return None
        found.append(weight)
        if (bias := own["bias"]) is not None:
            found.append(bias)
    return found


def _all_hold(stamps: Sequence[Stamp], parameters: Sequence[nn.Parameter]) -> bool:
    return len(stamps) == len(parameters) and all(map(Stamp.holds, stamps, parameters))


def _count_update(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """torch's fused optimizers write into parameters without raising their counters."""
    written = [p for group in optimizer.param_groups for p in group["params"] if not p.is_inference()]
    torch.autograd.graph.increment_version(written)


register_optimizer_step_post_hook(_count_update)
