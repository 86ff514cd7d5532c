"""Documents out of lines: sentences, paragraphs, wrapped books, Markdown, WikiExtractor and WikiText."""

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


class _Gather:
    """The lines of the document at hand, counted against the limit."""

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
    """`lines` and `paragraphs`: documents end at blank lines, or with the file where the shape says so."""
    gather = _Gather(lines, limits)
    blank_ends = shape.blank_ends_document or shape.format == "lines"
    for line in lines:
        if text := line.strip():
            gather.add(text)
        elif blank_ends and (taken := gather.take()):
            yield taken
    if taken := gather.take():
        yield taken


def read_line_documents(lines: TextLines, shape: FileShape, limits: Limits) -> Iterator[Paragraphs]:
    """`documents`: every line that is not blank is a document."""
    for line in lines:
        if text := remove_soft_hyphens(line).strip():
            yield (text,)


def remove_soft_hyphens(text: str) -> str:
    """A text without the marks of where a word may be broken."""
    return text.replace("\u00ad\n", "").replace("\u00ad", "") if "\u00ad" in text else text


def _whole(lines: TextLines, limits: Limits) -> str:
    """All text of a file that is one document."""
    parts: list[str] = []
    size = 0
    for part in lines.blocks():
        size += len(part)
        if size > limits.document_characters:
            raise too_long_error(lines.name, limits, "a document (here: the whole file) is")
        parts.append(part)
    return "".join(parts)


# Patterns begin with a rare literal wherever they can: the search skips ahead instead of trying every letter.
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
    """Words broken at a line end, put together: without the hyphen if the text has more without than with."""
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


def _ruled(block: str) -> bool:
    """Whether dashes in a block are a rule: a row of them, or a line without letters; not those for the
    letters of a name such as `Mr. B----`."""
    if "----" not in block:
        return False
    return "--------" in block or any(
        "----" in line and not any(map(str.isalnum, line)) for line in block.split("\n")
    )


def _drawn(block: str) -> bool:
    """Whether a block is a table or rule drawn with characters."""
    if "|" not in block and "====" not in block and "* *" not in block and not _ruled(block):
        return False
    signs = block.translate(_NO_SPACE)
    return sum(map(str.isalnum, signs)) < 0.6 * len(signs)


def unwrap_paragraphs(text: str) -> list[str]:
    """The paragraphs of hard-wrapped text, each joined into one line.

    A hyphen at a line end stays (`well-⏎known`) unless the rest of the text writes the word without it.
    Nothing goes between two Chinese characters, or one and a digit, nor after a dash. What stands in a list
    is a paragraph each; mail that is quoted by `>`, and `_emphasis_`, as Project Gutenberg has it, lose
    their marks.
    """
    text = remove_soft_hyphens(text)
    if ">" in text:  # a mail that another one answers: two such lines at least
        text = _QUOTED.sub(lambda lines: f"\n{_QUOTE_MARK.sub('', lines[0])}\n", text)
    paragraphs: list[str] = []
    for block in _BLANK.split(_join_hyphens(text)):
        if _drawn(block):
            continue
        if "_" in block:
            block = _UNDERLINED.sub(r"\1", block)
        paragraphs += filter(None, map(_joined, _items(block)))
    return paragraphs


def _items(block: str) -> list[str]:
    """A block, or what stands in a list that begins it or follows a colon in it."""
    return _NEXT_ITEM.split(block) if _LIST.search(block) else [block]


def _joined(block: str) -> str:
    """The lines of a paragraph as one."""
    if "-" in block or not block.isascii():
        block = _DASH_AT_END.sub(r"\1", block)
        if _HAS_WIDE.search(block):
            block = "\n".join(map(str.strip, block.split("\n")))
            block = _DIGIT_BREAK.sub("", _WIDE_BREAK.sub("", block))
    return " ".join(block.split())


def separate_paragraphs(text: str, shape: FileShape) -> str:
    """Hard-wrapped text with a blank line between its paragraphs, whatever marks them."""
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
"""A rule at the beginning is one only where a comment or a key follows at once."""
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
"""What a reference stands for: a place that looks like an address, for `[Note]: word` may be text."""
_REFERENCE = re.compile(r"!?\[([^\[\]]{1,500})\](?:\[([^\[\]]{0,300})\])?(?!\()")
_EMPHASIS = re.compile(r"(\*{1,3}|`{1,3})(?=\S)([^*`\n]{1,500}?)(?<=\S)\1")


