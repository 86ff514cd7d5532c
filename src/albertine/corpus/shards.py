"""One shard on disk: four plain `.npy` arrays, written whole or not at all, and checked when read.

tokens     uint16, or uint32 for vocabularies above 65,535; flat
sentences  int64 (sentences+1,), offsets into tokens
documents  int64 (documents+1,), offsets into sentences
words      uint8, one bit a token (numpy.packbits order): the token begins a word
"""

from __future__ import annotations

import errno
import hashlib
import json
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from albertine.corpus.manifest import PARTS, FileRecord, ShardRecord, shard_stem
from albertine.errors import CorpusError
from albertine.files import replace_durably

EDGE = 4096
_BLOCK = 1 << 20
REPAIR = "Run the `prepare` command that made this corpus again, or copy the file again"


@dataclass(frozen=True)
class ShardArrays:
    """The content of a shard in memory; `starts` has one boolean a token."""

    tokens: NDArray[np.unsignedinteger[Any]]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    starts: NDArray[np.bool_]


def token_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """The narrowest of the two types that holds every id."""
    return np.uint16 if vocab_size <= 65_535 else np.uint32


def part_path(folder: Path, index: int, part: str) -> Path:
    return folder / f"{shard_stem(index)}.{part}.npy"


def record_path(folder: Path, index: int) -> Path:
    return folder / f"{shard_stem(index)}.json"


def _npy_header(array: NDArray[Any]) -> bytes:
    out = BytesIO()
    np.lib.format.write_array_header_1_0(out, np.lib.format.header_data_from_array_1_0(array))
    return out.getvalue()


def _write_array(path: Path, array: NDArray[Any]) -> FileRecord:
    array = np.ascontiguousarray(array)
    header, body = _npy_header(array), array.data.cast("B") if array.size else memoryview(b"")
    replace_durably(path, header, body)
    whole = hashlib.sha256(header)
    whole.update(body)
    size = len(header) + len(body)
    head = header + bytes(body[: max(0, EDGE - len(header))])
    tail = bytes(body[-EDGE:]) if len(body) >= EDGE else (header + bytes(body))[-EDGE:]
    return FileRecord(size, whole.hexdigest(), hashlib.sha256(head + tail).hexdigest())


def write_shard(
    folder: Path,
    index: int,
    arrays: ShardArrays,
    *,
    unknown: int,
    empty_documents: int,
    text: str,
    stamp: str,
) -> ShardRecord:
    """Write the four files and then the record that makes them count.

    Args:
        text: digest of the text it was made from.
        stamp: digest of the settings; both are compared at a restart.
    """
    parts: dict[str, NDArray[Any]] = {
        "tokens": arrays.tokens,
        "sentences": arrays.sentences,
        "documents": arrays.documents,
        "words": np.packbits(arrays.starts),
    }
    record = ShardRecord(
        documents=len(arrays.documents) - 1,
        sentences=len(arrays.sentences) - 1,
        tokens=len(arrays.tokens),
        unknown=unknown,
        empty_documents=empty_documents,
        max_id=int(arrays.tokens.max(initial=0)),
        text=text,
        files={part: _write_array(part_path(folder, index, part), parts[part]) for part in PARTS},
    )
    content = json.dumps({"stamp": stamp, **asdict(record)}, indent=1) + "\n"
    replace_durably(record_path(folder, index), content.encode())
    return record


def finished_shard(folder: Path, index: int, *, text: str, stamp: str) -> ShardRecord | None:
    """The record of a shard already written from the same text under the same settings, or None."""
    try:
        tree = json.loads(record_path(folder, index).read_text(encoding="utf-8"))
        record = ShardRecord.parse(tree)
        if tree["stamp"] != stamp or record.text != text:
            return None
        for part, file in record.files.items():
            check_file(part_path(folder, index, part), file, full=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CorpusError):
        return None
    return record


def file_record(path: Path) -> FileRecord:
    """Size and digests of a file as it is."""
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            whole.update(block)
    return FileRecord(path.stat().st_size, whole.hexdigest(), _edges(path))


def _edges(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(EDGE)
        file.seek(max(0, path.stat().st_size - EDGE))
        return hashlib.sha256(head + file.read(EDGE)).hexdigest()


def check_file(path: Path, record: FileRecord, *, full: bool = False) -> None:
    """Compare a file with its record: size and edges, or every byte.

    Raises:
        CorpusError: it is missing, truncated, swapped or damaged; the message names the file.
    """
    try:
        size = path.stat().st_size
        if size != record.bytes:
            kind = "is cut off" if size < record.bytes else "is too long"
            what = f"{kind} ({size:,} bytes instead of {record.bytes:,})"
            raise CorpusError(what, where=path, remedy=REPAIR)
        damaged = file_record(path).sha256 != record.sha256 if full else _edges(path) != record.edges
    except FileNotFoundError as error:
        raise CorpusError("is missing", where=path, remedy=REPAIR) from error
    except OSError as error:
        raise CorpusError(f"cannot be read ({error.strerror})", where=path, remedy=REPAIR) from error
    if damaged:
        raise CorpusError("is damaged or another shard's file (SHA-256 differs)", where=path, remedy=REPAIR)


class Shard:
    """One shard, memory-mapped and read-only; nothing is copied until it is used."""

    def __init__(self, folder: Path, index: int, record: ShardRecord, dtype: type[Any]) -> None:
        self.record = record
        self.tokens = _map(part_path(folder, index, "tokens"), dtype, record.tokens)
        self.sentences = _map(part_path(folder, index, "sentences"), np.int64, record.sentences + 1)
        self.documents = _map(part_path(folder, index, "documents"), np.int64, record.documents + 1)
        self._bits = _map(part_path(folder, index, "words"), np.uint8, (record.tokens + 7) // 8)

    def words(self, start: int, end: int) -> NDArray[np.bool_]:
        """Whether each token of start:end begins a word, bool (end-start,)."""
        first = start >> 3
        bits = np.unpackbits(self._bits[first : (end + 7) >> 3])
        return bits[start - 8 * first : end - 8 * first].view(np.bool_)


def _map(path: Path, dtype: type[Any], length: int) -> NDArray[Any]:
    try:
        # nothing can be mapped of an array without elements
        mode: Literal["r"] | None = "r" if length else None
        mapped: NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
    except (OSError, ValueError) as error:
        full = getattr(error, "errno", None) == errno.EMFILE
        remedy = "Allow more open files: ulimit -n 65536" if full else REPAIR
        raise CorpusError(f"cannot be mapped ({error})", where=path, remedy=remedy) from error
    if mapped.dtype != dtype or mapped.shape != (length,):
        found = f"{mapped.dtype} {mapped.shape}"
        raise CorpusError(f"holds {found}, not {np.dtype(dtype)} ({length},)", where=path, remedy=REPAIR)
    # a plain view: slicing a memmap object costs several times as much as slicing an array
    return mapped.view(np.ndarray)
