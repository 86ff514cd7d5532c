"""Shards on disk: four `.npy` arrays, written atomically and verified before use.

tokens     uint16, or uint32 for vocabularies above 65,535; flat
sentences  int64 (sentences+1,), offsets into tokens
documents  int64 (documents+1,), offsets into sentences
words      uint8, one bit per token (numpy.packbits order): the token begins a word
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.core.files import replace_durably
from albertine.corpus.manifest import BLOCK_BYTES, PARTS, FileRecord, ShardRecord, shard_stem
from albertine.errors import CorpusError

EDGE_BYTES = 4096
REPAIR_REMEDY = "Run the `prepare` command that made this corpus again, or copy the file again"


@dataclass(frozen=True)
class ShardArrays:
    """The content of a shard in memory; `starts` has one boolean per token."""

    tokens: NDArray[np.unsignedinteger[Any]]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    starts: NDArray[np.bool_]


def token_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """The narrower of uint16 and uint32 that can represent every id."""
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
    head = header + bytes(body[: max(0, EDGE_BYTES - len(header))])
    tail = bytes(body[-EDGE_BYTES:]) if len(body) >= EDGE_BYTES else (header + bytes(body))[-EDGE_BYTES:]
    edges, blocks = hashlib.sha256(head + tail).hexdigest(), ""
    if size > BLOCK_BYTES:
        first = BLOCK_BYTES - len(header)
        blocks = hashlib.sha256(header + bytes(body[:first])).hexdigest()
        for at in range(first, len(body), BLOCK_BYTES):
            blocks += hashlib.sha256(body[at : at + BLOCK_BYTES]).hexdigest()
    return FileRecord(size, whole.hexdigest(), edges, blocks)


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
    """Write the four files, then the record by which a later call finds the shard finished.

    Args:
        text: digest of the shard's text.
        stamp: digest of the plan. A restart compares both.
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
    content = json.dumps({"stamp": stamp, **record.as_dict()}, indent=1) + "\n"
    replace_durably(record_path(folder, index), content.encode())
    return record


def load_finished_shard(folder: Path, index: int, *, text: str, stamp: str) -> ShardRecord | None:
    """The record of a shard written before from the same text and plan; None if there is none."""
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
    """Size and digests of a file."""
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            whole.update(block)
    return FileRecord(path.stat().st_size, whole.hexdigest(), _edges(path))


