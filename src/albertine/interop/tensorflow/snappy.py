"""Decompression of Snappy, with which TensorFlow may compress the index of a checkpoint.

The format is that of google/snappy's format_description.txt: the length of the content as a varint, then
literals and copies of earlier output.
"""

from __future__ import annotations

from albertine.core.protobuf import MalformedProtobuf, read_varint


def decompressed(data: bytes, limit: int) -> bytes:
    """The content of a block.

    Args:
        limit: most bytes; a block that claims more is refused before anything is written.

    Raises:
        MalformedProtobuf: longer than the limit or than it claims, truncated, or a copy from before its
            beginning.
    """
    length, at = read_varint(data, 0)
    if length > limit:
        raise MalformedProtobuf(f"a compressed block claims to hold {length} bytes")
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3:
            size, back, at = _copy(data, tag, at)
            _extend(out, size, back, length)
        else:
            size, at = _literal(data, tag, at)
            if at + size > len(data) or len(out) + size > length:
                raise MalformedProtobuf("a compressed block has a literal that is too long")
            out += data[at : at + size]
            at += size
    if len(out) != length:
        raise MalformedProtobuf(f"a compressed block claims {length} bytes and holds {len(out)}")
    return bytes(out)


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise MalformedProtobuf("a compressed block is cut short")
    return int.from_bytes(data[at : at + width], "little")


def _literal(data: bytes, tag: int, at: int) -> tuple[int, int]:
    """Its length, and where it begins. From 60 on the tag gives the number of bytes of the length minus
    one."""
    size = tag >> 2
    if size < 60:
        return size + 1, at
    width = size - 59
    return _number(data, at, width) + 1, at + width


def _copy(data: bytes, tag: int, at: int) -> tuple[int, int, int]:
    """Its length, its distance back, and the position of the next tag."""
    if tag & 3 == 1:
        return (tag >> 2 & 7) + 4, (tag >> 5 << 8) | _number(data, at, 1), at + 1
    width = 2 if tag & 3 == 2 else 4
    return (tag >> 2) + 1, _number(data, at, width), at + width


def _extend(out: bytearray, size: int, back: int, length: int) -> None:
    if not 1 <= back <= len(out) or len(out) + size > length:
        raise MalformedProtobuf("a compressed block copies what is not there, or too much")
    start = len(out) - back
    if back >= size:
        out += out[start : start + size]
    else:  # the copy overlaps its own output: a pattern of `back` bytes is repeated
        pattern = bytes(out[start:])
        out += (pattern * (size // back + 1))[:size]
