"""Readers of plain text formats: lines, paragraphs, hard-wrapped books, Markdown, WikiExtractor and
WikiText."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import compress, pairwise

from albertine.errors import DataError
from albertine.text.formats import FileShape, display_width, ends_paragraph, mostly_sentences
from albertine.text.lines import TextLines, too_long_error
from albertine.text.streams import Limits

Paragraphs = tuple[str, ...]


class _DocumentLines:
    """Collects the lines of a document up to the size limit."""

    def __init__(self, lines: TextLines, limits: Limits) -> None:
        self._lines, self._limits = lines, limits
        self._kept: list[str] = []
        self._size = 0

    def add(self, line: str) -> None:
        line = remove_soft_hyphens(line)
        self._size += len(line) + 1
        if self._size > self._limits.document_characters:
            raise too_long_error(f"{self._lines.name}:{self._lines.number}", self._limits, "a document is")
        self._kept.append(line)

    def take(self) -> Paragraphs:
        taken, self._kept, self._size = tuple(self._kept), [], 0
        return taken


def read_lines(lines: TextLines, shape: FileShape, limits: Limits) -> Iterator[Paragraphs]:
    """`lines` and `paragraphs`: documents end at blank lines, or at the end of the file, by the shape."""
    collected = _DocumentLines(lines, limits)
    blank_ends = shape.blank_ends_document or shape.format == "lines"
    for line in lines:
        if text := line.strip():
            collected.add(text)
        elif blank_ends and (taken := collected.take()):
            yield taken
    if taken := collected.take():
        yield taken


def read_line_documents(lines: TextLines, shape: FileShape, limits: Limits) -> Iterator[Paragraphs]:
    """`documents`: every non-blank line is a document."""
    for line in lines:
        if text := remove_soft_hyphens(line).strip():
            yield (text,)


def remove_soft_hyphens(text: str) -> str:
    """Remove soft hyphens, with a line break after them."""
    return text.replace("\u00ad\n", "").replace("\u00ad", "") if "\u00ad" in text else text


def _whole(lines: TextLines, limits: Limits) -> str:
    """The text of a file that is one document."""
    parts: list[str] = []
    size = 0
    for part in lines.blocks():
        size += len(part)
        if size > limits.document_characters:
            raise too_long_error(lines.name, limits, "a document (here: the whole file) is")
        parts.append(part)
    return "".join(parts)


# Patterns begin with a rare literal where possible, so that the search skips ahead.
_HYPHENATED = re.compile(r"-[ \t]*\n[ \t]*([^\W\d_]+)")
_WORD_AT_END = re.compile(r"[^\W\d_]+$")
_DASH_AT_END = re.compile(r"([-–—])[ \t]*\n[ \t]*")
_CHARACTERS = r"\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WIDE = rf"[{_CHARACTERS}\uff00-\uff60“”‘’…—]"
_HAN = rf"[{_CHARACTERS}\uff00-\uff60]"
_HAS_WIDE = re.compile(f"[{_CHARACTERS}]")
_WIDE_BREAK = re.compile(f"\n(?<={_WIDE}\n)(?={_WIDE})")
_DIGIT_BREAK = re.compile(f"\n(?:(?<=[0-9]\n)(?={_HAN})|(?<={_HAN}\n)(?=[0-9]))")
_UNDERLINED = re.compile(r"_(?<![^\W_]_)([^_]{1,400})_(?![^\W_])")
_NO_SPACE = str.maketrans("", "", " \t\n\u3000")
_INDENTED = re.compile(r"\n(?=[ \t\u3000]+\S)")
_BLANK = re.compile(r"\n[ \t\u3000\f\v]*(?:\n[ \t\u3000\f\v]*)+")
_MARKED = r"[ \t]*(?:[-*+•]|[0-9]{1,2}[.)])[ \t]+\S"
_LIST = re.compile(rf"(?:\A\n*|:[ \t]*\n){_MARKED}")
_NEXT_ITEM = re.compile(rf"\n(?={_MARKED})")
_QUOTED = re.compile(r"^(?:[ \t]*>[^\n]*(?:\n|\Z)){2,}", re.MULTILINE)
_QUOTE_MARK = re.compile(r"^(?:[ \t]*>)+[ \t]?", re.MULTILINE)


def _join_hyphens(text: str) -> str:
    """Join words hyphenated at line ends; without the hyphen if that spelling is more frequent in the
    text."""
    words: Counter[str] | None = None

    def join(match: re.Match[str]) -> str:
        nonlocal words
        at = match.start()
        before = _WORD_AT_END.search(text[max(0, at - 40) : at])
        if before is None:
            return match.group()
        if words is None:
            words = Counter(text.lower().split())
        first, second = before.group().lower(), match.group(1).lower()
        return ("" if words[first + second] > words[f"{first}-{second}"] else "-") + match.group(1)

    return _HYPHENATED.sub(join, text) if "-" in text else text


def _has_rule(block: str) -> bool:
    """Whether a block has a rule of dashes: eight in a row, or a line without letters; not a name such as
    `Mr. B----`."""
    if "----" not in block:
        return False
    return "--------" in block or any(
        "----" in line and not any(map(str.isalnum, line)) for line in block.split("\n")
    )


def _is_drawing(block: str) -> bool:
    """Whether a block is a table or rule made of characters."""
    if "|" not in block and "====" not in block and "* *" not in block and not _has_rule(block):
        return False
    signs = block.translate(_NO_SPACE)
    return sum(map(str.isalnum, signs)) < 0.6 * len(signs)


def unwrap_paragraphs(text: str) -> list[str]:
    """The paragraphs of hard-wrapped text, each joined into one line.

    A hyphen at a line end stays (`well-⏎known`) unless the text elsewhere has the word without it. No space
    is inserted between Chinese characters, between one and a digit, or after a dash. List items are separate
    paragraphs. Quote marks (`>`) of mail and Project Gutenberg's `_emphasis_` are removed.
    """
    text = remove_soft_hyphens(text)
    if ">" in text:  # quoted mail: at least two such lines
        text = _QUOTED.sub(lambda lines: f"\n{_QUOTE_MARK.sub('', lines[0])}\n", text)
    paragraphs: list[str] = []
    for block in _BLANK.split(_join_hyphens(text)):
        if _is_drawing(block):
            continue
        if "_" in block:
            block = _UNDERLINED.sub(r"\1", block)
        paragraphs += filter(None, map(_join_lines, _items(block)))
    return paragraphs


def _items(block: str) -> list[str]:
    """The items of a list that begins the block or follows a colon in it; else the block."""
    return _NEXT_ITEM.split(block) if _LIST.search(block) else [block]


def _join_lines(block: str) -> str:
    """Join the lines of a paragraph."""
    if "-" in block or not block.isascii():
        block = _DASH_AT_END.sub(r"\1", block)
        if _HAS_WIDE.search(block):
            block = "\n".join(map(str.strip, block.split("\n")))
            block = _DIGIT_BREAK.sub("", _WIDE_BREAK.sub("", block))
    return " ".join(block.split())


def separate_paragraphs(text: str, shape: FileShape) -> str:
    """Insert blank lines between the paragraphs of hard-wrapped text, whatever separates them."""
    if shape.marks == "indents":
        return _INDENTED.sub("\n\n", text)
    if shape.marks == "short lines":
        lines = [line.rstrip() for line in text.split("\n")]
        ends = [
            line + "\n" * ends_paragraph(line, following, shape.width) for line, following in pairwise(lines)
        ]
        return "\n".join([*ends, lines[-1]])
    return text


def read_book(lines: TextLines, shape: FileShape, limits: Limits) -> Iterator[Paragraphs]:
    """`book`: the file is one document."""
    if paragraphs := unwrap_paragraphs(separate_paragraphs(_whole(lines, limits), shape)):
        yield tuple(paragraphs)


_FRONT_MATTER = re.compile(
    r"\A\s*---[ \t]*\n(?=(?:#.*\n)*(?:[\w\"' -]+:|---))(?s:.*?)^---(?:\n|$|(?=#))", re.MULTILINE
)
"""Front matter begins with a rule that is followed at once by a comment or a key."""
_FENCE = re.compile(r"^[ \t]*(?:(`{3,})[^`\n]*|(~{3,}).*)$", re.MULTILINE)
_COMMENT, _COMMENT_END = re.compile("<!--"), re.compile("-->")
_MARK = re.compile(r"^[ \t]*(?:#{1,6}(?:[ \t]+|$)|>[ \t]?|[-*+][ \t]+(?=\S))+", re.MULTILINE)
_RULE = re.compile(r"^[ \t]*(?:[-*_=][ \t]*){3,}$|^[ \t:|-]{3,}$", re.MULTILINE)
_TITLE = r"""(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'|\([^()\n]{0,300}\))"""
_TARGET = r"(?:<[^<>\n]{0,1000}>|[^()\s]{0,1000}(?:\([^()\s]{0,300}\)[^()\s]{0,300}){0,9})"
_LINK = re.compile(rf"!?\[([^\[\]]{{0,500}})\]\(\s{{0,9}}{_TARGET}(?:\s{{1,9}}{_TITLE})?\s{{0,9}}\)")
_DEFINITION = re.compile(
    r"^[ \t]*\[(?!\^)([^\[\]\n]{1,300})\]:[ \t]*(?:<[^<>\n]{0,1000}>|(?=[!-~]*(?:[/#@]|\.\w))[!-~]+)"
    rf"(?:[ \t]+{_TITLE})?[ \t]*$",
    re.MULTILINE,
)
"""Definitions of link references; the target must look like an address, since `[Note]: word` may be text."""
_REFERENCE = re.compile(r"!?\[([^\[\]]{1,500})\](?:\[([^\[\]]{0,300})\])?(?!\()")
_EMPHASIS = re.compile(r"(\*{1,3}|`{1,3})(?=\S)([^*`\n]{1,500}?)(?<=\S)\1")


def _closing_fence(opening: re.Match[str]) -> re.Pattern[str]:
    """The same mark at least as long, alone in its line."""
    mark = opening[1] or opening[2]
    return re.compile(rf"^[ \t]*{mark[0]}{{{len(mark)},}}[ \t]*$", re.MULTILINE)


def _remove_between(
    text: str, opening: re.Pattern[str], closing: Callable[[re.Match[str]], re.Pattern[str]]
) -> str:
    """Remove the text between opening and closing marks; an unclosed opening stays. A single pattern for
    both would search to the end of the text again for every unclosed opening."""
    kept, at = [], 0
    while (begin := opening.search(text, at)) and (end := closing(begin).search(text, begin.end())):
        kept.append(text[at : begin.start()])
        at = end.end()
    return "".join([*kept, text[at:]])


_ITEM = re.compile(r"[ \t>]*(?:(?:[-*+]|[0-9]{1,3}[.)])[ \t]+\S|\[[^\[\]]{1,80}\]:|\u3000)")
_ALONE = re.compile(r"[ \t>]*(?:#{1,6}(?:[ \t]|$)|\||<[A-Za-z/!])")
_CODE = re.compile(r"(?: {4}|\t)\s*\S")
MAX_WRAPPED_COLUMNS = 120
"""Longer lines of Markdown are a whole paragraph."""


def _separate_markdown(text: str) -> str:
    """Insert blank lines where Markdown needs none: around headings, table rows, HTML lines and indented
    code, before list items, after hard line breaks."""
    separated: list[str] = []
    listed, after = False, True
    for line in text.split("\n"):
        item = _ITEM.match(line) is not None
        listed = item or (listed and (not after or not line or line[0] in " \t"))
        code = after and not listed and _CODE.match(line) is not None
        alone = code or " | " in line or _ALONE.match(line) is not None
        ends = alone or line.endswith(("  ", "\\"))
        separated += ["", line] if alone or item else [line]
        separated += [""] if ends else []
        after = ends or not line.strip()
    return "\n".join(separated)


def _separate_long_lines(text: str) -> str:
    """Insert blank lines where paragraphs end without a mark: around lines too long to be wrapped, and
    between all lines if most end a sentence."""
    lines = text.split("\n")
    fits = [
        bool(line.strip()) and display_width(_replace_links(line)) <= MAX_WRAPPED_COLUMNS for line in lines
    ]
    goes_on = [one and following for one, following in pairwise([*fits, False])]
    if mostly_sentences(list(compress(lines, goes_on))):
        return "\n\n".join(lines)
    return "\n".join(line if on else f"{line}\n" for line, on in zip(lines, goes_on, strict=True))


def _replace_links(text: str) -> str:
    """Replace links by their text; a link may be nested in the text of another."""
    return _LINK.sub(r"\1", _LINK.sub(r"\1", text))


def _replace_references(text: str) -> str:
    """Remove link definitions and replace references to them by their text."""
    names: set[str] = set()

    def collect(line: re.Match[str]) -> str:
        names.add(_normalized_label(line[1]))
        return ""

    text = _DEFINITION.sub(collect, text)
    return (
        _REFERENCE.sub(lambda m: m[1] if _normalized_label(m[2] or m[1]) in names else m[0], text)
        if names
        else text
    )


def _normalized_label(label: str) -> str:
    return " ".join(label.split()).casefold()


def read_markdown(lines: TextLines, shape: FileShape, limits: Limits) -> Iterator[Paragraphs]:
    """`markdown`: the file is one document. Heading marks, front matter, comments, fenced code, link targets
    and link definitions are removed; the lines of a paragraph are joined."""
    text = _FRONT_MATTER.sub("", remove_soft_hyphens(_whole(lines, limits)))
    text = _remove_between(_remove_between(text, _FENCE, _closing_fence), _COMMENT, lambda _: _COMMENT_END)
    text = _replace_references(text)
    text = _MARK.sub("", _RULE.sub("", _separate_markdown(text)))
    blocks = _BLANK.split(_join_hyphens(_replace_links(_separate_long_lines(text))))
    if paragraphs := tuple(_EMPHASIS.sub(r"\2", line) for block in blocks if (line := _join_lines(block))):
        yield paragraphs


_DOC = re.compile(r"<doc\s[^>]*>\s*$")
_DOC_TITLE = re.compile(r'\btitle="(.*?)"(?=\s+\w+=|\s*>)')
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]{0,20}(?:\s[^<>]{0,300})?/?>")
_EMPTY_BRACKETS = re.compile(r"[(（][\s,;:，；：、]*[)）]")
_EMPTY_BRACKETS_SPACED = re.compile(" ?" + _EMPTY_BRACKETS.pattern)
_BRACKET_BEFORE_MARKS = re.compile(r"([(（])[\s,;:，；：、]+")
_VARIANTS = re.compile(r"-\{([^{}]{0,500})\}-")
_BRACKETS = re.compile(r"\[\[(?:[^\[\]|]{0,300}\|)?([^\[\]|]{0,300})\]\]|\{\{[^{}]{0,1000}\}\}")
_BULLET = re.compile(r"^(?:BULLET::::[-*#:;.]*\s*)+")
_NO_TEXT = ("{|", "|", "!", "</", "__", "Section::::")
_VERB = re.compile(
    r"\b(?:is|was|are|were|be|been|has|had|have|does|did|do|can|could|will|would|may|might|must|said|says"
    r"|won|lost|died|born|became|made|took|went|came|left|served|moved|joined|played)\b"
)
_PRONOUN = ("He ", "She ", "It ", "They ", "We ", "I ", "You ", "This ", "These ", "There ", "His ", "Her ")


