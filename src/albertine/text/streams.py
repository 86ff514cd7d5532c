"""Bytes out of files: plain, compressed, or members of a tar, never written to disk and never unbounded.

What a file is follows from its first bytes, not from its name, because renamed downloads are common.
Compressed input is fed to the decompressor a thousand bytes at a time, and those of bzip2 and xz, in which
these may hold any number of others, are asked for a block at a time. So even a bomb yields a bounded block
per call, and the ratio of bytes out to bytes in is checked after each.
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
    """What reading may cost at most.

    Args:
        document_characters: longest document; more means that the format was misjudged.
        ratio: bytes out per byte in, for one compressed stream, once `ratio_after` bytes came out.
        ratio_after: bytes that may come out before the ratio counts.
        unpacked_bytes: bytes that one compressed file may unpack to.
        members: files in one archive.
        in_memory_bytes: size of a file that cannot be streamed where it lies (Parquet in an archive).
    """

    document_characters: int = 64_000_000
    ratio: int = 250
    ratio_after: int = 32 << 20
    unpacked_bytes: int = 1 << 40
    members: int = 5_000_000
    in_memory_bytes: int = 512 << 20


class PackageMissing(DataError):
    """A file that a package not installed here could read."""


class Readable(Protocol):
    """Anything with `read(n)`."""

    def read(self, size: int = -1, /) -> bytes: ...


class ByteStream:
    """A forward-only stream whose first bytes can be looked at before reading.

    Raises:
        DataError: at any read, the disk or the network does not give the bytes.
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
_TABLE = "a workbook of a spreadsheet", "Save its sheet there as CSV in UTF-8"
_WRITING = "a document of a word processor", "Save it there as plain text in UTF-8"
_OFFICE = {".xlsx": _TABLE, ".xlsm": _TABLE, ".ods": _TABLE, ".docx": _WRITING, ".odt": _WRITING}
"""What is a zip archive by its bytes, and nothing that a person would unpack."""
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
    # 128 MiB is the window the zstd program itself accepts without --long
    return lambda: zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()


def _broken(kind: str, name: str, why: str) -> DataError:
    return DataError(f"is damaged or cut off ({kind}: {why})", where=name, remedy="Download or copy it again")


class _Unpacked:
    """The bytes inside one compressed stream of any number of concatenated frames."""

    def __init__(self, source: ByteStream, kind: str, limits: Limits) -> None:
        self._source, self._kind, self._limits = source, kind, limits
        self._make = _decompressor(kind, source.name)
        self._bound = {"max_length": _BLOCK_BYTES} if kind in ("bzip2", "xz") else {}
        self._engine = self._make()
        self._pending = b""
        self._taken = self._given = 0
        self._ready = bytearray()

    def read(self, size: int = -1, /) -> bytes:
        wanted = _BLOCK_BYTES if size < 0 else size
        while len(self._ready) < wanted and self._feed():
            pass
        block = bytes(self._ready[:wanted])
        del self._ready[:wanted]
        return block

    def _feed(self) -> bool:
        """Unpack a little more; False at the end of the stream."""
        name, block = self._source.name, b""
        if self._engine.eof or getattr(self._engine, "needs_input", True):  # else it has more to give
            block = self._pending or self._source.read(_FEED_BYTES)
            self._pending = b""
            if not block:
                if not self._engine.eof:
                    raise _broken(self._kind, name, "the file ends too early")
                return False
        if self._engine.eof:
            block = block.lstrip(b"\0")  # archivers pad with zeros between and after streams
            if not block:
                return True
            self._engine = self._make()
        try:
            out = self._engine.decompress(block, **self._bound)
        except Exception as error:
            # zstandard has an error class of its own; every one of them means the same to the reader
            raise _broken(self._kind, name, str(error)) from error
        self._pending = self._engine.unused_data
        self._taken += len(block) - len(self._pending)
        self._given += len(out)
        self._ready += out
        self._check()
        return True

    def _check(self) -> None:
        limits = self._limits
        if self._given > limits.unpacked_bytes:
            raise DataError(f"unpacks to more than {limits.unpacked_bytes:,} bytes", where=self._source.name)
        if self._given > limits.ratio_after and self._given > limits.ratio * max(1, self._taken):
            raise DataError(
                f"unpacks to more than {limits.ratio} times its size, as no text does",
                where=self._source.name,
                remedy="If you trust it, unpack it yourself first",
            )


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def decompressed(stream: ByteStream, limits: Limits) -> ByteStream:
    """The stream itself, or what is inside if its first bytes say that it is compressed."""
    head = stream.head(10)
    kind = next((k for k, magic in _MAGIC.items() if magic.match(head)), None)
    promised = _SUFFIX.get(_suffix(stream.name))
    if promised and head and kind is None:
        raise DataError(f"is named {_suffix(stream.name)} but holds no {promised} data", where=stream.name)
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
    """A tar member whose read errors are those of a cut-off archive."""

    def __init__(self, content: Readable, archive: str) -> None:
        self._content, self._archive = content, archive

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._content.read(size)
        except tarfile.TarError as error:
            raise _broken("tar", self._archive, str(error)) from error


_LONG = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
"""Kinds of headers that have further words behind them."""


class _Header(tarfile.TarInfo):
    """A header, whose further words tarfile reads whole, however many it tells."""

    def _proc_member(self, archive: Any) -> Any:
        if self.type in _LONG and self.size > 1 << 20:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a file with gaps")
        return super()._proc_member(archive)  # type: ignore[misc]

    def _no_gaps(self, *_: Any) -> Any:
        """Where the parts of a file with gaps lie is told in lists without end."""
        raise tarfile.ReadError("a file with gaps")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _no_gaps


class _Archive(tarfile.TarFile):
    tarinfo = _Header

    def next(self) -> tarfile.TarInfo | None:
        try:
            return super().next()
        except (ValueError, RecursionError) as error:  # words that are no numbers, headers behind headers
            raise tarfile.ReadError(str(error)) from error


def tar_members(stream: ByteStream, limits: Limits) -> Iterator[ByteStream]:
    """The regular files in a tar, in its order; folders, links, devices, hidden files and what lies in hidden
    folders are passed over.

    Nothing is extracted, so a member's name is only ever a label, whatever it contains.
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
