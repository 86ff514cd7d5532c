"""Whether the disk will hold what is to be written, judged beforehand, and said clearly when it did not."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from albertine.errors import RunError

_PACKED = {".xz", ".gz", ".zst", ".bz2", ".tgz", ".txz", ".parquet"}
_UNPACKS_TO = 3  # at least, for text
_PER_BYTE = 0.5  # shard bytes per byte of text: English 0.55 to 0.6, Chinese 0.7 to 0.8
_MARGIN = 32 << 20


def estimate(files: Sequence[Path], written: int = 0) -> int:
    """Bytes that a corpus made of `files` takes at least; low on purpose, since a refusal must be right.

    Args:
        written: bytes of shards that are there, which stay or make room for their like one at a time.
    """
    text = sum(f.stat().st_size * (_UNPACKS_TO if f.suffix.lower() in _PACKED else 1) for f in files)
    return max(0, int(text * _PER_BYTE) - written) + _MARGIN


def check_space(folder: Path, needed: int) -> None:
    """Raises RunError if the disk of `folder` has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(
            f"the disk has {free / 1e6:,.0f} MB free and the corpus will take about "
            f"{needed / 1e6:,.0f} MB more",
            where=folder,
            remedy="Free space or name a folder on another disk",
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the file system while writing to `folder` into one message."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full" if full else f"cannot be written ({error.strerror or error})"
        remedy = "Free space" if full else "Mend this"
        raise RunError(
            what, where=folder, remedy=f"{remedy} and run the same command again; finished shards are kept"
        ) from error
