"""Files in CoNLL's format: a word and its tag a line, in columns, a blank line between texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from albertine.errors import DataError
from albertine.inference.tags import AS_BIOES, UNTYPED
from albertine.tasks.readers.files import File, text_lines
from albertine.text.cleaning import HAN, is_han

_TYPED = re.compile(r"O|[BIESMLU]-\S.*")
_TAG = re.compile(rf"{_TYPED.pattern}|[BIESMLU]")
_BLANK = re.compile(rf" [ \t]+({_TAG.pattern})")
"""A line whose word is a blank, as files that were written character by character have it."""
_WIDE = re.compile("[\u3000-\u303f\uff01-\uff60\uffe0-\uffe6]")
_SHARED = frozenset("“”‘’…—·")


class WordRow(NamedTuple):
    """A text in words.

    Attributes:
        tags: one a word, BIO or BIOES; None where the file has none. where: `file:line` of the first word.
    """

    words: list[str]
    tags: list[str] | None
    where: str


def sentences(path: File, encoding: str = "utf-8", prefix: str = "task.") -> Iterator[WordRow]:
    """The texts of a file. Its columns are separated by tabs, or else by spaces; the first is the word, the
    last its tag. Lines `# …` without a tag and lines of `-DOCSTART-` are skipped.

    Args:
        prefix: as in `text_lines`.

    Raises:
        DataError: a line has no tag, although others have; some tags name a type and others none.
    """
    words: list[str] = []
    tags: list[str] = []
    forms = TagForms()
    begin = ""
    for where, line in text_lines(path, encoding, prefix):
        columns = _columns(line)
        if not columns or columns[0] == "-DOCSTART-":
            if words:
                yield WordRow(words, tags or None, begin)
            words, tags = [], []
            continue
        tag = columns[-1] if len(columns) > 1 else ""
        if line.startswith("# ") and not (_TYPED if len(columns) > 2 else _TAG).fullmatch(tag):
            continue
        if bool(tag) != bool(tags) and words:
            raise DataError("is not a word and its tag, as other lines are", where=where)
        begin = begin if words else where
        words.append(columns[0])
        if tag:
            tags.append(forms.checked(tag, where))
    if words:
        yield WordRow(words, tags or None, begin)


def _columns(line: str) -> list[str]:
    """The columns of a line, separated by tabs, or else by spaces."""
    line = line.rstrip(" \t\r\n")  # not of the other blanks of Unicode, which stand in words
    if blank := _BLANK.fullmatch(line):
        return [" ", blank[1]]
    bare = line.lstrip(" \t")
    return line.split("\t") if "\t" in bare else [c for c in bare.split(" ") if c]


class TagForms:
    """Checks that the tags of a file all have a type, as B-PER, or all have none, as B."""

    def __init__(self) -> None:
        self._first: dict[bool, tuple[str, str]] = {}  # by whether it names a type: the tag and its place

    def checked(self, tag: str, where: str) -> str:
        """A tag in BIO or BIOES; one without a type gets `UNTYPED`.

        Raises:
            DataError: it is not a tag; or only one of it and an earlier tag has a type.
        """
        if tag == "O":
            return tag
        if not _TAG.fullmatch(tag):
            raise DataError(
                f"`{tag:.60}` is no tag",
                where=where,
                remedy="Tags are O, B-PER and I-PER, as in CoNLL's files, or O, B and I",
            )
        has_type = len(tag) > 1
        if has_type not in self._first:
            self._first[has_type] = tag, where
            if other := self._first.get(not has_type):
                one, two = ("a type", "none") if has_type else ("no type", "one")
                raise DataError(
                    f"the tag `{tag:.60}` names {one}, and `{other[0]:.60}` in {other[1]} names {two}",
                    where=where,
                    remedy="Give every tag but O a type, as B-PER has it, or none",
                )
        return AS_BIOES.get(tag[0], tag[0]) + (tag[1:] if has_type else f"-{UNTYPED}")


def spaced(words: list[str]) -> tuple[str, list[int]]:
    """The words joined to a text, and the offset of each.

    Two words are separated by a space unless one is Chinese where they meet. A Chinese text whose words are
    single characters has no spaces: its numbers and Latin words were split into characters too.
    """
    chinese = any(map(HAN.search, words))
    characters = chinese and all(len(word) == 1 for word in words)
    text, starts = "", []
    for word in words:
        if text and not (characters or _close(text[-1], chinese) or _close(word[:1], chinese)):
            text += " "
        starts.append(len(text))
        text += word
    return text, starts


def _close(character: str, chinese: bool) -> bool:
    """Whether a character needs no space beside it: a blank, a Chinese character or punctuation mark, or a
    full-width form. Marks shared with other languages count in Chinese texts only."""
    shared = chinese and character in _SHARED
    return character == " " or is_han(character) or bool(_WIDE.match(character)) or shared