def _closing_fence(opening: re.Match[str]) -> re.Pattern[str]:
    """The same mark at least as often, alone in its line."""
    mark = opening[1] or opening[2]
    return re.compile(rf"^[ \t]*{mark[0]}{{{len(mark)},}}[ \t]*$", re.MULTILINE)


def _without(text: str, opening: re.Pattern[str], closing: Callable[[re.Match[str]], re.Pattern[str]]) -> str:
    """A text without what stands between marks; an opening that is never closed stays. One pattern for both
    would search to the end of the text again for every such opening."""
    kept, at = [], 0
    while (begin := opening.search(text, at)) and (end := closing(begin).search(text, begin.end())):
        kept.append(text[at : begin.start()])
        at = end.end()
    return "".join([*kept, text[at:]])


_ITEM = re.compile(r"[ \t>]*(?:(?:[-*+]|[0-9]{1,3}[.)])[ \t]+\S|\[[^\[\]]{1,80}\]:|\u3000)")
_ALONE = re.compile(r"[ \t>]*(?:#{1,6}(?:[ \t]|$)|\||<[A-Za-z/!])")
_CODE = re.compile(r"(?: {4}|\t)\s*\S")
WIDEST = 120
"""Columns of a line of Markdown that may be a part of a paragraph; a longer one is a whole paragraph."""


def _parted(text: str) -> str:
    """Markdown with blank lines between its paragraphs, where it needs none: around headings, rows of tables,
    lines of HTML and of indented code, before what stands in a list, after lines that say that they end."""
    parted: list[str] = []
    listed, after = False, True
    for line in text.split("\n"):
        item = _ITEM.match(line) is not None
        listed = item or (listed and (not after or not line or line[0] in " \t"))
        code = after and not listed and _CODE.match(line) is not None
        alone = code or " | " in line or _ALONE.match(line) is not None
        ends = alone or line.endswith(("  ", "\\"))
        parted += ["", line] if alone or item else [line]
        parted += [""] if ends else []
        after = ends or not line.strip()
    return "\n".join(parted)


def _unwrapped(text: str) -> str:
    """Markdown with blank lines also where a paragraph ends though no mark says so: beside lines that are too
    long for a part of one, and everywhere if most lines end a sentence."""
    lines = text.split("\n")
    fits = [bool(line.strip()) and display_width(_linked(line)) <= WIDEST for line in lines]
    goes_on = [one and following for one, following in pairwise([*fits, False])]
    if mostly_sentences(list(compress(lines, goes_on))):
        return "\n\n".join(lines)
    return "\n".join(line if on else f"{line}\n" for line, on in zip(lines, goes_on, strict=True))


def _linked(text: str) -> str:
    """Markdown with the words of its links in their place; a link may stand in the words of another."""
    return _LINK.sub(r"\1", _LINK.sub(r"\1", text))


def _without_references(text: str) -> str:
    """Markdown without the lines that name targets, and with the words of what refers to them."""
    names: set[str] = set()

    def noted(line: re.Match[str]) -> str:
        names.add(_folded(line[1]))
        return ""

    text = _DEFINITION.sub(noted, text)
    return _REFERENCE.sub(lambda m: m[1] if _folded(m[2] or m[1]) in names else m[0], text) if names else text


def _folded(label: str) -> str:
    return " ".join(label.split()).casefold()


def read_markdown(lines: TextLines, shape: FileShape, limits: Limits) -> Iterator[Paragraphs]:
    """`markdown`: the file is one document; heading marks, front matter, comments, fenced code, link targets
    and the lines that name targets go. The lines of a paragraph are one, as Markdown has it."""
    text = _FRONT_MATTER.sub("", remove_soft_hyphens(_whole(lines, limits)))
    text = _without(_without(text, _FENCE, _closing_fence), _COMMENT, lambda _: _COMMENT_END)
    text = _without_references(text)
    text = _MARK.sub("", _RULE.sub("", _parted(text)))
    blocks = _BLANK.split(_join_hyphens(_linked(_unwrapped(text))))
    if paragraphs := tuple(_EMPHASIS.sub(r"\2", line) for block in blocks if (line := _joined(block))):
        yield paragraphs


