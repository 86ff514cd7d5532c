"""Reading and writing of TensorFlow's checkpoints ("tensor bundles") without TensorFlow.

`NAME.index` is a sorted table of records by variable name, with a header under the empty name; the values are
in `NAME.data-00000-of-00001`, or in several such files (tensorflow/core/protobuf/tensor_bundle.proto).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from albertine.core.files import read_regular, write_durably
from albertine.core.protobuf import MalformedProtobuf, encode_field, encode_fixed32, parse_fields
from albertine.errors import ModelError
from albertine.interop.model_files import INDEX
from albertine.interop.tensorflow.crc32c import masked
from albertine.interop.tensorflow.sorted_table import MAX_FILE, read_table, table
from albertine.interop.weights import OpenWeights

DTYPES = {1: torch.float32, 2: torch.float64, 14: torch.bfloat16, 19: torch.float16}
"""Floating-point types by TensorFlow's numbers; variables of other types are not weights."""
_MAX_SHARDS = 1 << 12
_MAX_DIMENSIONS = 8
_NUMBERS = {number: dtype for dtype, number in DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """The location of a tensor.

    Attributes:
        dtype: TensorFlow's number. shape: of the tensor. shard: number of its file.
        offset, size: in bytes. crc: masked checksum. sliced: whether it is stored in several slices.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    sliced: bool


def read_index(path: Path) -> tuple[int, dict[str, Entry]]:
    """The number of data files of a checkpoint, and the entries of its tensors.

    Raises:
        ModelError: not an index, damaged, or records that contradict each other.
    """
    try:
        if path.stat().st_size > MAX_FILE:
            raise MalformedProtobuf(f"is larger than {MAX_FILE >> 20} MB, which no index of a model is")
        records = read_table(read_regular(path, MAX_FILE))
        if b"" not in records:
            raise MalformedProtobuf("has no header")
        shards = _shards(records.pop(b""))
        found = {key.decode(): _entry(value, shards) for key, value in records.items() if key[0]}
        _check_apart(found)
    except (MalformedProtobuf, UnicodeDecodeError, OSError) as error:
        raise ModelError(
            f"is not a whole index of a TensorFlow checkpoint ({error})",
            where=path,
            remedy="It is cut short or damaged; copy it again",
        ) from error
    return shards, found


def _shards(header: bytes) -> int:
    values = dict(parse_fields(header))
    shards = values.get(1, 0)
    if not isinstance(shards, int) or not 1 <= shards <= _MAX_SHARDS:
        raise MalformedProtobuf(f"names {shards!r} data files")
    if values.get(2, 0) != 0:
        raise MalformedProtobuf("is of a machine with the other order of bytes")
    return shards


def _entry(record: bytes, shards: int) -> Entry:
    numbers, shape, sliced = dict.fromkeys((1, 3, 4, 5, 6), 0), tuple[int, ...](), False
    for number, value in parse_fields(record):
        if number in numbers and isinstance(value, int):
            numbers[number] = value
        elif number == 2 and isinstance(value, bytes):
            shape = _shape(value)
        sliced = sliced or number == 7
    dtype, shard, offset, size, crc = numbers.values()
    if shard >= shards:
        raise MalformedProtobuf(f"a tensor lies in data file {shard} of {shards}")
    if dtype in DTYPES and not sliced and math.prod(shape) * DTYPES[dtype].itemsize != size:
        raise MalformedProtobuf(f"a tensor of shape {list(shape)} has {size} bytes")
    return Entry(dtype, shape, shard, offset, size, crc, sliced)


def _shape(record: bytes) -> tuple[int, ...]:
    shape: list[int] = []
    for number, value in parse_fields(record):
        if number == 2 and isinstance(value, bytes):
            sizes = dict(parse_fields(value))
            size = sizes.get(1, 0)
            if not isinstance(size, int) or size >= 1 << 48 or len(shape) >= _MAX_DIMENSIONS:
                raise MalformedProtobuf("a tensor has an impossible shape")
            shape.append(size)
        elif number == 3 and value:
            raise MalformedProtobuf("a tensor has no shape")
    return tuple(shape)


def _check_apart(entries: Mapping[str, Entry]) -> None:
    """Check that tensors do not overlap: a small file must not pass for a large model."""
    end: dict[int, int] = {}
    for entry in sorted(entries.values(), key=lambda entry: (entry.shard, entry.offset, entry.size)):
        if entry.offset < end.get(entry.shard, 0):
            raise MalformedProtobuf("tensors lie over each other")
        end[entry.shard] = entry.offset + entry.size


@contextmanager
def open_bundle(prefix: Path) -> Iterator[OpenWeights]:
    """Open a checkpoint by its path without `.index`; `shapes` has its floating-point tensors alone.

    Raises:
        ModelError: a file is missing, damaged, or shorter than its size in the index; in reading, a wrong
        checksum.
    """
    shards, entries = read_index(prefix.with_name(prefix.name + INDEX))
    found = {name: e for name, e in entries.items() if e.dtype in DTYPES and not e.sliced}
    with ExitStack() as stack:
        files: dict[int, tuple[Path, BinaryIO]] = {}
        for shard in sorted({entry.shard for entry in found.values()}):
            path = data_file(prefix, shard, shards)
            ends = (entry.offset + entry.size for entry in found.values() if entry.shard == shard)
            files[shard] = path, stack.enter_context(_open(path, max(ends)))
        yield OpenWeights(
            {name: entry.shape for name, entry in found.items()},
            lambda name: _tensor(name, found[name], *files[found[name].shard]),
        )


def data_file(prefix: Path, shard: int, shards: int) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")


def _open(path: Path, least: int) -> BinaryIO:
    try:
        if not path.is_file():
            raise FileNotFoundError(2, "there is no such file")
        if (size := path.stat().st_size) < least:
            raise ModelError(
                f"has {size} bytes, and its index names {least}",
                where=path,
                remedy="It is cut short; copy it again",
            )
        return path.open("rb")
    except OSError as error:
        raise ModelError(
            f"cannot be read ({error.strerror or error})", where=path, remedy="Fetch every data file"
        ) from error


def _tensor(name: str, entry: Entry, path: Path, file: BinaryIO) -> Tensor:
    file.seek(entry.offset)
    data = bytearray(file.read(entry.size))
    if len(data) != entry.size or masked(memoryview(data)) != entry.crc:
        raise ModelError(
            f"the checksum of {name} is wrong", where=path, remedy="The file is damaged; copy it again"
        )
    if not data:
        return torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
    return torch.frombuffer(data, dtype=DTYPES[entry.dtype]).reshape(entry.shape)


def write_bundle(prefix: Path, tensors: Mapping[str, Tensor], shards: int = 1) -> None:
    """Write a checkpoint that TensorFlow reads, durably; its files must not exist.

    Args:
        prefix: path without `.index`. tensors: contiguous, on the CPU, of a type in `DTYPES`.
        shards: data files, which take the tensors in turn.
    """
    header = encode_field(1, shards) + encode_field(
        3, encode_field(1, 1)
    )  # producer 1, as TensorFlow's writer has it
    records: dict[bytes, bytes] = {b"": header}
    pieces: list[list[memoryview]] = [[] for _ in range(shards)]
    offsets = [0] * shards
    for i, name in enumerate(sorted(tensors, key=str.encode)):
        shard, data = i % shards, _raw(tensors[name])
        shape = b"".join(encode_field(2, encode_field(1, size)) for size in tensors[name].shape)
        records[name.encode()] = (
            encode_field(1, _NUMBERS[tensors[name].dtype])
            + encode_field(2, shape)
            + encode_field(3, shard)
            + encode_field(4, offsets[shard])
            + encode_field(5, len(data))
            + encode_fixed32(6, masked(data))
        )
        pieces[shard].append(data)
        offsets[shard] += len(data)
    for shard, parts in enumerate(pieces):
        write_durably(data_file(prefix, shard, shards), *parts)
    write_durably(prefix.with_name(prefix.name + INDEX), table(records.items()))


def _raw(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, not copied."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data
