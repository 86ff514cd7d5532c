"""Reading and writing of GGUF files: named values and named tensors in one memory-mapped file
(`ggml-org/ggml:docs/gguf.md`, version 3).

    magic "GGUF" · u32 version · u64 tensors · u64 values
    values: name · u32 type · value;  arrays: u32 type of their items · u64 count · items
    tensors: name · u32 dimensions · u64 size of each, the innermost first · u32 type · u64 offset
    padding to 32 bytes, then the numbers of each tensor, each padded to 32 bytes

Names and strings are a u64 with the number of bytes, and UTF-8. All is little-endian. Only float32 tensors
are written and read; llama.cpp's tools convert them to smaller types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.errors import ModelError

Float32 = NDArray[np.float32]
Value = bool | int | float | str | Sequence[str] | NDArray[Any]
"""Integers are written as u32, other numbers as float32."""

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
_U8, _I32, _U32, _F32, _BOOL, _STRING, _ARRAY = 0, 5, 4, 6, 7, 8, 9
_TENSOR_F32 = 0
_SCALARS = {_U32: "<I", _F32: "<f", _BOOL: "<?"}
_ITEMS: Mapping[int, str] = {_U8: "|u1", _I32: "<i4", _F32: "<f4"}
_MOST = 1 << 24
"""Most values, tensors or array items of a file."""


@dataclass(frozen=True)
class GgufFile:
    """The content of a file.

    Attributes:
        values: by name, arrays of numbers as arrays. tensors: by name, mapped into memory.
    """

    values: Mapping[str, Any]
    tensors: Mapping[str, Float32]


def write_gguf(path: Path, values: Mapping[str, Value], tensors: Mapping[str, Float32]) -> None:
    """Write a file.

    Args:
        tensors: float32, in the order of the file.
    """
    head = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(values))]
    for name, value in values.items():
        head += [_string(name), *_value(value)]
    offset = 0
    for name, x in tensors.items():
        if x.dtype != np.float32:
            raise TypeError(f"{name} is {x.dtype}")
        sizes = struct.pack(f"<I{x.ndim}Q", x.ndim, *reversed(x.shape))
        head += [_string(name), sizes, struct.pack("<IQ", _TENSOR_F32, offset)]
        offset += x.nbytes + _padding(x.nbytes)
    with path.open("wb") as file:
        start = b"".join(head)
        file.write(start + bytes(_padding(len(start))))
        for x in tensors.values():
            file.write(np.ascontiguousarray(x, "<f4").data)
            file.write(bytes(_padding(x.nbytes)))


def _padding(size: int) -> int:
    return -size % ALIGNMENT


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> Iterator[bytes]:
    """The type of a value and the value."""
    if isinstance(value, bool):
        yield struct.pack("<I?", _BOOL, value)
    elif isinstance(value, int):
        yield struct.pack("<II", _U32, value)
    elif isinstance(value, float):
        yield struct.pack("<If", _F32, value)
    elif isinstance(value, str):
        yield struct.pack("<I", _STRING) + _string(value)
    elif isinstance(value, np.ndarray):
        kind = next(kind for kind, dtype in _ITEMS.items() if value.dtype == np.dtype(dtype))
        yield struct.pack("<IIQ", _ARRAY, kind, value.size) + value.tobytes()
    else:
        yield struct.pack("<IIQ", _ARRAY, _STRING, len(value))
        yield from map(_string, value)


def read_gguf(path: Path) -> GgufFile:
    """Read a file.

    Raises:
        ModelError: not a file of this version, cut short, or with tensors that are not float32.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no regular file")
        data: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
        return _read(_Cursor(data.data), data)
    except (struct.error, ValueError, UnicodeDecodeError, OSError) as error:
        raise ModelError(f"is not a whole GGUF file ({error})", where=path) from error


class _Cursor:
    """Reads values one after the other."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.place = data, 0

    def take(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(form, self.data, self.place)
        self.place += struct.calcsize(form)
        return found

    def bytes(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.place:
            raise ValueError(f"{size} bytes at {self.place} reach beyond its end")
        self.place += size
        return self.data[self.place - size : self.place].tobytes()

    def string(self) -> str:
        return self.bytes(self.take("<Q")[0]).decode()

    def value(self) -> Any:
        (kind,) = self.take("<I")
        if kind == _STRING:
            return self.string()
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])[0]
        if kind != _ARRAY:
            raise ValueError(f"a value of type {kind} is not read")
        kind, count = self.take("<IQ")
        if kind == _STRING:
            return [self.string() for _ in range(_bounded(count))]
        if kind not in _ITEMS:
            raise ValueError(f"an array of type {kind} is not read")
        dtype = np.dtype(_ITEMS[kind])
        return np.frombuffer(self.bytes(_bounded(count) * dtype.itemsize), dtype)


def _bounded(count: int) -> int:
    if count > _MOST:
        raise ValueError(f"{count} of them")
    return count


def _read(cursor: _Cursor, data: NDArray[np.uint8]) -> GgufFile:
    if cursor.bytes(4) != MAGIC:
        raise ValueError("its first bytes are not GGUF")
    version, tensors, values = cursor.take("<IQQ")
    if version != VERSION:
        raise ValueError(f"version {version}, and {VERSION} is read")
    metadata = {}
    for _ in range(_bounded(values)):
        name = cursor.string()
        metadata[name] = cursor.value()
    places = []
    for _ in range(_bounded(tensors)):
        name = cursor.string()
        (dimensions,) = cursor.take("<I")
        sizes = cursor.take(f"<{min(dimensions, 4)}Q")
        kind, offset = cursor.take("<IQ")
        if dimensions > 4 or kind != _TENSOR_F32:
            raise ValueError(f"{name} has {dimensions} dimensions and type {kind}; float32 is read")
        places.append((name, tuple(reversed(sizes)), offset))
    start = cursor.place + _padding(cursor.place)
    found = {}
    for name, shape, offset in places:
        size = 4 * int(np.prod(shape, dtype=object))
        if start + offset + size > len(data):
            raise ValueError(f"{name} reaches beyond its end")
        found[name] = data[start + offset : start + offset + size].view("<f4").reshape(shape)
    return GgufFile(metadata, found)
