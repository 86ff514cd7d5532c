"""Parse and write protocol buffers: varints and fields, for SentencePiece models and TensorFlow
checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

_MAX_VARINT_BYTES = 10
"""Of a 64-bit number."""
_FIXED_BYTES = {1: 8, 5: 4}  # by wire type


B = TypeVar("B", bytes, memoryview)


class MalformedProtobuf(ValueError):
    """Bytes that are not a valid encoding; callers add the file to the message."""


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The varint at offset `at`, below 2 ** 64, and the offset after it.

    Raises:
        MalformedProtobuf: truncated, or longer than 10 bytes.
    """
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for i, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value & (1 << 64) - 1, at + i + 1
    raise MalformedProtobuf("a number is cut short")


def encode_varint(value: int) -> bytes:
    """A number of at least 0 as varint bytes."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def parse_fields(data: B) -> Iterator[tuple[int, int | B]]:
    """The fields of a message in order, as (field number, value): integers, and length-delimited values as
    bytes, or as a memoryview if `data` is one.

    Raises:
        MalformedProtobuf: truncated, or an unknown wire type.
    """
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, at = read_varint(data, at)
            yield number, value
            continue
        size = _FIXED_BYTES.get(wire_type, -1)
        if wire_type == 2:
            size, at = read_varint(data, at)
        if size < 0 or at + size > len(data):
            raise MalformedProtobuf("a record is cut short or of an unknown kind")
        content, at = data[at : at + size], at + size
        yield number, content if wire_type == 2 else int.from_bytes(content, "little")


def encode_field(number: int, value: int | bytes) -> bytes:
    """A field as bytes; the number 0 gives none, as protocol buffers omit defaults."""
    if isinstance(value, bytes):
        return encode_varint(number << 3 | 2) + encode_varint(len(value)) + value
    return encode_varint(number << 3) + encode_varint(value) if value else b""


def encode_fixed32(number: int, value: int) -> bytes:
    """A fixed32 field as bytes."""
    return encode_varint(number << 3 | 5) + value.to_bytes(4, "little")
