"""Read documents from files and folders, streaming, in a fixed order. All text is read through this module.

Sentence pairs are drawn within a document; a document never spans files. The detected format of each file is
reported to `on_file`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from albertine.errors import DataError
from albertine.text.formats import BY_SUFFIX, FileShape, check_format, detect_format, suffix
from albertine.text.lines import TextLines, check_encoding, detect_encoding, head_text
from albertine.text.plain_text import READERS, Paragraphs
from albertine.text.records import read_jsonl, read_parquet
from albertine.text.streams import (
    ByteStream,
    Limits,
    PackageMissing,
    Readable,
    decompressed,
    is_tar,
    tar_members,
)

_TEXT_SUFFIXES = {"", ".txt", ".text", ".json", ".tar", ".tgz", ".txz", *BY_SUFFIX}
_NOT_TEXT_NAMES = {"readme", "license", "licence", "copying", "notice", "changelog"}
_CORPUS_NAMES = {"manifest.json", "prepare.json", "tokenizer", "train", "heldout"}
_VOCABULARIES = {"vocab.txt", "spiece.model", "tokenizer.json"}
_VOCABULARY = _VOCABULARIES | {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}
_CONFIGURATION = re.compile(r".*config.*\.json")
_WEIGHTS = re.compile(r"(pytorch|tf|flax)_model.*|.*model.*\.(safetensors|onnx)|.+\.data-\d+-of-\d+")
_EXPORTS = {"onnx", "openvino", "torch", "model.gguf"}
PASSED_OVER = ("skipped", "empty", "unreadable", "broken off")
"""Values of `FileReport.format` for files that give no documents, or only some before an error."""


@dataclass(frozen=True)
class Document:
    """One document.

    Args:
        source: the file it came from, `archive:member` inside an archive.
        paragraphs: its paragraphs in order, none empty, without line breaks.
        presplit: each paragraph is one sentence.
    """

    source: str
    paragraphs: tuple[str, ...]
    presplit: bool

    @property
    def characters(self) -> int:
        """Length of the text, with one character between paragraphs."""
        return sum(map(len, self.paragraphs)) + max(0, len(self.paragraphs) - 1)


@dataclass(frozen=True)
class FileReport:
    """The format of a file or archive member and the reason; a later report of the same source replaces it.

    `narrow` is as in `FileShape`: columns of lines that look hard-wrapped and are not joined.

    For members of folders and archives `format` may also be `skipped` (by its name), `empty` (no text),
    `unreadable`, or `broken off` (unreadable from some place on; the documents before it are kept).
    """

    source: str
    format: str
    reason: str
    narrow: int = 0


def list_files(paths: Sequence[Path | str]) -> list[Path]:
    """The text files in `paths`: files as given, folders searched recursively in sorted order.

    In folders, these are skipped: hidden files, empty files, READMEs and licences, files with an extension
    that is not of text, broken links, folders that cannot be opened, and folders of corpora, vocabularies,
    runs and models. Files given explicitly are always read. Links to folders are followed; every folder is
    searched once.

    Raises:
        DataError: a path that does not exist, an explicitly given file that is empty, an explicitly given
            corpus, vocabulary, run or model, or a folder without text files.
    """
    return [file for found in _found(paths) for file in found.files]


@dataclass(frozen=True)
class _Found:
    """The files of one path: a file given explicitly, or those in a folder."""

    folder: bool
    files: list[Path]
    passed_over: list[FileReport]


def _found(paths: Sequence[Path | str]) -> list[_Found]:
    if not paths:
        raise DataError("no text was named", remedy="Give files or folders of text")
    return [_search(path) if path.is_dir() else _named(path) for path in map(Path, paths)]


def _named(path: Path) -> _Found:
    if not path.exists():
        raise DataError("there is no such file or folder", where=path, remedy="Check the path")
    if not path.is_file():
        raise DataError("is not a regular file", where=path, remedy="Write its content to a file first")
    if path.stat().st_size == 0:
        raise DataError("is empty", where=path, remedy="Remove it from the list or write it again")
    return _Found(False, [path], [])


def _search(folder: Path) -> _Found:
    files: list[Path] = []
    passed_over: list[FileReport] = []
    for file in _walk(folder, passed_over):
        if (report := _skip_reason(file)) is not None:
            passed_over.append(report)
        else:
            files.append(file)
    if not files:
        for report in passed_over:
            if report.format == "unreadable":
                raise DataError(
                    report.reason, where=report.source, remedy="Check its permissions, or remove it"
                )
        kinds = " ".join(sorted(_TEXT_SUFFIXES - {""}))
        remedy = f"Files taken from folders: {kinds}, or without an extension; also .gz .xz .zst .bz2"
        raise DataError("there is no text file in this folder", where=folder, remedy=remedy)
    return _Found(True, files, passed_over)


def _skip_reason(file: Path) -> FileReport | None:
    """A report if a file in a folder is skipped without opening it."""
    if reason := _skipped_by_name(file.name):
        return FileReport(str(file), "skipped", reason)
    try:
        size = file.stat().st_size
    except OSError as error:
        return FileReport(str(file), "unreadable", _open_failure(error))
    return None if size else FileReport(str(file), "empty", "has no bytes")


def _walk(folder: Path, passed_over: list[FileReport]) -> Iterator[Path]:
    """The files in a folder, recursively; folders that cannot be opened are added to `passed_over`."""

    def note(error: OSError) -> None:
        passed_over.append(FileReport(str(error.filename), "unreadable", _open_failure(error)))

    seen: set[tuple[int, int]] = set()
    for here, folders, names in os.walk(folder, onerror=note, followlinks=True):
        known, place = len(seen), os.stat(here)
        seen.add((place.st_dev, place.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names = sorted(name for name in names if not name.startswith("."))
        product = _product_of_text({*folders, *names})
        if product and Path(here) == folder:
            raise DataError(
                f"is {product}, not text", where=folder, remedy="Name the text that it was made of"
            )
        if product or len(seen) == known:  # the latter: visited before through a link
            folders.clear()
        else:
            yield from (Path(here, name) for name in names)


def _product_of_text(names: set[str]) -> str | None:
    """The kind of folder, by the names in it, if it is a corpus (finished or not), vocabulary, run or model,
    whose files look like text but are not to be read as text."""
    if {"tokenizer", "train"} <= names and names & {"manifest.json", "prepare.json"}:
        return "a prepared corpus"
    if "prepare.json" in names and names <= _CORPUS_NAMES:
        return "a prepared corpus"
    if {"settings.yaml", "metrics.jsonl"} <= names:
        return "a run"
    if "tokenizer_config.json" in names <= _VOCABULARY and names & _VOCABULARIES:
        return "a vocabulary"
    return "a model" if _is_model(names) else None


def _is_model(names: set[str]) -> bool:
    """Whether a folder holds a model: weights of transformers or TensorFlow with a configuration (which alone
    is no evidence), a TF-Hub module, or an export."""
    if any(map(_CONFIGURATION.fullmatch, names)) and any(map(_WEIGHTS.fullmatch, names)):
        return True
    exported = {"config.json", "export.json"} <= names and not names.isdisjoint(_EXPORTS)
    return exported or {"saved_model.pb", "variables"} <= names


def _open_failure(error: OSError) -> str:
    return f"cannot be opened ({error.strerror})"


def _skipped_by_name(name: str) -> str | None:
    """The extension or name because of which a file is skipped, such as README; None if it is not."""
    if (ending := suffix(name)) not in _TEXT_SUFFIXES:
        return ending
    stem = name.partition(".")[0]
    return stem if stem.lower() in _NOT_TEXT_NAMES else None


def read_documents(
    paths: Sequence[Path | str],
    format: str = "auto",
    text_field: str = "text",
    *,
    encoding: str = "utf-8",
    limits: Limits | None = None,
    on_file: Callable[[FileReport], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """All documents in files and folders, in order, one in memory at a time.

    Args:
        paths: files and folders; see `list_files`. In a folder, skipped files and files without text or that
            cannot be read are reported to `on_file` and are no error, unless all files are such.
        format: one of `formats.FORMATS`; `auto` decides for each file from its extension and first 64 kB.
        text_field: the field or column of JSON lines and Parquet that holds the text.
        encoding: of text files; one that begins with the byte order mark of UTF-8 is UTF-8.
        limits: bounds on memory and sizes.
        on_file: called with a report before the first document of each file or archive member, and again if
            it turns out to be empty or unreadable. Without it, such files in folders are errors.
        on_bytes: called with the number of bytes of each read from disk; they add up to the files' sizes.

    Raises:
        DataError: at the call for missing files and unknown formats, while iterating for everything inside a
        file.
    """
    check_format(format)
    reader = _Reader(
        format,
        text_field,
        check_encoding(encoding),
        limits or Limits(),
        on_file or (lambda _: None),
        on_bytes or (lambda _: None),
        skip_errors=on_file is not None,
    )
    return reader.documents(_found(paths))


class _Counted:
    """A file that reports the bytes read."""

    def __init__(self, raw: Readable, on_bytes: Callable[[int], None]) -> None:
        self._raw, self._on_bytes = raw, on_bytes
        self.total = 0

    def read(self, size: int = -1, /) -> bytes:
        block = self._raw.read(size)
        self.total += len(block)
        self._on_bytes(len(block))
        return block


class _NoText(DataError):
    """A file without documents."""


@dataclass(frozen=True)
class _Reader:
    format: str
    text_field: str
    encoding: str
    limits: Limits
    on_file: Callable[[FileReport], None]
    on_bytes: Callable[[int], None]
    skip_errors: bool

    def documents(self, found: list[_Found]) -> Iterator[Document]:
        for one in found:
            for report in one.passed_over:
                if report.format == "unreadable" and not self.skip_errors:
                    raise DataError(report.reason, where=report.source, remedy="Remove it")
                self.on_file(report)
            parts = ((str(file), self._file(file)) for file in one.files)
            if one.folder:
                yield from self._parts(parts)
            else:
                for _, documents in parts:
                    yield from documents

    def _parts(
        self, parts: Iterable[tuple[str, Iterator[Document]]], archive: str | None = None
    ) -> Iterator[Document]:
        """The documents of the parts of a folder or archive. With `skip_errors`, unusable parts are reported
        and skipped, unless all are; damage to the archive itself is always an error."""
        first: DataError | None = None
        some = False
        for name, documents in parts:
            count = 0
            try:
                for document in documents:
                    count, some = count + 1, True
                    yield document
            except DataError as error:
                if not self.skip_errors or isinstance(error, PackageMissing) or error.where == archive:
                    raise
                first = first or error
                reason = str(error).removeprefix(f"{name}: ")
                kept = f". {count:,} documents before that are kept" if count else ""
                kind = "broken off" if count else "unreadable"
                if isinstance(error, _NoText):
                    kind, reason = "empty", error.what
                self.on_file(FileReport(name, kind, f"{reason}{kept}"))
        if first is not None and not some:
            raise first

    def _file(self, path: Path) -> Iterator[Document]:
        """The documents of a file, at least one; else DataError."""
        empty = True
        for document in self._read(path):
            empty = False
            yield document
        if empty:
            remedy = "Remove it from the list, or pass --format if it was read in the wrong one"
            raise _NoText("holds no text", where=path, remedy=remedy)

    def _read(self, path: Path) -> Iterator[Document]:
        with ExitStack() as stack:
            try:
                size = path.stat().st_size
                raw = _Counted(stack.enter_context(path.open("rb", buffering=0)), self.on_bytes)
                stream = ByteStream(raw, str(path))
            except OSError as error:
                raise DataError(_open_failure(error), where=path) from error
            # report the rest: Parquet is read without the stream, a tar ends before its padding, errors stop
            # early
            stack.callback(lambda: self.on_bytes(max(0, size - raw.total)))
            inside = decompressed(stream, self.limits)
            if is_tar(inside):
                members = tar_members(inside, self.limits)
                yield from self._parts(((m.name, self._archived(m)) for m in members), inside.name)
            else:
                yield from self._stream(inside, path if inside is stream else None)

    def _archived(self, member: ByteStream) -> Iterator[Document]:
        base = member.name.rpartition(":")[2].rpartition("/")[2]
        reason = _skipped_by_name(base)
        if reason or not member.head(1):
            self.on_file(FileReport(member.name, "skipped" if reason else "empty", reason or "has no bytes"))
            return
        inside = decompressed(member, self.limits)
        if is_tar(inside):
            raise DataError(
                "is an archive inside an archive", where=member.name, remedy="Unpack the outer one"
            )
        yield from self._stream(inside, None)

    def _stream(self, stream: ByteStream, path: Path | None) -> Iterator[Document]:
        if self.format == "parquet" or (self.format == "auto" and stream.head(4) == b"PAR1"):
            shape = FileShape("parquet", "begins with PAR1" if self.format == "auto" else "as requested")
            self.on_file(FileReport(stream.name, shape.format, shape.reason))
            found = read_parquet(stream, path, self.text_field, self.limits)
        else:
            encoding = detect_encoding(stream, self.encoding)
            head, whole = head_text(stream, encoding)
            shape = detect_format(stream.name, head, whole, self.format)
            if shape.format == "parquet":
                raise DataError("is damaged or no Parquet file", where=stream.name, remedy="Copy it again")
            blank = whole and not head.strip("\ufeff \t\r\n\f\v\u3000")
            format = "empty" if blank else shape.format
            self.on_file(FileReport(stream.name, format, shape.reason, shape.narrow))
            found = iter(()) if blank else self._text(stream, encoding, shape)
        presplit = shape.format == "lines"
        for paragraphs in found:
            yield Document(stream.name, paragraphs, presplit)

    def _text(self, stream: ByteStream, encoding: str, shape: FileShape) -> Iterator[Paragraphs]:
        lines = TextLines(stream, encoding, self.limits)
        if shape.format == "jsonl":
            return read_jsonl(lines, self.text_field, self.limits)
        return READERS[shape.format](lines, shape, self.limits)
