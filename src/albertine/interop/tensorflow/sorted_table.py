"""Reading and writing of LevelDB's sorted table: the `.index` file of a TensorFlow checkpoint.

A file is a sequence of blocks and a footer of 48 bytes. A block has entries with keys relative to the key
before, then the offsets of complete keys ("restarts"), then one byte for its compression and a masked
CRC-32C. The footer points to two blocks, of which the second is the index of the others (google/leveldb,
doc/table_format.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from albertine.core.protobuf import MalformedProtobuf, encode_varint, read_varint
from albertine.interop.tensorflow.crc32c import masked
from albertine.interop.tensorflow.snappy import decompressed

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
FOOTER = 48
_TRAILER = 5
_RESTART_EVERY = 16
_BLOCK = 1 << 18  # bytes, as in TensorFlow's writer
MAX_FILE = 1 << 24
MAX_KEY = 1 << 10
MAX_ENTRIES = 1 << 17
_MAX_BLOCK = 1 << 24


def read_table(data: bytes) -> dict[bytes, bytes]:
    """All entries, in the order of their keys.

    The bounds limit the memory that a small file can require: keys are short, and blocks must not overlap, so
    that none is read twice.

    Raises:
        MalformedProtobuf: not such a table, damaged, truncated, or beyond the bounds.
    """
    if len(data) > MAX_FILE:
        raise MalformedProtobuf(f"is larger than {MAX_FILE >> 20} MB, which no index of a model is")
    if len(data) < FOOTER or data[-8:] != MAGIC:
        raise MalformedProtobuf("is not an index of TensorFlow, or cut short")
    footer = data[-FOOTER:-8]
    _, _, at = _handle(footer, 0)
    index = _handle(footer, at)
    room, end, result, last = _MAX_BLOCK, 0, dict[bytes, bytes](), None
    for _, handle in _entries(_block(data, index[0], index[1], _MAX_BLOCK)):
        offset, size, _ = _handle(handle, 0)
        if offset < end or offset + size > index[0]:
            raise MalformedProtobuf("names blocks that lie over each other")
        block = _block(data, offset, size, room)
        room, end = room - len(block), offset + size
        for key, value in _entries(block):
            if last is not None and key <= last:
                raise MalformedProtobuf("has names that are not in their order")
            if len(result) >= MAX_ENTRIES:
                raise MalformedProtobuf(f"has more than {MAX_ENTRIES} names")
            result[key], last = value, key
    return result


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    """The offset of a block, its size without the trailer, and the position after the handle."""
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return offset, size, at


def _block(data: bytes, offset: int, size: int, limit: int) -> bytes:
    if offset + size + _TRAILER > len(data) - FOOTER:
        raise MalformedProtobuf("names a block that lies outside the file")
    content, kind = data[offset : offset + size], data[offset + size]
    stored = int.from_bytes(data[offset + size + 1 : offset + size + _TRAILER], "little")
    if masked(data[offset : offset + size + 1]) != stored:
        raise MalformedProtobuf("has a block whose checksum is wrong")
    if kind == 1:
        return decompressed(content, limit)
    if kind or size > limit:
        raise MalformedProtobuf("has a block of an unknown compression, or too much in its blocks")
    return content


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if len(block) < 4 or end < 0:
        raise MalformedProtobuf("has a block that is cut short")
    at, key = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        fresh, at = read_varint(block, at)
        size, at = read_varint(block, at)
        if shared > len(key) or shared + fresh > MAX_KEY or at + fresh + size > end:
            raise MalformedProtobuf("has a name or a record that is too long")
        key = key[:shared] + block[at : at + fresh]
        at += fresh + size
        yield key, block[at - size : at]


def table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The file of entries, which must be sorted by key; nothing is compressed."""
    out = bytearray()
    index: list[tuple[bytes, bytes]] = []
    group: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in entries:
        group.append((key, value))
        size += len(key) + len(value)
        if size >= _BLOCK:
            index.append((key, _put(out, group)))
            group, size = [], 0
    if group or not index:
        index.append((group[-1][0] if group else b"", _put(out, group)))
    handles = _put(out, []) + _put(out, index)
    return bytes(out + handles.ljust(FOOTER - 8, b"\0") + MAGIC)


def _put(out: bytearray, entries: list[tuple[bytes, bytes]]) -> bytes:
    """Append a block. Returns its handle."""
    block, restarts, before = bytearray(), [0], b""
    for i, (key, value) in enumerate(entries):
        if i % _RESTART_EVERY == 0:
            before = b""
            restarts[i // _RESTART_EVERY :] = [len(block)]
        shared = _shared(before, key)
        block += encode_varint(shared) + encode_varint(len(key) - shared) + encode_varint(len(value))
        block += key[shared:] + value
        before = key
    for number in (*restarts, len(restarts)):
        block += number.to_bytes(4, "little")
    place = encode_varint(len(out)) + encode_varint(len(block))
    block.append(0)
    out += block + masked(bytes(block)).to_bytes(4, "little")
    return place


def _shared(one: bytes, other: bytes) -> int:
    """The length of the common prefix of two keys."""
    alike = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        alike += 1
    return alike
