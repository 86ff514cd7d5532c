"""Prepared weights of inference, kept until a parameter changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from albertine.core.precision import ComputeFormat

P = TypeVar("P")


SAMPLES = 64
"""Values of a parameter that are compared."""

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By the bytes of a number, integers of that size."""


@dataclass(frozen=True, eq=False)
class Stamp:
    """What changes about parameters when their values do.

    Attributes:
        parameters: the objects, held because an id alone may come again for another one.
        states: of each its in-place counter and the address of its values.
        memory: their values, held so that no later ones come to the same address; another view of the same
            memory has another shape or other strides.
        some: a few values of each, where they lie. were: the bytes of these values.
    """

    parameters: Sequence[nn.Parameter]
    states: list[tuple[int, int]]
    memory: list[Tensor]
    some: list[np.ndarray]
    were: list[bytes]

    @classmethod
    def of(cls, parameters: Sequence[nn.Parameter]) -> Stamp:
        memory = [parameter.detach() for parameter in parameters]
        some = [_some(values) for values in memory]
        return cls(parameters, _states(parameters), memory, some, [values.tobytes() for values in some])

    def holds(self, parameters: Sequence[nn.Parameter]) -> bool:
        """Whether these are the parameters as they were."""
        same = len(parameters) == len(self.parameters) and all(map(is_, parameters, self.parameters))
        # States first: only where the address is the same may its memory be looked at.
        same = same and self.states == _states(parameters)
        same = same and all(map(Tensor.is_set_to, parameters, self.memory))
        return same and self.were == [values.tobytes() for values in self.some]


def _states(parameters: Sequence[nn.Parameter]) -> list[tuple[int, int]]:
    return [(parameter._version, parameter.data_ptr()) for parameter in parameters]


def _some(values: Tensor) -> np.ndarray:
    """A few values of a parameter, as integers of their size: numpy knows no bfloat16, and takes bytes in a
    quarter of the time that torch takes. By DLPack, as memory that came to numpy in its own way can no longer
    be freed, which FSDP does."""
    step = max(1, values.numel() // SAMPLES) | 1  # odd, so that it visits other columns in other rows
    if values.is_contiguous():
        values = values.as_strided((-(-values.numel() // step),), (step,), values.storage_offset())
    return np.from_dlpack(values.view(INTEGERS[values.element_size()]))


_Entry = tuple[ComputeFormat, Stamp, Any]
_entries: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], _Entry]] = WeakKeyDictionary()


def cached(layers: Sequence[nn.Module], form: ComputeFormat, build: Callable[[], P]) -> P | None:
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
    if entry is not None and entry[0] == form and entry[1].holds(parameters):
        built: P = entry[2]
        return built
    if any(p.is_inference() or p.is_meta for p in parameters):
        return build()
    stamp = Stamp.of(parameters)
    built = build()
    _entries.setdefault(layers[0], {})[which] = form, stamp, built
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


def _count_update(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """torch's fused optimizers write into parameters without raising their counters."""
    written = [p for group in optimizer.param_groups for p in group["params"] if not p.is_inference()]
    torch.autograd.graph.increment_version(written)


register_optimizer_step_post_hook(_count_update)
