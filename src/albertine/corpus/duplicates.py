"""Detect duplicate documents with a set of 128-bit digests in a memory-mapped file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

START_SLOTS = 1 << 16
_CHUNK = 1 << 16
_BLOCK = 1 << 20


def content_digest(paragraphs: Sequence[str]) -> bytes:
    """128-bit digest of a document, without spaces, paragraph borders and case.

    Other white space is included. The held-out documents are drawn by this digest, so it must never change.
    """
    text = "".join(paragraphs).replace(" ", "").lower()
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _reserve(file: BinaryIO, size: int) -> None:
    """Allocate `size` bytes of zeros on disk for a new file."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:  # macOS
        for at in range(0, size, _BLOCK):
            file.write(bytes(min(_BLOCK, size - at)))


class SeenDigests:
    """A hash set with open addressing in a memory-mapped file, whose pages the kernel can evict.

    A hundred million documents take 4.3 GB of disk and little memory. The file is unlinked while open, so it
    is removed however the process ends.

    Raises:
        OSError: the disk is full. All bytes are allocated in advance, because writing to an unallocated
            mapped page on a full disk kills the process.
    """

    def __init__(self, folder: Path, slots: int = START_SLOTS) -> None:
        self._folder = folder
        self._count = 0
        self._table = self._new_table(slots)

    def __len__(self) -> int:
        return self._count

    def _new_table(self, slots: int) -> np.memmap[Any, np.dtype[np.uint64]]:
        path = self._folder / f"seen-{os.getpid()}-{slots}.tmp"
        try:
            with path.open("xb") as file:
                _reserve(file, slots * 16)
            return np.memmap(path, dtype=np.uint64, mode="r+", shape=(slots, 2))
        finally:
            path.unlink(missing_ok=True)

    def add(self, digest: bytes) -> bool:
        """Add a 16-byte digest; False if it was in the set already."""
        low, high = (int(x) for x in np.frombuffer(digest, dtype=np.uint64))
        low = low or 1  # (0, 0) marks a free slot
        table, last = self._table, len(self._table) - 1
        at = low & last
        while table[at, 0]:
            if table[at, 0] == low and table[at, 1] == high:
                return False
            at = (at + 1) & last
        table[at, 0], table[at, 1] = low, high
        self._count += 1
        if self._count > 0.6 * len(table):
            self._grow()
        return True

    def _grow(self) -> None:
        old, table = self._table, self._new_table(2 * len(self._table))
        last = np.uint64(len(table) - 1)
        for start in range(0, len(old), _CHUNK):
            rows = np.asarray(old[start : start + _CHUNK])
            rows = rows[rows[:, 0] != 0]
            at = rows[:, 0] & last
            while len(rows):
                free = table[at, 0] == 0
                _, first = np.unique(at, return_index=True)
                placed = np.zeros(len(rows), dtype=np.bool_)
                placed[first] = True
                placed &= free
                table[at[placed]] = rows[placed]
                rows, at = rows[~placed], (at[~placed] + np.uint64(1)) & last
        self._table = table
