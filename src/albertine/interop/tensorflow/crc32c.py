"""CRC-32C, the checksum of TensorFlow's files, in NumPy.

A CRC is linear: that of a buffer is the sum of those of its parts, each shifted by the length of what
follows. So a buffer is cut into lanes of equal length, NumPy processes four bytes of every lane at once, and
the lanes are added in pairs.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed (RFC 3720, appendix B.4)
_FULL = 0xFFFFFFFF
_LANE = 1 << 10  # bytes
_CHUNK = 1 << 22  # bytes processed together, which bounds memory
_SHORT = 1 << 12  # below it plain Python is as fast
_MASK = 0xA282EAD8


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of a buffer; that of b"123456789" is 0xE3069283."""
    state = _FULL
    view = memoryview(data).cast("B")
    for start in range(0, len(view), _CHUNK):
        chunk = view[start : start + _CHUNK]
        if len(chunk) < _SHORT:
            table = _plain_bytes()
            for byte in chunk:
                state = (state >> 8) ^ table[(state ^ byte) & 0xFF]
        else:
            state = int(_moved(np.array([state], np.uint32), len(chunk))[0]) ^ _remainder(chunk)
    return state ^ _FULL


def masked(data: bytes | memoryview) -> int:
    """The checksum as TensorFlow and LevelDB store it: rotated by 15 bits plus a constant, so that data with
    embedded checksums can be checked too."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK) & _FULL


def _remainder(chunk: memoryview) -> int:
    """The state of a register after a chunk, starting from 0."""
    lanes = 1 << (max(1, len(chunk) // _LANE) - 1).bit_length()
    padding = -len(chunk) % (lanes * 4)
    padded = np.zeros(len(chunk) + padding, np.uint8)
    padded[padding:] = np.frombuffer(chunk, np.uint8)  # leading zeros do not change the state
    words = padded.view("<u4").reshape(lanes, -1)
    low, high = _halves()
    state = np.zeros(lanes, np.uint32)
    for column in np.ascontiguousarray(words.T):
        state ^= column
        state = low[state & 0xFFFF] ^ high[state >> 16]
    length = words.shape[1] * 4
    while len(state) > 1:
        state = _moved(state[0::2], length) ^ state[1::2]
        length *= 2
    return int(state[0])


@lru_cache(1)
def _bytes() -> Words:
    """For every byte: the state of a register one byte later."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


@lru_cache(1)
def _plain_bytes() -> tuple[int, ...]:
    return tuple(_bytes().tolist())


def _one_byte_on(state: Words) -> Words:
    moved: Words = (state >> 8) ^ _bytes()[state & 0xFF]
    return moved


@lru_cache(1)
def _halves() -> tuple[Words, Words]:
    """For the lower and the upper 16 bits of a register: its state four bytes later."""
    low, high = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(shift) for shift in (0, 16))
    for _ in range(4):
        low, high = _one_byte_on(low), _one_byte_on(high)
    return low, high


@lru_cache(64)
def _power(exponent: int) -> Words:
    """(32,) the state of a register with only bit i set 2 ** exponent bytes later."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if exponent == 0:
        return _one_byte_on(bits)
    half = _power(exponent - 1)
    return _applied(half, half)


def _applied(map_: Words, state: Words) -> Words:
    """A linear map, given by its images of single bits, applied to many registers."""
    result = np.zeros_like(state)
    for bit in range(32):
        result ^= np.where((state >> np.uint32(bit)) & 1, map_[bit], np.uint32(0)).astype(np.uint32)
    return result


def _moved(state: Words, count: int) -> Words:
    """The state of registers after `count` bytes of zeros."""
    exponent = 0
    while count >> exponent:
        if count >> exponent & 1:
            state = _applied(_power(exponent), state)
        exponent += 1
    return state