_DOC = re.compile(r"<doc\s[^>]*>\s*$")
_DOC_TITLE = re.compile(r'\btitle="(.*?)"(?=\s+\w+=|\s*>)')
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]{0,20}(?:\s[^<>]{0,300})?/?>")
_HOLLOW = re.compile(r"[(（][\s,;:，；：、]*[)）]")
_HOLLOW_SPACED = re.compile(" ?" + _HOLLOW.pattern)
_HALF_HOLLOW = re.compile(r"([(（])[\s,;:，；：、]+")
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
    """Whether a WikiExtractor line is a section heading such as `Career.` or `车站结构.` and no sentence.

    WikiExtractor writes headings as paragraphs with a full stop. Chinese sentences end in 。, so a lone ASCII
    stop decides; in English a short line without a verb we know, a pronoun in front or inner punctuation
    counts.
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
    """One line of a WikiExtractor file without leftovers of templates, tables, tags and entities."""
    if "&" in line:
        line = html.unescape(line)
    if "{" in line or "[[" in line:
        line = _BRACKETS.sub(lambda m: m.group(1) or "", _VARIANTS.sub(_first_variant, line))
    if "<" in line:
        line = _TAG.sub(" ", line)
    if "''" in line:
        line = line.replace("'''", "").replace("''", "")
    if _HOLLOW.search(line):
        line = _HOLLOW_SPACED.sub("", line)
    line = _HALF_HOLLOW.sub(r"\1", line)
    return " ".join(line.split()) if "  " in line or "\xa0" in line else line.strip()


def _first_variant(match: re.Match[str]) -> str:
    """What `-{zh-hans:计算机;zh-hant:電腦;}-` shows: its first variant, its text if it has none; nothing of a
    rule for the rest of the page, or for its title."""
    flag, rule, _ = match.group(1).partition("|")
    if rule and flag.strip() in ("H", "T", "-"):
        return ""
    first = match.group(1).split(";")[0]
    return first.rpartition(":")[2].rpartition("|")[2].strip()


def _wiki_paragraph(raw: str) -> str:
    """The text of one line between the <doc> marks; empty for a heading, a piece of a table or nothing."""
    line = raw.strip()
    if not line or line.startswith(_NO_TEXT):
        return ""
    if line.startswith("BULLET::::"):
        return clean_wiki(_BULLET.sub("", line))
    text = clean_wiki(line)
    return "" if is_section_heading(text) else text


def read_wiki(lines: TextLines, shape: FileShape, limits: Limits) -> Iterator[Paragraphs]:
    """`wiki`: one document for each `<doc …>` that holds more than its title and headings.

    Raises:
        DataError: there is no `<doc …>` line in the file.
    """
    gather = _Gather(lines, limits)
    title: str | None = None
    seen = inside = False
    for line in lines:
        if line.startswith("<doc ") and _DOC.match(line):
            if taken := gather.take():
                yield taken
            found = _DOC_TITLE.search(line)
            title = html.unescape(found.group(1)) if found else None
            seen = inside = True
        elif line.startswith("</doc>"):
            inside = False
            if taken := gather.take():
                yield taken
        elif inside and (text := _wiki_paragraph(line)):
            if title is not None and (text == title or line.strip() == title):
                title = None  # the title is repeated as the first line of the article
            else:
                gather.add(text)
    if taken := gather.take():
        yield taken
    if not seen:
        raise DataError(
            "has no <doc …> line, so it is no WikiExtractor file", where=lines.name, remedy="Pass --format"
        )


_HEADING = re.compile(r"^\s*=\s(?:=\s)*[^=].*=\s*$")
_NEW_ARTICLE = re.compile(r"^\s*=\s(?:[^=].*)?[^=\s]\s=\s*$")


def read_wikitext(lines: TextLines, shape: FileShape, limits: Limits) -> Iterator[Paragraphs]:
    """`wikitext`: a `= Title =` line begins a document; deeper headings go; ` @-@ ` is joined again."""
    gather = _Gather(lines, limits)
    for line in lines:
        if _NEW_ARTICLE.match(line):
            if taken := gather.take():
                yield taken
        elif not _HEADING.match(line) and (text := line.strip()):
            gather.add(text.replace(" @-@ ", "-").replace(" @,@ ", ",").replace(" @.@ ", "."))
    if taken := gather.take():
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
