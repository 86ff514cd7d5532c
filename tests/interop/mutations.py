"""Damaged indexes of TensorFlow checkpoints: each is read, or refused by a ModelError, soon and in little
memory. For more than the suite has time for:

    python -m tests.interop.mutations 600 [FIRST CASE]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from albertine.core.protobuf import MalformedProtobuf
from albertine.errors import ModelError
from albertine.interop.tensorflow.bundle import read_index
from albertine.interop.tensorflow.crc32c import masked
from albertine.interop.tensorflow.sorted_table import FOOTER, MAGIC, _put, read_table, table

SECONDS = 5.0
ODD = (b"", b"\0", b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\xff\xff\xff\xff\x0f", b"\x7f", b"\x08\x01" * 40)


def mutated(original: bytes, case: int, path: Path) -> bool:
    """Damage a file and read it; the result is whether it was read. Any error but ModelError gets out."""
    rng = np.random.default_rng([16, case])
    data = (_bytes, _records, _compressed)[case % 3](original, rng)
    path.write_bytes(data)
    start = time.perf_counter()
    try:
        read_index(path)
        return True
    except ModelError:
        return False
    finally:
        assert time.perf_counter() - start < SECONDS, f"case {case}"


def _changed(data: bytes, rng: np.random.Generator) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        at = int(rng.integers(0, len(out) + 1))
        kind = rng.integers(0, 4)
        if kind == 0 and at < len(out):
            out[at] = int(rng.integers(0, 256))
        elif kind == 1:
            out[at : at + int(rng.integers(0, 30))] = b""
        elif kind == 2:
            out[at:at] = ODD[int(rng.integers(0, len(ODD)))]
        else:
            out[at:at] = out[: int(rng.integers(0, 200))]
    return bytes(out)


def _bytes(original: bytes, rng: np.random.Generator) -> bytes:
    """Bytes anywhere, the footer included."""
    return _changed(original, rng)


def _records(original: bytes, rng: np.random.Generator) -> bytes:
    """Names and records, in a table whose checksums are right."""
    entries = list(read_table(original).items())
    for _ in range(int(rng.integers(1, 4))):
        i = int(rng.integers(0, len(entries)))
        key, value = entries[i]
        entries[i] = (key, _changed(value, rng)) if rng.random() < 0.7 else (_changed(key, rng), value)
    return table(sorted(entries) if rng.random() < 0.7 else entries)


def _compressed(original: bytes, rng: np.random.Generator) -> bytes:
    """A block of any bytes, marked as plain or as Snappy's, with a right checksum, named once or often."""
    plain = bytearray()
    _put(plain, list(read_table(original).items()))
    block = bytes(plain[:-5]) if rng.random() < 0.5 else original[:-FOOTER]
    block = _changed(block, rng)
    out = bytearray(block + bytes([int(rng.integers(0, 3))]))
    out += masked(bytes(out)).to_bytes(4, "little")
    handle = b"\0" + bytes(_varint(len(block)))
    tail = _put(out, []) + _put(out, [(b"z", handle)] * int(rng.integers(1, 4)))
    return bytes(out + tail.ljust(FOOTER - 8, b"\0") + MAGIC)


def _varint(value: int) -> bytes:
    from albertine.core.protobuf import encode_varint

    return encode_varint(value)


def main(seconds: float, case: int = 0) -> None:
    files = sorted(Path(__file__).with_name("tensorflow").glob("*.index"))
    originals, end, first, read = [f.read_bytes() for f in files], time.monotonic() + seconds, case, 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            try:
                read += mutated(originals[case // 3 % len(originals)], case, Path(folder) / "m.index")
            except MalformedProtobuf as error:
                raise AssertionError(f"case {case}") from error
            case += 1
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{case - first:,} cases, {read:,} of them readable; at most {most:,.0f} MB in the process")


if __name__ == "__main__":
    main(float(sys.argv[1]), *map(int, sys.argv[2:]))
