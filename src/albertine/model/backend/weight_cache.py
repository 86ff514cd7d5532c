"""Cache of weights prepared for inference, valid until a parameter changes."""

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
"""Number of compared values of a parameter."""

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer type by size in bytes."""


@dataclass(frozen=True, eq=False)
class ParameterState:
    """Snapshot of parameters, to detect changes.

    Attributes:
        parameters: the objects, referenced so that their ids stay unique.
        states: version counter and data address of each.
        memory: their values, referenced so that no other tensor gets the same address; a different view of it
            has another shape or strides.
        some: views of a few values of each. were: the bytes of these values.
    """

    parameters: Sequence[nn.Parameter]
    states: list[tuple[int, int]]
    memory: list[Tensor]
    some: list[np.ndarray]
    were: list[bytes]

    @classmethod
    def of(cls, parameters: Sequence[nn.Parameter]) -> ParameterState:
        memory = [parameter.detach() for parameter in parameters]
        some = [_some(values) for values in memory]
        return cls(parameters, _states(parameters), memory, some, [values.tobytes() for values in some])

    def holds(self, parameters: Sequence[nn.Parameter]) -> bool:
        """Whether the parameters are unchanged."""
        same = len(parameters) == len(self.parameters) and all(map(is_, parameters, self.parameters))
        # States first: memory may only be read where the address is the same.
        same = same and self.states == _states(parameters)
        same = same and all(map(Tensor.is_set_to, parameters, self.memory))
        return same and self.were == [values.tobytes() for values in self.some]


def _states(parameters: Sequence[nn.Parameter]) -> list[tuple[int, int]]:
    return [(parameter._version, parameter.data_ptr()) for parameter in parameters]


def _some(values: Tensor) -> np.ndarray:
    """A few values of a parameter as integers of their size: numpy has no bfloat16, and reads bytes in a
    quarter of the time of torch. By DLPack, because memory shared by `Tensor.numpy()` cannot be freed, as
    FSDP does."""
    step = max(1, values.numel() // SAMPLES) | 1  # odd, to sample different columns in different rows
    if values.is_contiguous():
        values = values.as_strided((-(-values.numel() // step),), (step,), values.storage_offset())
    return np.from_dlpack(values.view(INTEGERS[values.element_size()]))


_Entry = tuple[ComputeFormat, ParameterState, Any]
_entries: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], _Entry]] = WeakKeyDictionary()


def cached(layers: Sequence[nn.Module], form: ComputeFormat, build: Callable[[], P]) -> P | None:
    """The result of `build` for weights and biases of these layers in a format, rebuilt when one of them
    changes; None where one is not a parameter: changes of tensors computed in every pass, as by pruning or
    parametrizations, cannot be detected.

    In-place operations and optimizers (below) raise a parameter's version counter. Writing through `.data`,
    as PEFT does to merge adapters, does not, so a few values are compared too. A write through `.data` to
    single values may be missed: write under `torch.no_grad()`.
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
    stamp = ParameterState.of(parameters)
    built = build()
    _entries.setdefault(layers[0], {})[which] = form, stamp, built
    return built


def _parameters(layers: Sequence[nn.Module]) -> list[nn.Parameter] | None:
    """Weights and biases; None where one is not a parameter."""
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
    """torch's fused optimizers update parameters without raising their version counters."""
    written = [p for group in optimizer.param_groups for p in group["params"] if not p.is_inference()]
    torch.autograd.graph.increment_version(written)


register_optimizer_step_post_hook(_count_update)
