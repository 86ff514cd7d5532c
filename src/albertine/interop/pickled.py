"""Weights that torch.save pickled, as Hugging Face kept them until 2023: read in a process of its own, with
limits, into safetensors that live as long as they are looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from albertine.errors import ModelError
from albertine.interop import pickled_worker

PICKLED = "pytorch_model.bin"
PICKLED_INDEX = "pytorch_model.bin.index.json"
MOST_BYTES = 8_000_000_000
"""Most bytes of all files of a model; XLNet-large has 1.4 GB."""
SECONDS, BYTES_A_SECOND = 120, 20_000_000
"""The time limit of a file: a constant for a start on a busy machine, and the rate of a slow disk."""
_REMEDY = "Take the model's safetensors, or a copy from its maker"
_KNOWN = (
    *("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR"),
    *("HOME", "PYTHONUSERBASE"),  # where `pip install --user` puts torch
)
"""Environment variables that the process inherits; no token or password."""


@contextmanager
def as_safetensors(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Pickled weight files as safetensors, one each, gone when the context ends.

    Raises:
        ModelError: a file is no such file, requires anything but tensors, or needs more than its size allows;
            nothing of it was run.
    """
    total = sum(file.stat().st_size for file in files)
    if total > MOST_BYTES:
        raise ModelError(
            f"is pickled and has {total / 1e9:,.1f} GB, of which at most {MOST_BYTES / 1e9:,.0f} are read",
            where=files[0],
            remedy="Save it as safetensors, for example with save_pretrained of a recent transformers",
        )
    with TemporaryDirectory(prefix="albertine-") as folder:
        written = [Path(folder) / f"{number}.safetensors" for number in range(len(files))]
        _run(files, written, SECONDS + total // BYTES_A_SECOND)
        yield written


def _run(files: Sequence[Path], written: Sequence[Path], seconds: int) -> None:
    pairs = [str(path.absolute()) for pair in zip(files, written, strict=True) for path in pair]
    # -P: no module is taken from the folder that a person stands in, which may be that of the model.
    command = [sys.executable, "-P", pickled_worker.__file__, str(seconds), *pairs]
    known = {name: os.environ[name] for name in _KNOWN if name in os.environ}
    try:
        done = subprocess.run(
            command,
            env={**known, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"was not read within {seconds} s", where=files[0], remedy=_REMEDY) from error
    if done.returncode == pickled_worker.REFUSED:
        tree = json.loads(done.stdout)
        raise ModelError(tree["what"], where=tree["file"], remedy=tree["remedy"] or _REMEDY)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        memory = pickled_worker.room(max(file.stat().st_size for file in files))
        raise ModelError(
            f"cannot be read within {memory} of memory and {seconds} s "
            f"({lines[-1][:200] if lines else f'ended by signal {-done.returncode}'})",
            where=files[0],
            remedy=_REMEDY,
        )
