"""Byte streams of plain and compressed files and tar members, in bounded memory and without temporary files.

The kind of a file is determined by its first bytes, not its name, because renamed downloads are common.
Compressed input is passed to the decompressor a thousand bytes at a time; bzip2 and xz, which can expand
these without bound, also get a maximum output length. So a decompression bomb gives a bounded block per call,
and the ratio of output to input is checked after each.
"""

from __future__ import annotations

import bz2
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from albertine.errors import DataError

HEAD_BYTES = 1 << 16
_FEED_BYTES = 1024
_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True)
class Limits:
    """Upper bounds of reading.

    Args:
        document_characters: longest document; a longer one means that the format was misdetected.
        ratio: output bytes per input byte of a compressed stream, after `ratio_after` bytes of output.
        unpacked_bytes: output of one compressed file.
        members: files in one archive.
        in_memory_bytes: size of a file that has to be read into memory (Parquet in an archive).
    """

    document_characters: int = 64_000_000
    ratio: int = 250
    ratio_after: int = 32 << 20
    unpacked_bytes: int = 1 << 40
    members: int = 5_000_000
    in_memory_bytes: int = 512 << 20


class PackageMissing(DataError):
    """Reading a file needs a package that is not installed."""


class Readable(Protocol):
    """Anything with `read(n)`."""

    def read(self, size: int = -1, /) -> bytes: ...


class ByteStream:
    """A forward-only stream with a look-ahead at its first bytes.

    Raises:
        DataError: at any read, on an error of the disk or network.
    """

    def __init__(self, raw: Readable, name: str) -> None:
        self.name = name
        self._raw = raw
        self._ahead = b""

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """The first bytes still unread, fewer than `size` only at the end of the stream."""
        if len(self._ahead) < size:
            parts, have = [self._ahead], len(self._ahead)
            while have < size and (block := self._next(size - have)):
                parts.append(block)
                have += len(block)
            self._ahead = b"".join(parts)
        return self._ahead[:size]

    def read(self, size: int = _BLOCK_BYTES) -> bytes:
        """At most `size` bytes; empty only at the end."""
        if self._ahead:
            block, self._ahead = self._ahead[:size], self._ahead[size:]
            return block
        return self._next(size)

    def _next(self, size: int) -> bytes:
        try:
            return self._raw.read(size)
        except OSError as error:
            raise DataError(
                f"cannot be read ({error.strerror or error})",
                where=self.name,
                remedy="Check the disk or the network that it lies on, or copy the file again",
            ) from error


_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bzip2": re.compile(rb"BZh[1-9]1AY&SY"),
}
_SPREADSHEET = "a workbook of a spreadsheet", "Save its sheet there as CSV in UTF-8"
_WORD_DOCUMENT = "a document of a word processor", "Save it there as plain text in UTF-8"
_OFFICE = {
    ".xlsx": _SPREADSHEET,
    ".xlsm": _SPREADSHEET,
    ".ods": _SPREADSHEET,
    ".docx": _WORD_DOCUMENT,
    ".odt": _WORD_DOCUMENT,
}
"""Office files are zip archives by their bytes, but 'unpack it' would be the wrong remedy."""
_SUFFIX = {".gz": "gzip", ".tgz": "gzip", ".xz": "xz", ".txz": "xz", ".zst": "zstd", ".bz2": "bzip2"}


def _decompressor(kind: str, name: str) -> Callable[[], Any]:
    if kind == "gzip":
        return lambda: zlib.decompressobj(wbits=31)
    if kind == "xz":
        return lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=512 << 20)
    if kind == "bzip2":
        return bz2.BZ2Decompressor
    try:
        import zstandard
    except ImportError as error:
        raise PackageMissing(
            "is compressed with zstd, which needs the `zstandard` package",
            where=name,
            remedy="pip install 'albertine[data]'",
        ) from error
    # 128 MiB is the largest window that the zstd program accepts without --long
    return lambda: zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()


def _broken(kind: str, name: str, why: str) -> DataError:
    return DataError(f"is damaged or cut off ({kind}: {why})", where=name, remedy="Download or copy it again")