def is_section_heading(line: str) -> bool:
    """Whether a WikiExtractor line is a section heading such as `Career.` or `车站结构.`, not a sentence.

    WikiExtractor writes headings as paragraphs with a full stop. Chinese sentences end in 。, so a lone ASCII
    stop decides; in English a heading is a short line without a known verb, leading pronoun or inner
    punctuation.
    """
    if not line.endswith(".") or len(line) > 60 or line.endswith(".."):
        return False
    body = line[:-1]
    if "\u4e00" <= body[-1:] <= "\u9fff" or body[-1:] in "》」）":
        return not any(mark in body for mark in "。！？，")
    if body.count(" ") > 7 or any(mark in body for mark in '.!?;"“') or body.startswith(_PRONOUN):
        return False
    return _VERB.search(body) is None


def clean_wiki(line: str) -> str:
    """Remove remains of templates, tables, tags and entities from a line of a WikiExtractor file."""
    if "&" in line:
        line = html.unescape(line)
    if "{" in line or "[[" in line:
        line = _BRACKETS.sub(lambda m: m.group(1) or "", _VARIANTS.sub(_first_variant, line))
    if "<" in line:
        line = _TAG.sub(" ", line)
    if "''" in line:
        line = line.replace("'''", "").replace("''", "")
    if _EMPTY_BRACKETS.search(line):
        line = _EMPTY_BRACKETS_SPACED.sub("", line)
    line = _BRACKET_BEFORE_MARKS.sub(r"\1", line)
    return " ".join(line.split()) if "  " in line or "\xa0" in line else line.strip()


