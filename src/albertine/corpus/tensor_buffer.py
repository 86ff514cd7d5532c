"""A structure of tensors as one flat buffer and back, for the way between processes.

torch hands every tensor over as a file descriptor of its own; a large batch of many micro-batches, prepared
ahead by several processes, would need more of them than a process may have (1024 by default).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_ALIGN = 64


@dataclass(frozen=True)
class _Place:
    """Stands for a tensor in the structure."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Parcel:
    """A structure whose tensors lie in `buffer`, uint8."""

    content: Any
    buffer: Tensor


def wrap(value: Any) -> Parcel:
    """Gather the tensors in tuples, lists, dicts and dataclasses, at any depth; all else stays as it is."""
    tensors: list[Tensor] = []
    size = 0

    def leave(tensor: Any) -> Any:
        nonlocal size
        if not isinstance(tensor, Tensor):
            return tensor
        place = _Place(size, tuple(tensor.shape), tensor.dtype)
        tensors.append(tensor.contiguous())
        size += -(-tensor.nbytes // _ALIGN) * _ALIGN
        return place

    content = _map(value, leave)
    buffer = torch.empty(size, dtype=torch.uint8)
    at = 0
    for tensor in tensors:
        buffer[at : at + tensor.nbytes] = tensor.reshape(-1).view(torch.uint8)
        at += -(-tensor.nbytes // _ALIGN) * _ALIGN
    return Parcel(content, buffer)


def unwrap(parcel: Parcel) -> Any:
    """The structure again; its tensors are views of the buffer."""

    def take(place: Any) -> Any:
        if not isinstance(place, _Place):
            return place
        count = place.dtype.itemsize
        for extent in place.shape:
            count *= extent
        return parcel.buffer[place.offset : place.offset + count].view(place.dtype).view(place.shape)

    return _map(parcel.content, take)


def _map(value: Any, leaf: Any) -> Any:
    if isinstance(value, (Tensor, _Place)):
        return leaf(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _map(getattr(value, f.name), leaf) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **changed)
    if isinstance(value, tuple):
        parts = [_map(item, leaf) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_map(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: _map(item, leaf) for key, item in value.items()}
    return value
