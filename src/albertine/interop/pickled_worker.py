"""Rewrites files of torch.save as safetensors; `pickled.py` runs it as a script, in a process of its own.

A pickle is a program. Three measures keep it from running: torch's reader with weights_only allows only calls
that build tensors; before that, the file must have the form that torch.save writes; and the process has only
the memory and time that weights of that size need. It imports nothing of the package.

    python -P pickled_worker.py SECONDS IN OUT [IN OUT ...]

If a file is refused, it exits with REFUSED and writes one line of JSON with the reason to stdout.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import zipfile
from pathlib import Path
from typing import Any, NoReturn

REFUSED = 3
FREE = 256 << 20
"""Bytes for what is no tensor: the reader, its tables, the heap's own."""
TIMES = 5
"""Room for a file: once as it is read, twice as tensors that share memory are parted, and twice to spare."""
MOST_TENSORS = 100_000
ZIP, TAR, POINTER = b"PK\x03\x04", b"ustar", b"version https://git-lfs"
STREAM = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")
"""How a file of torch before 1.6 begins: a pickle of the number 0x1950a86a20f9469cfc6c."""


def main(words: list[str]) -> None:
    pairs = [(Path(one), Path(other)) for one, other in zip(words[1::2], words[2::2], strict=True)]
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, int(words[0]))
    largest = max(one.stat().st_size for one, _ in pairs)
    _limit(resource.RLIMIT_FSIZE, 2 * largest + FREE)
    for one, _ in pairs:
        look(one)
    import safetensors.torch
    import torch

    torch.set_num_threads(1)
    confine(TIMES * largest + FREE)
    for one, other in pairs:
        safetensors.torch.save_file(read(one), other, metadata={"format": "pt"})


def read(file: Path) -> dict[str, Any]:
    """The tensors of a file, each with memory of its own; anything else is refused."""
    import torch

    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "allocate" in str(error):
            refuse(file, f"needs more memory than weights of its size do ({room(file.stat().st_size)})")
        refuse(file, f"is damaged ({first_line(error)})")
    except Exception as error:  # whatever a forged pickle can raise
        refuse(file, _why(error))
    return tensors(file, found)


def look(file: Path) -> None:
    """Refuse a file that torch.save does not write, before anything interprets it."""
    with file.open("rb") as open_file:
        head = open_file.read(512)
    if head.startswith(POINTER):
        refuse(file, "is a pointer of git-lfs to the weights, not the weights", "Fetch them: git lfs pull")
    if TAR in head:
        refuse(file, "is a tar file of the first versions of torch, which cannot be read without running it")
    if head.startswith(STREAM):
        return
    if not head.startswith(ZIP):
        refuse(file, "is no file of torch.save, by how it begins")
    try:
        with zipfile.ZipFile(file) as members:
            entries = members.infolist()
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, RecursionError) as error:
        refuse(file, f"is damaged, perhaps cut short ({first_line(error)})")
    # torch.save stores and never compresses, so that what is compressed is a bomb or was packed by others.
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        refuse(
            file, "has compressed parts, which torch.save never writes: unpacked they could fill a machine"
        )
    if sum(entry.file_size for entry in entries) > file.stat().st_size:
        refuse(file, "claims more than it holds")


def tensors(file: Path, found: Any) -> dict[str, Any]:
    """The unpickled object, checked to be a mapping of plain tensors no larger than the file."""
    import torch

    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        refuse(file, f"holds a {type(found).__name__}, where weights are a table of names and tensors")
    if len(found) > MOST_TENSORS:
        refuse(file, f"holds {len(found):,} entries")
    result: dict[str, Any] = {}
    seen: set[int] = set()
    total, most = 0, 2 * file.stat().st_size
    for name, x in found.items():
        if type(x) not in (torch.Tensor, torch.nn.Parameter):
            refuse(file, f"holds a {type(x).__name__} under {name!r}, where weights are tensors")
        if x.layout != torch.strided or x.device.type != "cpu" or x.is_quantized or x.is_complex():
            refuse(file, f"{name} is no plain tensor of numbers")
        size, place = x.numel() * x.element_size(), x.untyped_storage()
        total += size
        if size > place.nbytes() or total > most:
            refuse(file, f"{name} claims {size:,} bytes, more than the file holds")
        # Tied weights are stored once; safetensors holds no two names of one memory.
        own = x.detach().contiguous()
        result[name] = own.clone() if place.data_ptr() in seen else own
        seen.add(place.data_ptr())
    return result


def _why(error: Exception) -> str:
    """The reason for refusing a pickle, from the error of torch's reader."""
    text = str(error)
    if called := re.search(r"(?:GLOBAL|Unsupported global|function) (\S+?\.\S+)", text):
        name = called[1].rstrip(".,`'\"")
        return f"calls {name}, which no weights need; nothing of it was run"
    return f"is no table of weights that can be read safely ({first_line(error)})"


def confine(more: int) -> None:
    """Give the process so many bytes of memory more than it has, where the system reports how much that
    is."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + more)


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def room(largest: int) -> str:
    return f"{(TIMES * largest + FREE) / 1e6:,.0f} MB"


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]


def refuse(file: Path, what: str, remedy: str | None = None) -> NoReturn:
    print(json.dumps({"file": str(file), "what": what, "remedy": remedy}), flush=True)
    os._exit(REFUSED)  # at once: no finalizer of an unpickled object runs


if __name__ == "__main__":
    main(sys.argv[1:])