class _Unpacked:
    """The decompressed bytes of a stream of any number of concatenated frames."""

    def __init__(self, source: ByteStream, kind: str, limits: Limits) -> None:
        self._source, self._kind, self._limits = source, kind, limits
        self._make = _decompressor(kind, source.name)
        self._bound = {"max_length": _BLOCK_BYTES} if kind in ("bzip2", "xz") else {}
        self._engine = self._make()
        self._pending = b""
        self._bytes_in = self._bytes_out = 0
        self._ready = bytearray()

    def read(self, size: int = -1, /) -> bytes:
        count = _BLOCK_BYTES if size < 0 else size
        while len(self._ready) < count and self._feed():
            pass
        block = bytes(self._ready[:count])
        del self._ready[:count]
        return block

    def _feed(self) -> bool:
        """Decompress one more block; False at the end of the stream."""
        name, block = self._source.name, b""
        if self._engine.eof or getattr(self._engine, "needs_input", True):  # else it has more output
            block = self._pending or self._source.read(_FEED_BYTES)
            self._pending = b""
            if not block:
                if not self._engine.eof:
                    raise _broken(self._kind, name, "the file ends too early")
                return False
        if self._engine.eof:
            block = block.lstrip(b"\0")  # archivers pad with zeros between and after frames
            if not block:
                return True
            self._engine = self._make()
        try:
            out = self._engine.decompress(block, **self._bound)
        except Exception as error:
            # each library has its own error classes; all mean a damaged file
            raise _broken(self._kind, name, str(error)) from error
        self._pending = self._engine.unused_data
        self._bytes_in += len(block) - len(self._pending)
        self._bytes_out += len(out)
        self._ready += out
        self._check()
        return True

    def _check(self) -> None:
        limits = self._limits
        if self._bytes_out > limits.unpacked_bytes:
            raise DataError(f"unpacks to more than {limits.unpacked_bytes:,} bytes", where=self._source.name)
        if self._bytes_out > limits.ratio_after and self._bytes_out > limits.ratio * max(1, self._bytes_in):
            raise DataError(
                f"unpacks to more than {limits.ratio} times its size, as no text does",
                where=self._source.name,
                remedy="If you trust it, unpack it yourself first",
            )


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def decompressed(stream: ByteStream, limits: Limits) -> ByteStream:
    """The stream, decompressed if its first bytes are of a compressed format."""
    head = stream.head(10)
    kind = next((k for k, magic in _MAGIC.items() if magic.match(head)), None)
    expected = _SUFFIX.get(_suffix(stream.name))
    if expected and head and kind is None:
        raise DataError(f"is named {_suffix(stream.name)} but holds no {expected} data", where=stream.name)
    if head.startswith(b"%PDF-"):
        remedy = "Save its words as plain text in UTF-8"
        raise DataError("is a PDF, which is not read", where=stream.name, remedy=remedy)
    if head.startswith((b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!")):
        what, remedy = _OFFICE.get(_suffix(stream.name), ("a zip, 7z or rar archive", "Unpack it first"))
        raise DataError(f"is {what}, which is not read", where=stream.name, remedy=remedy)
    return ByteStream(_Unpacked(stream, kind, limits), stream.name) if kind else stream


def is_tar(stream: ByteStream) -> bool:
    """Whether the stream holds a tar: POSIX and GNU headers carry `ustar`, an empty archive only zeros."""
    head = stream.head(512)
    return head[257:262] == b"ustar" or (".tar" in Path(stream.name).name and head == bytes(512))


class _Member:
    """A tar member; read errors are reported as a truncated archive."""

    def __init__(self, content: Readable, archive: str) -> None:
        self._content, self._archive = content, archive

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._content.read(size)
        except tarfile.TarError as error:
            raise _broken("tar", self._archive, str(error)) from error


_EXTENDED = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
"""Types of headers that are followed by extended header data."""


class _Header(tarfile.TarInfo):
    """A header with a bound on extended header data, which tarfile would read whole whatever its size."""

    def _proc_member(self, archive: Any) -> Any:
        if self.type in _EXTENDED and self.size > 1 << 20:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a file with gaps")
        return super()._proc_member(archive)  # type: ignore[misc]

    def _refuse_sparse(self, *_: Any) -> Any:
        """Sparse files are refused: their maps can be endless."""
        raise tarfile.ReadError("a file with gaps")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


class _Archive(tarfile.TarFile):
    tarinfo = _Header

    def next(self) -> tarfile.TarInfo | None:
        try:
            return super().next()
        except (ValueError, RecursionError) as error:  # invalid numbers, endlessly nested headers
            raise tarfile.ReadError(str(error)) from error


def tar_members(stream: ByteStream, limits: Limits) -> Iterator[ByteStream]:
    """The regular files in a tar in order, without hidden files and files in hidden folders.

    Nothing is extracted to disk, so a member's name is only a label.
    """
    try:
        with _Archive.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
            for count, member in enumerate(archive):
                if count >= limits.members:
                    raise DataError(f"holds more than {limits.members:,} members", where=stream.name)
                parts = [part for part in member.name.split("/") if part not in (".", "..")]
                hidden = "__MACOSX" in parts or any(part.startswith(".") for part in parts)
                if hidden or not member.isreg():
                    continue
                content = archive.extractfile(member)
                if content is not None:
                    name = f"{stream.name}:{member.name}"
                    yield ByteStream(_Member(content, stream.name), name)
                archive.members = []  # tarfile keeps every header otherwise: memory grows with the archive
    except (tarfile.TarError, EOFError) as error:
        raise _broken("tar", stream.name, str(error)) from error
