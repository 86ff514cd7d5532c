"""Whole numbers in as few bytes as they need, and the fields of a protocol buffer: what models of
SentencePiece and checkpoints of TensorFlow are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

_MOST = 10
"""Bytes of a number of 64 bits."""
_FIXED = {1: 8, 5: 4}


B = TypeVar("B", bytes, memoryview)


class MalformedProtobuf(ValueError):
    """Bytes that are not what they should be; who knows the file says so to a person."""


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number that begins at a place, below 2 ** 64, and where the next thing begins.

    Raises:
        Malformed: cut short, or of more bytes than such a number has.
    """
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for i, byte in enumerate(data[at : at + _MOST]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value & (1 << 64) - 1, at + i + 1
    raise MalformedProtobuf("a number is cut short")


def encode_varint(value: int) -> bytes:
    """The bytes of a number of at least 0."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def parse_fields(data: B) -> Iterator[tuple[int, int | B]]:
    """The fields of a protocol buffer in their order, by number: whole numbers, and all else as bytes, or as
    views of those that are given as a view.

    Raises:
        Malformed: cut short, or of a kind that there is none.
    """
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = read_varint(data, at)
            yield number, value
            continue
        size = _FIXED.get(kind, -1)
        if kind == 2:
            size, at = read_varint(data, at)
        if size < 0 or at + size > len(data):
            raise MalformedProtobuf("a record is cut short or of an unknown kind")
        piece, at = data[at : at + size], at + size
        yield number, piece if kind == 2 else int.from_bytes(piece, "little")


def encode_field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer; a number that is 0 is left out, as protocol buffers have it."""
    if isinstance(value, bytes):
        return encode_varint(number << 3 | 2) + encode_varint(len(value)) + value
    return encode_varint(number << 3) + encode_varint(value) if value else b""


def encode_fixed32(number: int, value: int) -> bytes:
    """A field that always takes four bytes."""
    return encode_varint(number << 3 | 5) + value.to_bytes(4, "little")
