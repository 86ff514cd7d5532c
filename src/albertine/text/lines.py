"""Decode bytes to text lines; guess encodings; errors for bytes that are not text."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from typing import Any

from albertine.errors import DataError
from albertine.text.streams import HEAD_BYTES, ByteStream, Limits

_WIDE_MARKS = {  # UTF-32 first: its byte order mark begins with that of UTF-16
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
_CHINESE_RUN = re.compile("[—‘’“”…\u3000-\u303f\u4e00-\u9fff\uff01-\uff5e]{2,}")
"""Runs of Chinese characters, punctuation and full-width forms."""
_COMMON_HAN = re.compile(rb"[\xa1\xa3\xb0-\xd7][\xa1-\xfe]")
"""The more frequent half of the characters of GB2312, and Chinese punctuation."""
_MARK, _FIRST_MARK = re.compile("\ufeff"), re.compile("(?<=\n)\ufeff+")
_INNER = re.compile(rb"\A[\x80-\xbf]{1,3}")
"""Continuation bytes of a UTF-8 character that began before."""


def check_encoding(encoding: str) -> str:
    """The Python name of a text encoding; DataError if there is no such encoding."""
    try:
        found = codecs.lookup(encoding)
        if not found._is_text_encoding:
            raise LookupError
    except LookupError as error:
        raise DataError(
            f"there is no text encoding `{encoding}`",
            remedy="Usual ones: utf-8, gb18030, big5, utf-16, latin-1",
        ) from error
    return "utf-8-sig" if found.name == "utf-8" else found.name


def detect_encoding(stream: ByteStream, encoding: str) -> str:
    """The Python name of the encoding of a stream: UTF-8 if it begins with that byte order mark, else
    `encoding`.

    Raises:
        DataError: there is no such encoding.
    """
    requested = check_encoding(encoding)
    return "utf-8-sig" if stream.head(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else requested


def _wide(head: bytes) -> str | None:
    """`utf-32` or `utf-16` if the file begins with their byte order mark."""
    for name, marks in _WIDE_MARKS.items():
        if head.startswith(marks):
            return name
    return None


def _utf16_without_mark(head: bytes) -> str | None:
    """`utf-16-le` or `utf-16-be` if the bytes look like that without a byte order mark: NULs mostly in one
    half of the byte pairs, and nearly all characters printable."""
    sides = {"utf-16-le": head[1::2].count(0), "utf-16-be": head[::2].count(0)}
    for name in sorted(sides, key=lambda name: -sides[name]):
        text = head[: len(head) // 2 * 2].decode(name, errors="replace")
        if sides[name] >= 4 and sum(c.isprintable() or c.isspace() for c in text) > 0.99 * len(text):
            return name
    return None


_WINDOWS, _NOT_WINDOWS = re.compile(rb"[\x80-\x9f]"), re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
"""Control characters in Latin-1, quotes and dashes in cp1252; five of them undefined in cp1252."""


def guess_encoding(head: bytes) -> str:
    """A likely encoding of bytes that another encoding could not decode, for a message.

    Args:
        head: bytes from anywhere in a text; characters at either end may be truncated. UTF-16 is recognised
            only at the beginning of a text.
    """
    if wide := _wide(head) or _utf16_without_mark(head):
        return wide
    if b"\0" not in head and _is_utf8(head):
        return "utf-8"
    high = sum(b >= 0x80 for b in head)
    for encoding in ("gb18030", "big5"):
        text = head.decode(encoding, errors="replace")
        # an accented Latin-1 letter and the next letter also decode as a Chinese character, but a single one
        chinese = sum(map(len, _CHINESE_RUN.findall(text)))
        if text.count("\ufffd") <= 1 + high // 200 and chinese >= 4 and chinese * 2 > 0.6 * high:
            return encoding
    # a few Chinese characters: accented Latin-1 letters stand among ASCII letters, not in such pairs
    if high and _COMMON_HAN.sub(b"", head).isascii():
        return "gb18030"
    return "cp1252" if _WINDOWS.search(head) and not _NOT_WINDOWS.search(head) else "latin-1"


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(_INNER.sub(b"", head))
    except UnicodeDecodeError:
        return False
    return True


def decoding_error(name: str, line: int, head: bytes, encoding: str, reason: str) -> DataError:
    """The error for undecodable bytes, with a guess at the right encoding.

    Args:
        head: bytes around the error.
    """
    shown = "utf-8" if encoding == "utf-8-sig" else encoding
    guess = guess_encoding(head)
    advice = _advice(guess) if guess != shown else "Pass the right --encoding"
    return DataError(f"is not {shown} text (line {line}: {reason})", where=name, remedy=advice)


def _advice(encoding: str) -> str:
    advice = "It is UTF-8:" if encoding == "utf-8" else "Convert it to UTF-8, or"
    return f"{advice} pass --encoding {encoding} where a command has that option"


def _binary(name: str, line: int, head: bytes) -> DataError:
    """The error for a NUL byte.

    Args:
        line: its line number.
        head: bytes from the start of a line.
    """
    if wide := _utf16_without_mark(head):
        what = f"looks like {wide.upper()} (NUL byte in line {line})"
        return DataError(what, where=name, remedy=_advice(wide))
    return DataError(
        f"is a binary file, not text (NUL byte in line {line})",
        where=name,
        remedy="Name text files, or convert it to text; if it is text with a stray NUL byte, remove that, "
        r"for example with tr -d '\000' < FILE > NEW",
    )


def ends_lines_with_carriage_returns(stream: ByteStream, encoding: str) -> bool:
    """Whether lines end in carriage returns alone, as on old Macs: more of them than line feeds in the first
    ~64 kB."""
    head = stream.head(HEAD_BYTES).decode(encoding, errors="ignore")
    return head.count("\r") - head.count("\r\n") > head.count("\n")


def head_text(stream: ByteStream, encoding: str) -> tuple[str, bool]:
    """The first ~64 kB as text with `\\n` line ends, and whether that is the whole file.

    Raises:
        DataError: binary or undecodable bytes.
    """
    head = stream.head(HEAD_BYTES + 1)
    whole = len(head) <= HEAD_BYTES
    if encoding == "utf-8-sig" and (wide := _wide(head)):
        raise DataError(f"is {wide.upper()}, not UTF-8", where=stream.name, remedy=_advice(wide))
    # before decoding: a binary file is rarely valid UTF-8, and "binary" is the more useful message
    if encoding == "utf-8-sig" and b"\0" in head:
        before = head[: head.index(0)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        raise _binary(stream.name, before.count(b"\n") + 1, head)
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(head, whole)
    except UnicodeError as error:
        line = head.count(b"\n", 0, getattr(error, "start", 0)) + 1
        reason = getattr(error, "reason", str(error))
        raise decoding_error(stream.name, line, head, encoding, reason) from error
    return text.replace("\r\n", "\n").replace("\r", "\n"), whole


class TextLines:
    """Iterates over the lines of a stream without line ends. `number` is the number of the last line, from 1.

    Args:
        inner_marks: keep byte order marks inside lines, so that character offsets stay valid; else remove
            all.
        returns: keep carriage returns; else each, with or without a line feed, ends a line.
    """

    def __init__(
        self,
        stream: ByteStream,
        encoding: str,
        limits: Limits,
        *,
        inner_marks: bool = False,
        returns: bool = False,
    ) -> None:
        self.name = stream.name
        self.number = 0
        decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._decoder = decoder if returns else io.IncrementalNewlineDecoder(decoder, True)
        self._stream, self._encoding, self._limits = stream, encoding, limits
        self._mark = _FIRST_MARK if inner_marks else _MARK

    @property
    def mixed_ends(self) -> bool:
        """Whether some lines so far ended with a carriage return alone and others did not."""
        ends = getattr(self._decoder, "newlines", None)
        return isinstance(ends, tuple) and "\r" in ends

    def __iter__(self) -> Iterator[str]:
        rest: list[str] = []
        waiting = 0
        for text in self.blocks():
            first, *others = text.split("\n")
            rest.append(first)
            waiting += len(first)
            if waiting > self._limits.document_characters:
                raise too_long_error(f"{self.name}:{self.number + 1}", self._limits, "a single line is")
            if not others:
                continue
            self.number += 1
            yield "".join(rest)
            rest = [others.pop()]
            waiting = len(rest[0])
            for line in others:
                self.number += 1
                yield line
        if waiting:
            self.number += 1
            yield "".join(rest)

    def blocks(self) -> Iterator[str]:
        """The text in blocks of about 256 kB with `\n` line ends; an alternative to iterating over lines."""
        decoder: Any = self._decoder
        lines, block, before = 0, b"-", "\n"
        while block:
            block = self._stream.read()
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeError as error:
                start = getattr(error, "start", 0)
                line = lines + block.count(b"\n", 0, start) + 1
                reason, begin = getattr(error, "reason", str(error)), max(0, start - HEAD_BYTES // 2)
                around = block[begin : begin + HEAD_BYTES]
                raise decoding_error(self.name, line, around, self._encoding, reason) from error
            if "\0" in text:
                line = lines + text.count("\n", 0, text.index("\0")) + 1
                raise _binary(self.name, line, block)
            if "\ufeff" in text:  # inside, where files with marks were concatenated
                text = self._mark.sub("", before + text)[1:]
            before = "\n" if text.endswith("\n") or (before == "\n" and not text) else "-"
            lines += text.count("\n")
            yield text


def too_long_error(where: str, limits: Limits, subject: str) -> DataError:
    """The error for a document or line longer than the limit."""
    return DataError(
        f"{subject} longer than {limits.document_characters:,} characters",
        where=where,
        remedy="The format is probably wrong, or blank lines between documents are missing: pass --format",
    )