def _first_variant(match: re.Match[str]) -> str:
    """The displayed text of `-{zh-hans:计算机;zh-hant:電腦;}-`: its first variant, or its text without
    variants; empty for a rule about the rest of the page or its title."""
    flag, rule, _ = match.group(1).partition("|")
    if rule and flag.strip() in ("H", "T", "-"):
        return ""
    first = match.group(1).split(";")[0]
    return first.rpartition(":")[2].rpartition("|")[2].strip()


def _wiki_paragraph(raw: str) -> str:
    """The text of one line inside <doc>; empty for a heading or part of a table."""
    line = raw.strip()
    if not line or line.startswith(_NO_TEXT):
        return ""
    if line.startswith("BULLET::::"):
        return clean_wiki(_BULLET.sub("", line))
    text = clean_wiki(line)
    return "" if is_section_heading(text) else text


def read_wiki(lines: TextLines, shape: FileShape, limits: Limits) -> Iterator[Paragraphs]:
    """`wiki`: one document for each `<doc …>` with more text than its title and headings.

    Raises:
        DataError: there is no `<doc …>` line in the file.
    """
    collected = _DocumentLines(lines, limits)
    title: str | None = None
    seen = inside = False
    for line in lines:
        if line.startswith("<doc ") and _DOC.match(line):
            if taken := collected.take():
                yield taken
            found = _DOC_TITLE.search(line)
            title = html.unescape(found.group(1)) if found else None
            seen = inside = True
        elif line.startswith("</doc>"):
            inside = False
            if taken := collected.take():
                yield taken
        elif inside and (text := _wiki_paragraph(line)):
            if title is not None and (text == title or line.strip() == title):
                title = None  # the title is repeated as the first line of the article
            else:
                collected.add(text)
    if taken := collected.take():
        yield taken
    if not seen:
        raise DataError(
            "has no <doc …> line, so it is no WikiExtractor file", where=lines.name, remedy="Pass --format"
        )


_HEADING = re.compile(r"^\s*=\s(?:=\s)*[^=].*=\s*$")
_NEW_ARTICLE = re.compile(r"^\s*=\s(?:[^=].*)?[^=\s]\s=\s*$")


def read_wikitext(lines: TextLines, shape: FileShape, limits: Limits) -> Iterator[Paragraphs]:
    """`wikitext`: a `= Title =` line begins a document; other headings are removed; ` @-@ ` is joined."""
    collected = _DocumentLines(lines, limits)
    for line in lines:
        if _NEW_ARTICLE.match(line):
            if taken := collected.take():
                yield taken
        elif not _HEADING.match(line) and (text := line.strip()):
            collected.add(text.replace(" @-@ ", "-").replace(" @,@ ", ",").replace(" @.@ ", "."))
    if taken := collected.take():
        yield taken


READERS: dict[str, Callable[[TextLines, FileShape, Limits], Iterator[Paragraphs]]] = {
    "lines": read_lines,
    "paragraphs": read_lines,
    "documents": read_line_documents,
    "book": read_book,
    "markdown": read_markdown,
    "wiki": read_wiki,
    "wikitext": read_wikitext,
}
