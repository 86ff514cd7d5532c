"""Text formats, and their detection from the first 64 kB of a file.

Their readers are in `plain_text.py` and `records.py`, the extensions that a search of a folder takes for text
in `documents.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Literal, get_args

from albertine.errors import DataError

Format = Literal[
    "auto", "lines", "paragraphs", "documents", "book", "wiki", "wikitext", "markdown", "jsonl", "parquet"
]
FORMATS: tuple[str, ...] = get_args(Format)

ParagraphMarks = Literal["blank lines", "indents", "short lines"]

_COMPRESSED = {".gz", ".xz", ".zst", ".bz2"}
BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".md": "markdown",
    ".markdown": "markdown",
    ".parquet": "parquet",
}
"""Formats that the ending of a file name decides; folders are searched for these endings too."""

EMOJI = r"(?:[\U0001f000-\U0001faff\u2600-\u27bf\u2b50\u2b55][\ufe0e\ufe0f\u200d]*)"
_STOP_AT_END = re.compile(
    r"(?:[.!?…。！？；:：;｡～।॥؟۔։]|" + EMOJI + r")"
    r"[\"'”’」』）)\]]*(?:\s*\[\d{1,3}\]|[⁰¹²³⁴-⁹†‡*]|" + EMOJI + r"|\s+" + EMOJI + r")*$"
)
"""The end of a sentence with quotes, footnote marks and emoji after it. The alternatives must not match the
same text; otherwise a long run of marks would take exponential time."""
_LAST_CHARACTERS = 200
"""Length searched for it at the end of a line: the time is quadratic in the length of a run of emoji."""
_ADDRESS = re.compile(r"(?:https?://|www\.)\S")
_STOP_INSIDE = re.compile(r"[.!?][\"'”’)]*\s+[\"'“‘(]*[A-Z]|[。！？][”’」』）]*[^\s”’」』）]")
_TITLE = re.compile(r"^ ?= [^=].* = ?$", re.MULTILINE)
_INDENTED = re.compile("[ \t\u3000]")
_ENOUGH_LINES = 1000
_JOINED, _NARROWEST = 35, 16
"""Minimum width in columns at which hard-wrapped lines are joined: by detection, and if the format is given.
Verse is narrow."""
_SOME_FULL, _VERSES = 0.34, 0.8
"""Minimum share of full lines in hard-wrapped text with blank lines between paragraphs (305 novels: at least
0.49; texts with a sentence a line: at most 0.3); maximum share of unindented lines at which the indented ones
are verse."""
_GOES_ON = re.compile(r"[a-z\u2e80-\u9fff]")
_FIRST_WORD = re.compile(r"[\u2e80-\u9fff][，。、；：！？”’》」）]*|[^\s\u2e80-\u9fff]+")
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]")


@dataclass(frozen=True)
class FileShape:
    """The detected format of a file.

    Args:
        format, reason: the format, and why.
        blank_ends_document: for `paragraphs`: blank lines end documents.
        marks: for `book`: what separates paragraphs.
        width: for `book`: columns of a full line.
        narrow: for `paragraphs`: columns of a full line if lines look hard-wrapped but are not joined; else
            0.
    """

    format: str
    reason: str
    blank_ends_document: bool = True
    marks: ParagraphMarks = "blank lines"
    width: int = 0
    narrow: int = 0


def check_format(format: str) -> str:
    """Return a known `format`; raise DataError with the list for another."""
    if format not in FORMATS:
        raise DataError(f"there is no text format `{format}`", remedy=f"Formats: {', '.join(FORMATS)}")
    return format


def suffix(name: str) -> str:
    """The extension without that of compression: `a.jsonl.gz` gives `.jsonl`."""
    path = PurePosixPath(name)
    while path.suffix.lower() in _COMPRESSED:
        path = path.with_suffix("")
    return path.suffix.lower()


def detect_format(name: str, head: str, whole: bool, requested: str = "auto") -> FileShape:
    """Detect the format of a file from its extension and beginning.

    Args:
        name: of the file or archive member; only its extension is used.
        head: its first ~64 kB of text.
        whole: whether `head` is the whole file.
        requested: a format, which is then returned with the details of its layout, or `auto`.
    """
    lines = head.split("\n")
    if not whole and len(lines) > 1:
        lines.pop()  # the last line may be truncated
    blocks = _blocks(lines)
    blank_ends = sum(len(b) for b in blocks) >= 1.5 * len(blocks)
    if requested != "auto":
        book = _book(blocks, narrowest=_NARROWEST)
        marks, width = (book.marks, book.width) if book else ("blank lines", 0)
        return FileShape(requested, "as requested", blank_ends, marks, width)
    if by_suffix := BY_SUFFIX.get(suffix(name)):
        return FileShape(by_suffix, f"by its extension {suffix(name)}")
    start = head.lstrip()
    if start.startswith("<doc "):
        return FileShape("wiki", "begins with <doc")
    if start.startswith(("{", "[")) and (suffix(name) == ".json" or _is_record(start)):
        return FileShape("jsonl", "begins with a JSON object")
    if len(_TITLE.findall(head)) > 0 and start.startswith("= "):
        return FileShape("wikitext", "begins with a `= Title =` line")
    return _plain(blocks, blank_ends)


def _is_record(start: str) -> bool:
    line, end, _ = start.partition("\n")
    if not end and len(line) > 1000:
        return line.startswith('{"')  # one long record, truncated
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.rstrip())
        elif blocks[-1]:
            blocks.append([])
    return blocks if blocks[-1] else blocks[:-1]


def _plain(blocks: list[list[str]], blank_ends: bool) -> FileShape:
    lines = [line for block in blocks for line in block]
    if not lines:
        return FileShape("lines", "no text in the first 64 kB")
    if book := _book(blocks):
        return book
    inside, ends = _share(lines, _contains_sentence_end), _share(lines, _ends_sentence)
    several = f"{inside:.0%} of the lines hold several sentences"
    if inside <= 0.3 and ends >= 0.5 and (blank_ends or len(blocks) == 1):
        return FileShape("lines", several)
    return FileShape("paragraphs", several, blank_ends, narrow=_narrow_width(blocks))


def detect_wrapping(text: Sequence[str]) -> FileShape | None:
    """The shape of one text of a JSONL or Parquet file if its lines are hard-wrapped; stricter than for a
    file, since a short text may be a list."""
    return _book(_blocks(text[:_ENOUGH_LINES]), strict=True)


def _book(blocks: list[list[str]], strict: bool = False, narrowest: int = _JOINED) -> FileShape | None:
    """The shape of the lines if they are hard-wrapped.

    A line is full if the first word of the next line would not fit. Hard-wrapped means: few lines end a
    sentence, blank lines separate blocks, and a third of the lines is full; or most are full. `strict`: few
    lines end a sentence and most are full. Not if nearly all lines begin with a capital.
    """
    pairs = [pair for block in blocks for pair in pairwise(block)]
    if len(pairs) < 3:
        return None
    followed = [line for line, _ in pairs]
    stops = _share(followed, _ends_sentence)
    if strict and stops >= 0.5:
        return None
    widths = sorted(map(display_width, followed))
    width = widths[int(0.95 * (len(widths) - 1))]
    if not narrowest <= width <= 250:
        return None
    inside = [(line, following) for line, following in pairs if not _INDENTED.match(following)]
    full = [line for line, following in inside if not _has_room(line, following, width)]
    half = len(full) >= max(1, 0.5 * len(inside))
    # Lines of varying length are sentences, or verse, which in books is often indented.
    verses = len(inside) <= _VERSES * len(pairs)
    some = len(full) >= _SOME_FULL * len(inside) or verses or _blocks_continue(blocks)
    parted = len(blocks) > 1 and stops < 0.5 and width <= 110 and (half if strict else some)
    filled = half and len(full) >= 8 and _share(full, _ends_sentence) < 0.5
    if not (parted or filled) or (not verses and _all_capitalised(following for _, following in inside)):
        return None
    marks = _marks(blocks, pairs, width)
    note = "" if marks == "blank lines" else f", {marks} between paragraphs"
    reason = f"lines of up to {width} columns, {stops:.0%} of them ending a sentence{note}"
    return FileShape("book", reason, marks=marks, width=width)


def _count_cases(lines: Iterable[str]) -> tuple[int, int]:
    """How many lines begin with a lowercase letter, and how many with a capital."""
    first = [line.lstrip("\"'“‘«([{_*-–— ")[:1] for line in lines]
    return sum(map(str.islower, first)), sum(map(str.isupper, first))


def _blocks_continue(blocks: list[list[str]]) -> bool:
    """Whether blocks begin with a capital and most of their other lines with a lowercase letter."""
    small, large = _count_cases(line for block in blocks for line in block[1:])
    begin_small, begin_large = _count_cases(block[0] for block in blocks)
    return small > large and begin_large > begin_small


def _all_capitalised(lines: Iterable[str]) -> bool:
    """Whether nearly all lines begin with a capital, as sentences do but lines of wrapped paragraphs do not.
    False for fewer than 20 lines in a script with capitals."""
    small, large = _count_cases(lines)
    return small + large >= 20 and small < 0.05 * (small + large)


def _narrow_width(blocks: list[list[str]]) -> int:
    """Columns of a full line if the lines look hard-wrapped but are too narrow to be joined by detection;
    else 0.

    Most lines are full, few end a sentence, some contain the end of one, and most begin with a lowercase
    letter or a Chinese character. Lines of verse are not full or end as sentences do; list items contain no
    sentence ends.
    """
    pairs = [(a, b) for block in blocks for a, b in pairwise(block) if not _INDENTED.match(b)]
    if len(pairs) < 20:
        return 0
    lines = [line for line, _ in pairs]
    width = sorted(map(display_width, lines))[int(0.95 * (len(lines) - 1))]
    full = sum(not _has_room(line, following, width) for line, following in pairs)
    on = sum(_GOES_ON.match(following) is not None for _, following in pairs)
    prose = _share(lines, _ends_sentence) < 0.4 and _share(lines, _contains_sentence_end) > 0.02
    return width if _NARROWEST <= width < _JOINED and prose and min(full, on) > 0.7 * len(pairs) else 0


def _marks(blocks: list[list[str]], pairs: list[tuple[str, str]], width: int) -> ParagraphMarks:
    """What separates the paragraphs of hard-wrapped lines: blank lines, unless they are rare."""
    if len(pairs) < 9 * len(blocks):
        return "blank lines"
    indented = [line for line, following in pairs if _INDENTED.match(following)]
    if len(blocks) < len(indented) < 0.6 * len(pairs) and _share(indented, _ends_sentence) > 0.6:
        return "indents"
    short = sum(ends_paragraph(line, following, width) for line, following in pairs)
    return "short lines" if short > len(blocks) else "blank lines"


def ends_paragraph(line: str, following: str, width: int) -> bool:
    """Whether a line of hard-wrapped text is the last of its paragraph: the first word of the next line would
    fit, and it ends a sentence or is as short as a heading."""
    if not line.strip() or not following.strip() or not _has_room(line, following, width):
        return False
    return _ends_sentence(line) or display_width(line) < 0.5 * width


def mostly_sentences(lines: Sequence[str]) -> bool:
    """Whether more than half of the lines end a sentence."""
    return bool(lines) and _share(lines, _ends_sentence) > 0.5


def _has_room(line: str, following: str, width: int) -> bool:
    word = _FIRST_WORD.match(following.lstrip())
    return word is not None and display_width(line) + 1 + display_width(word.group()) <= width


def display_width(line: str) -> int:
    """Width of a line in columns; Chinese characters have two."""
    return len(line) + len(_WIDE.findall(line))


def _ends_sentence(line: str) -> bool:
    """Whether a line ends with the end of a sentence or with a URL."""
    line = line.rstrip()
    if _STOP_AT_END.search(line, max(0, len(line) - _LAST_CHARACTERS)):
        return True
    words = line.rsplit(None, 1)
    return bool(words) and _ADDRESS.match(words[-1]) is not None


def _contains_sentence_end(line: str) -> bool:
    """Whether a sentence ends inside a line."""
    return _STOP_INSIDE.search(line) is not None


def _share(lines: Sequence[str], predicate: Callable[[str], bool]) -> float:
    return sum(map(predicate, lines)) / len(lines)
