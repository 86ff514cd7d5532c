"""What a text file looks like inside: the known formats, and how one is recognised by its first 64 kB."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, get_args

from albertine.errors import DataError

Format = Literal[
    "auto", "lines", "paragraphs", "documents", "book", "wiki", "wikitext", "markdown", "jsonl", "parquet"
]
FORMATS: tuple[str, ...] = get_args(Format)

MEANING: dict[str, str] = {
    "lines": "a line is a sentence, a blank line ends a document",
    "paragraphs": "a line is a paragraph; blank lines end documents unless one stands after every line",
    "documents": "a line is a document",
    "book": "hard-wrapped lines, blank lines between paragraphs, a file is a document",
    "wiki": "WikiExtractor <doc> elements",
    "wikitext": "WikiText: `= Title =` begins a document",
    "markdown": "Markdown, a file is a document",
    "jsonl": "a JSON object a line",
    "parquet": "a Parquet row is a document",
}

_PACKED = {".gz", ".xz", ".zst", ".bz2"}
_BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".md": "markdown",
    ".markdown": "markdown",
    ".parquet": "parquet",
}

_STOP_AT_END = re.compile(r"[.!?…。！？；:：;][\"'”’」』）)\]]*\s*$")
_STOP_INSIDE = re.compile(r"[.!?][\"'”’)]*\s+[\"'“‘(]*[A-Z]|[。！？][”’」』）]*[^\s”’」』）]")
_TITLE = re.compile(r"^ ?= [^=].* = ?$", re.MULTILINE)
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]")


@dataclass(frozen=True)
class Shape:
    """What was decided about a file: the format, why, and (for `paragraphs`) if blank lines end documents."""

    format: str
    reason: str
    blank_ends_document: bool = True


def check_format(format: str) -> str:
    """`format` if it is a known one; raises DataError with the list otherwise."""
    if format not in FORMATS:
        raise DataError(f"there is no text format `{format}`", remedy=f"Formats: {', '.join(FORMATS)}")
    return format


def suffix(name: str) -> str:
    """The extension that says what is inside: `a.jsonl.gz` gives `.jsonl`."""
    path = PurePosixPath(name)
    while path.suffix.lower() in _PACKED:
        path = path.with_suffix("")
    return path.suffix.lower()


def recognise(name: str, head: str, whole: bool, wanted: str = "auto") -> Shape:
    """Decide how to read a file; the same answer for the same name and head.

    Args:
        name: the file or archive member; only its extension counts.
        head: its first ~64 kB of text.
        whole: whether `head` is all of it.
        wanted: a format, or `auto`.
    """
    lines = head.split("\n")
    if not whole and len(lines) > 1:
        lines.pop()  # cut in the middle
    blocks = _blocks(lines)
    blank_ends = sum(len(b) for b in blocks) >= 1.5 * len(blocks)
    if wanted != "auto":
        return Shape(wanted, "as asked", blank_ends)
    if by_suffix := _BY_SUFFIX.get(suffix(name)):
        return Shape(by_suffix, f"by its extension {suffix(name)}")
    start = head.lstrip()
    if start.startswith("<doc "):
        return Shape("wiki", "begins with <doc")
    if start.startswith(("{", "[")) and (suffix(name) == ".json" or _is_record(start)):
        return Shape("jsonl", "begins with a JSON object")
    if len(_TITLE.findall(head)) > 0 and start.startswith("= "):
        return Shape("wikitext", "begins with a `= Title =` line")
    return _plain(blocks, blank_ends)


def _is_record(start: str) -> bool:
    line, end, _ = start.partition("\n")
    if not end and len(line) > 1000:
        return line.startswith('{"')  # one long record, cut off by the head
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.rstrip())
        elif blocks[-1]:
            blocks.append([])
    return blocks if blocks[-1] else blocks[:-1]


def _plain(blocks: list[list[str]], blank_ends: bool) -> Shape:
    lines = [line for block in blocks for line in block]
    followed = [line for block in blocks for line in block[:-1]]
    if not lines:
        return Shape("lines", "no text in the first 64 kB")
    if len(blocks) > 1 and len(followed) >= 3:
        stops = _share(followed, _STOP_AT_END)
        widths = sorted(len(line) + len(_WIDE.findall(line)) for line in followed)
        width = widths[int(0.95 * (len(widths) - 1))]
        if stops < 0.5 and 35 <= width <= 110:
            return Shape("book", f"lines of up to {width} columns, {stops:.0%} of them ending a sentence")
    inside, ends = _share(lines, _STOP_INSIDE), _share(lines, _STOP_AT_END)
    several = f"{inside:.0%} of the lines hold several sentences"
    if inside <= 0.3 and ends >= 0.5 and (blank_ends or len(blocks) == 1):
        return Shape("lines", several)
    return Shape("paragraphs", several, blank_ends)


def _share(lines: Sequence[str], pattern: re.Pattern[str]) -> float:
    return sum(pattern.search(line) is not None for line in lines) / len(lines)