def _edges(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(EDGE_BYTES)
        file.seek(max(0, path.stat().st_size - EDGE_BYTES))
        return hashlib.sha256(head + file.read(EDGE_BYTES)).hexdigest()


def check_file(path: Path, record: FileRecord, *, full: bool = False) -> None:
    """Compare a file with its record: size and edges, or every byte.

    Raises:
        CorpusError: it is missing, truncated, swapped or damaged.
    """
    try:
        size = path.stat().st_size
        if size != record.bytes:
            kind = "is cut off" if size < record.bytes else "is too long"
            what = f"{kind} ({size:,} bytes instead of {record.bytes:,})"
            raise CorpusError(what, where=path, remedy=REPAIR_REMEDY)
        damaged = file_record(path).sha256 != record.sha256 if full else _edges(path) != record.edges
    except FileNotFoundError as error:
        raise CorpusError("is missing", where=path, remedy=REPAIR_REMEDY) from error
    except OSError as error:
        raise CorpusError(f"cannot be read ({error.strerror})", where=path, remedy=REPAIR_REMEDY) from error
    if damaged:
        raise CorpusError(
            "is damaged or another shard's file (SHA-256 differs)", where=path, remedy=REPAIR_REMEDY
        )


class CheckedArray:
    """A read-only memory-mapped `.npy` file. Each block is compared with its SHA-256 before its first use in
    this process.

    Args:
        limit: upper bound (exclusive) of its numbers.

    Raises:
        CorpusError: here and in every method: the file is damaged.
    """

    def __init__(
        self, path: Path, record: FileRecord, dtype: type[Any], length: int, *, limit: int | None = None
    ) -> None:
        self.path, self._record, self._limit = path, record, limit
        self._file, self._start = _map(path, dtype, length)
        self._array = np.frombuffer(self._file, dtype, length, self._start)
        self._item = self._array.itemsize
        self._size = record.block_bytes
        self._unchecked = -(-len(self._file) // self._size)
        self._checked = bytearray(self._unchecked)

    def __len__(self) -> int:
        return len(self._array)

    def read(self, start: int, end: int) -> NDArray[Any]:
        """Elements start:end, a view."""
        if self._unchecked:
            first = (self._start + start * self._item) // self._size
            last = (self._start + end * self._item - 1) // self._size
            for block in range(first, last + 1):
                if not self._checked[block]:
                    self._check(block)
        return self._array[start:end]

    def whole(self) -> NDArray[Any]:
        """The whole array, a view."""
        for block in range(len(self._checked)) if self._unchecked else ():
            if not self._checked[block]:
                self._check(block)
        return self._array

    def _check(self, block: int) -> None:
        begin = block * self._size
        end = min(begin + self._size, len(self._file))
        with memoryview(self._file) as content:
            found = hashlib.sha256(content[begin:end]).hexdigest()
        if found != self._record.block_digest(block):
            what = (
                f"is damaged in block {block + 1} of {len(self._checked)} "
                f"(bytes {begin:,} to {end:,}: SHA-256 differs from the manifest's)"
            )
            raise CorpusError(what, where=self.path, remedy=REPAIR_REMEDY)
        if self._limit is not None:
            inside = self._array[
                max(0, begin - self._start) // self._item : -(-(end - self._start) // self._item)
            ]
            if (largest := int(inside.max(initial=0))) >= self._limit:
                raise out_of_vocabulary_error(self.path, largest)
        self._checked[block] = 1
        self._unchecked -= 1


def out_of_vocabulary_error(path: Path, largest: int) -> CorpusError:
    """The error for a token id outside the vocabulary."""
    return CorpusError(f"holds token {largest}, which the vocabulary lacks", where=path, remedy=REPAIR_REMEDY)


class Shard:
    """A read-only memory-mapped shard. Every block of its files is verified before its first use.

    Raises:
        CorpusError: here and at every read: a file is damaged.
    """

    def __init__(self, folder: Path, index: int, record: ShardRecord, vocab_size: int) -> None:
        self.record = record

        def part(name: str, dtype: type[Any], length: int, limit: int | None = None) -> CheckedArray:
            return CheckedArray(
                part_path(folder, index, name), record.files[name], dtype, length, limit=limit
            )

        self._tokens = part("tokens", token_dtype(vocab_size), record.tokens, vocab_size)
        self._bits = part("words", np.uint8, (record.tokens + 7) // 8)
        self._offsets = {
            "sentences": (part("sentences", np.int64, record.sentences + 1), record.tokens),
            "documents": (part("documents", np.int64, record.documents + 1), record.sentences),
        }
        self._increasing: dict[str, NDArray[np.int64]] = {}

    @property
    def num_tokens(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> NDArray[np.unsignedinteger[Any]]:
        """All token ids, (tokens,)."""
        return self._tokens.whole()

    @property
    def sentences(self) -> NDArray[np.int64]:
        """Offsets of the sentences into the tokens, (sentences+1,)."""
        return self._increasing_offsets("sentences")

    @property
    def documents(self) -> NDArray[np.int64]:
        """Offsets of the documents into the sentences, (documents+1,)."""
        return self._increasing_offsets("documents")

    def ids(self, start: int, end: int) -> NDArray[np.unsignedinteger[Any]]:
        """Token ids start:end, a view."""
        return self._tokens.read(start, end)

    def words(self, start: int, end: int) -> NDArray[np.bool_]:
        """Whether each token of start:end begins a word, bool (end-start,)."""
        first = start >> 3
        bits = np.unpackbits(self._bits.read(first, (end + 7) >> 3))
        return bits[start - 8 * first : end - 8 * first].view(np.bool_)

    def check(self) -> None:
        """Verify all blocks that were not verified yet."""
        _ = self.tokens, self.sentences, self.documents, self._bits.whole()

    def _increasing_offsets(self, part: str) -> NDArray[np.int64]:
        found = self._increasing.get(part)
        if found is None:
            array, total = self._offsets[part]
            found = array.whole()
            if found[0] != 0 or found[-1] != total or bool((np.diff(found) < 1).any()):
                what = "holds offsets that do not increase from 0 to the end"
                raise CorpusError(what, where=array.path, remedy=REPAIR_REMEDY)
            self._increasing[part] = found
        return found


def _map(path: Path, dtype: type[Any], length: int) -> tuple[mmap.mmap, int]:
    """Memory-map a `.npy` file; also the offset of its data.

    Raises:
        CorpusError: it cannot be mapped, or has another dtype or shape.
    """
    try:
        with path.open("rb") as file:
            np.lib.format.read_magic(file)
            shape, _, found = np.lib.format.read_array_header_1_0(file)
            start = file.tell()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        full = getattr(error, "errno", None) == errno.EMFILE
        remedy = "Allow more open files: ulimit -n 65536" if full else REPAIR_REMEDY
        raise CorpusError(f"cannot be mapped ({error})", where=path, remedy=remedy) from error
    if found != dtype or shape != (length,) or len(mapped) != start + length * found.itemsize:
        what = f"holds {found} {shape}, not {np.dtype(dtype)} ({length},)"
        raise CorpusError(what, where=path, remedy=REPAIR_REMEDY)
    return mapped, start
