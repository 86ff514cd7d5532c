"""Pickled weights with bytes changed at random: each is read in a fork with the worker's limits, and must be
read or refused, never more.

    python -m tests.interop.fuzz_pickled SECONDS SEED FOLDER

prints how many cases ended how, as JSON; a case that ended otherwise is kept in FOLDER. A case is a function
of the seed and its number.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import time
import traceback
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path

import numpy as np
import torch

from albertine.interop import pickled_worker as worker

Random = np.random.Generator
LARGE = (b"\xff" * 8, bytes(8), (2**31 - 1).to_bytes(4, "little"), (2**63 - 1).to_bytes(8, "little"))


def seeds() -> list[bytes]:
    """A small table of weights in both forms of torch.save, the zip first."""
    table: dict[str, torch.Tensor] = OrderedDict(
        (f"bert.layer.{i}.LayerNorm.gamma", torch.arange(35.0).view(7, 5)) for i in range(6)
    )
    table |= {"tied": table["bert.layer.0.LayerNorm.gamma"], "half": torch.zeros(4).half()}
    table |= {"parameter": torch.nn.Parameter(torch.ones(3)), "position_ids": torch.arange(9)[None]}
    files = []
    for zipped in (True, False):
        file = io.BytesIO()
        torch.save(table, file, _use_new_zipfile_serialization=zipped)
        files.append(file.getvalue())
    return files


def changed(content: bytes, rng: Random) -> bytes:
    """One to sixteen changes: other bytes or bits, holes, insertions, copies, the largest numbers."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        data = data or bytearray(b"x")
        place, size = int(rng.integers(len(data))), int(rng.integers(1, 40))
        match int(rng.integers(6)):
            case 0:
                data[place] = int(rng.integers(256))
            case 1:
                data[place] ^= 1 << int(rng.integers(8))
            case 2:
                del data[place : place + size]
            case 3:
                data[place:place] = rng.bytes(size)
            case 4:
                other = int(rng.integers(len(data)))
                data[place : place + size] = data[other : other + size]
            case _:
                data[place : place + 8] = LARGE[int(rng.integers(len(LARGE)))]
    return bytes(data)


def case(seed: int, number: int, files: list[bytes]) -> bytes:
    """A zip whose pickle alone is changed, a zip, or a stream."""
    rng = np.random.default_rng([seed, number])
    if (kind := rng.random()) > 0.6:
        return changed(files[1], rng)
    if kind > 0.4:
        return changed(files[0], rng)
    source, target = zipfile.ZipFile(io.BytesIO(files[0])), io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as members:
        for name in source.namelist():
            part = source.read(name)
            members.writestr(name, changed(part, rng) if name.endswith("data.pkl") else part)
    return target.getvalue()


def outcome(file: Path, log: Path) -> str:
    """How reading a file ended: "read", "refused", or what should not be."""
    if (child := os.fork()) == 0:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1), os.dup2(handle, 2)
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
            worker.confine(worker.TIMES * file.stat().st_size + worker.FREE)
            worker.look(file)
            worker.read(file)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(77)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return {0: "read", worker.REFUSED: "refused"}.get(code, f"ended with {code}")


def main(seconds: float, seed: int, folder: Path) -> None:
    torch.set_num_threads(1)
    files, found = seeds(), Counter[str]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number = found.total()
        path = folder / "case.bin"
        path.write_bytes(case(seed, number, files))
        how = outcome(path, folder / "said.txt")
        found[how] += 1
        if how not in ("read", "refused"):
            path.rename(folder / f"case-{seed}-{number}.bin")
    print(json.dumps(found))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
