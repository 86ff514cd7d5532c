"""Reading documents: every format in every wrapping, and a message for everything that can be wrong."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import random
import sys
import tarfile
import textwrap
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from albertine.errors import DataError
from albertine.tasks.readers.files import unpacked, whole
from albertine.text.documents import PASSED_OVER, Document, FileReport, list_files, read_documents
from albertine.text.lines import guess_encoding
from albertine.text.plain_text import clean_wiki, is_section_heading, unwrap_paragraphs
from albertine.text.streams import ByteStream, Limits, decompressed
from albertine.tokenizers.load import load_tokenizer

LINES = "One sentence here.\nAnother one here.\n\nSecond document now.\nIt has two sentences.\n"
PARAGRAPHS = (
    "First one. It goes on here. And on.\nSecond one. It is short.\n\n"
    "New article. It has more. Yes.\nEnd. Of it.\n"
)
BOOK = (
    "THE TITLE\n\n\nIt was a bright cold day in April, and the clocks were striking well-\n"
    "known hours. The man went up the stairs, slowly, and thought about all\n"
    "that had hap-\npened. Then it happened again, and happened more--\nas always did.\n\n"
    "The second paragraph is _quite\nshort_ and says little that is worth the\nreader's while, as they say.\n"
)
WIKI = (
    '<doc id="1" url="?curid=1" title="Empty &amp; void">\nEmpty &amp; void\n\n\n</doc>\n'
    '<doc id="2" url="?curid=2" title="Jarred Shaw">\nJarred Shaw\n\n'
    "Jarred Shaw () is a player ( or guard).<br>\nProfessional career.\nHe plays. '''Bold''' &amp; [[a|b]].\n"
    "{| class\n| cell\nSection::::History.\nBULLET::::- A list item, one.\n\n</doc>\n"
)
MARKDOWN = (
    "---\ntitle: x\n---\n# 中华人民共和国刑法\n\n1979年7月1日 通过\n\n<!-- INFO END -->\n\n## 第一编 总则\n\n"
    "第一条 为了**惩罚**犯罪。\n\n- [项目](http://x.y)\n\n```\ncode\n```\n---\n"
)
JSONL = '{"title": "T", "text": "T\\nOne. Two."}\n\n{"text": "Three."}\n{"text": ""}\n'
WIKITEXT = (
    " \n = Homarus = \n \n A 0 @.@ 7 kg well @-@ known one . It lives . \n \n"
    " = = Sub = = \n More . \n = Next = \n Text . \n"
)

TEXTS: dict[str, tuple[str, str, list[tuple[str, ...]]]] = {
    "lines": (
        "a.txt",
        LINES,
        [("One sentence here.", "Another one here."), ("Second document now.", "It has two sentences.")],
    ),
    "paragraphs": (
        "a.txt",
        PARAGRAPHS,
        [
            ("First one. It goes on here. And on.", "Second one. It is short."),
            ("New article. It has more. Yes.", "End. Of it."),
        ],
    ),
    "book": (
        "a.txt",
        BOOK,
        [
            (
                "THE TITLE",
                "It was a bright cold day in April, and the clocks were striking well-known hours. The"
                " man went up the stairs, slowly, and thought about all that had happened. Then it happened"
                " again, and happened more--as always did.",
                "The second paragraph is quite short and says little that is worth the reader's while, as"
                " they say.",
            )
        ],
    ),
    "wiki": (
        "wiki_00",
        WIKI,
        [("Jarred Shaw is a player (or guard).", "He plays. Bold & b.", "A list item, one.")],
    ),
    "markdown": (
        "a.md",
        MARKDOWN,
        [("中华人民共和国刑法", "1979年7月1日 通过", "第一编 总则", "第一条 为了惩罚犯罪。", "项目")],
    ),
    "jsonl": ("a.jsonl", JSONL, [("One. Two.",), ("Three.",)]),
    "wikitext": ("a.txt", WIKITEXT, [("A 0.7 kg well-known one . It lives .", "More ."), ("Text .",)]),
}


def tar(members: Iterable[tuple[str, bytes]], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zstd(data: bytes) -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


WRAP = {
    "": lambda b, n: b,
    ".gz": lambda b, n: gzip.compress(b),
    ".xz": lambda b, n: lzma.compress(b),
    ".bz2": lambda b, n: bz2.compress(b),
    ".zst": lambda b, n: zstd(b),
    ".tar": lambda b, n: tar([(n, b)]),
    ".tar.gz": lambda b, n: gzip.compress(tar([(n, b)])),
    ".tgz": lambda b, n: gzip.compress(tar([(n, b)])),
    ".tar.xz": lambda b, n: lzma.compress(tar([(n, b)])),
    ".tar.zst": lambda b, n: zstd(tar([(n, b)])),
}


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(*paths: Path, **kw: object) -> list[Document]:
    return list(read_documents(paths, **kw))  # type: ignore[arg-type]


def complaint(*paths: Path, **kw: object) -> str:
    with pytest.raises(DataError) as caught:
        read(*paths, **kw)
    return str(caught.value)


@pytest.mark.parametrize(("format", "wrap"), list(itertools.product(TEXTS, WRAP)))
def test_each_format_is_recognised_in_each_wrapping(tmp_path: Path, format: str, wrap: str) -> None:
    name, text, expected = TEXTS[format]
    stem = "corpus" if "tar" in wrap or wrap == ".tgz" else name
    path = write(tmp_path, stem + wrap, WRAP[wrap](text.encode(), name))
    reports: list[FileReport] = []
    documents = read(path, on_file=reports.append)
    assert [d.paragraphs for d in documents] == expected
    assert [r.format for r in reports] == [format]
    assert all(d.presplit == (format == "lines") for d in documents)
    inside = "tar" in wrap or wrap == ".tgz"
    assert {d.source for d in documents} == {f"{path}:{name}" if inside else str(path)}


@pytest.mark.parametrize("format", TEXTS)
def test_a_format_can_be_requested(tmp_path: Path, format: str) -> None:
    _, text, expected = TEXTS[format]
    assert [d.paragraphs for d in read(write(tmp_path, "x.dat", text), format=format)] == expected


def test_documents_format_takes_a_line_for_a_document(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "One. Two.\n\nThree.\n")
    assert [d.paragraphs for d in read(path, format="documents")] == [("One. Two.",), ("Three.",)]


def test_blank_line_after_every_paragraph_does_not_end_the_document(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "One is here. Two is here.\n\nThree is. Four is.\n\nFive is. Six is.\n")
    assert len(read(path)) == 1


def test_one_sentence_a_line_without_blank_lines_is_one_document(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "上章阉茂，一年。\n后周太祖即位。\n改年号，实行大赦。\n")
    assert read(path) == [
        Document(str(path), ("上章阉茂，一年。", "后周太祖即位。", "改年号，实行大赦。"), True)
    ]


def wrapped(paragraphs: list[str], width: int, indent: str = "") -> str:
    """Every paragraph on lines of `width` characters, without a blank line; Chinese breaks anywhere."""
    lines = []
    for paragraph in paragraphs:
        if paragraph.isascii():
            lines += textwrap.wrap(paragraph, width, initial_indent=indent)
        else:
            text = indent + paragraph
            while text:
                end = width - (text[width : width + 1] in {*"，。"} and width < len(text))
                lines.append(text[:end])
                text = text[end:]
    return "\n".join(lines) + "\n"


PROSE = {
    "en": [
        f"The {i}th man went up the stairs, slowly, and thought about all that had happened since he came "
        + "to the house by the river, where nobody had lived for years. " * (i % 4 + 1)
        + "Then he was silent."
        for i in range(30)
    ],
    "zh": [
        f"第{i}回说的是那位先生走上楼梯，想起了来到河边那所房子以后发生的许多事情，"
        + "那里多年来一直没有人住，院子里长满了青草。" * (i % 4 + 1)
        + "他沉默了。"
        for i in range(30)
    ],
}


@pytest.mark.parametrize(
    ("language", "width", "indent"),
    [("en", 70, "    "), ("en", 70, ""), ("en", 130, "  "), ("zh", 35, "\u3000\u3000"), ("zh", 40, "")],
)
def test_hard_wrapped_paragraphs_without_blank_lines_are_joined(
    tmp_path: Path, language: str, width: int, indent: str
) -> None:
    path = write(tmp_path, "a.txt", wrapped(PROSE[language], width, indent))
    (document,) = read(path)
    assert document.paragraphs == tuple(PROSE[language])
    (requested,) = read(path, format="book")
    assert requested.paragraphs == document.paragraphs


@pytest.mark.parametrize(
    ("language", "width", "indent"),
    [("en", 30, "  "), ("en", 24, ""), ("zh", 16, "\u3000\u3000"), ("zh", 12, "\u3000\u3000")],
)
def test_narrow_hard_wrapped_lines_are_reported_and_joined_on_request(
    tmp_path: Path, language: str, width: int, indent: str
) -> None:
    path = write(tmp_path, "a.txt", wrapped(PROSE[language], width, indent))
    reports: list[FileReport] = []
    read(path, on_file=reports.append)
    assert [(r.format, r.narrow) for r in reports] == [
        ("paragraphs", width if language == "en" else 2 * width)
    ]
    (requested,) = read(path, format="book", on_file=reports.append)
    assert requested.paragraphs == tuple(PROSE[language]) and reports[-1].narrow == 0


NARROW = {
    "verses": "From the forests and the prairies\nFrom the great lakes of the north.\nFrom the dacotahs.\n"
    * 20,
    "verses in small letters": "with odors of the forest\nwith the dew and damp of meadows\nas of thunder\n"
    * 20,
    "chinese verses": "白日依山尽，黄河入海流。\n欲穷千里目，更上一层楼。\n" * 20,
    "half of them": "白日依山尽黄河入海流，\n欲穷千里目更上一层楼。\n" * 20,
    "chinese verses without stops": "相见时难别亦难，东风无力百花残\n春蚕到死丝方尽，蜡炬成灰泪始干\n" * 20,
    "digests": "".join(f"{n * 7919**8:032x}"[-32:] + "\n" for n in range(60)),
    "columns": "".join(
        f"{name:12}J. A. {n}/12/1950\n" for n in range(10, 50) for name in ("Smith", "St. John")
    ),
    "titles": "".join(f"{'A very ' * (n % 3)}title of {'some ' * (n % 2)}book\n" for n in range(60)),
    "questions": "花呗怎么还款？\n为什么我的借呗额度突然没有了？\n怎么提前还？分期可以吗？\n" * 20,
}


@pytest.mark.parametrize("name", NARROW)
def test_narrow_lines_of_their_own_are_no_matter(tmp_path: Path, name: str) -> None:
    reports: list[FileReport] = []
    read(write(tmp_path, "a.txt", NARROW[name]), on_file=reports.append)
    assert [r.narrow for r in reports] == [0]


LINE_ENDS = {
    "nothing": "",
    "emoji": "😀",
    "stop and emoji": ".😀",
    "a heart": " ❤️",
    "address": " https://example.com/page",
    "footnote mark": "[12]",
    "raised number": ".²",
    "～": "～",
    "।": "।",
    "؟": "؟",
    "։": "։",
}


def sentences_a_line(end: str, *, language: str = "en", capital: bool = True) -> list[tuple[str, ...]]:
    """40 documents of 8 sentences of any lengths."""
    draw, documents = random.Random(1), []
    words = ["went", "to", "the", "old", "river", "and", "saw", "a", "good", "dog", "house", "by", "of"]
    for _ in range(40):
        lines = []
        for _ in range(8):
            some = "".join(draw.choices("天地人日月山水火木金土风云雨雪花草鸟鱼虫", k=draw.randrange(8, 30)))
            line = some if language == "zh" else " ".join(draw.choices(words, k=draw.randrange(6, 15)))
            lines.append((line.capitalize() if capital else line) + end)
        documents.append(tuple(lines))
    return documents


@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize(("language", "capital"), [("en", True), ("en", False), ("zh", True)])
def test_sentences_a_line_are_no_wrapped_book(tmp_path: Path, end: str, language: str, capital: bool) -> None:
    """As BERT has its text: a blank line ends a document, whatever ends a sentence."""
    documents = sentences_a_line(LINE_ENDS[end], language=language, capital=capital)
    text = "\n\n".join("\n".join(lines) for lines in documents) + "\n\n"
    (tmp_path / "texts").mkdir()
    write(tmp_path / "texts", "a.txt", text)
    with gzip.open(tmp_path / "texts" / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write(text * 5)  # of which 64 kB are looked at
    found = [d.paragraphs for d in read(tmp_path / "texts")]
    assert found == documents * 6


NASTY_LINES = {
    "stars": "WARNING:" + "*" * 40 + " do not open",
    "a row of stars": "WARNING:" + "*" * 16_000 + " do not open",
    "emoji": "Hello. " + "🙂" * 16_000 + "x",
    "emoji and stars": "Hello. " + "🙂*" * 8_000 + "x",
    "footnotes": "Hello." + "[1]" * 5_000 + "x",
    "spaces": "Hello." + " " * 16_000 + "x",
    "addresses": "http://a " * 2_000 + "x",
}


@pytest.mark.parametrize("line", NASTY_LINES.values(), ids=NASTY_LINES)
def test_no_line_takes_a_format_long_to_recognise(tmp_path: Path, line: str) -> None:
    file = write(tmp_path, "a.txt", "\n".join(["First it was so.", "Then it went on.", line] * 2))
    began = time.process_time()
    (document,) = read(file)
    assert time.process_time() - began < 1
    assert document.paragraphs[2] == line.strip()


def test_wide_hard_wrapped_lines_with_blank_lines_are_joined(tmp_path: Path) -> None:
    text = "\n\n".join(wrapped([paragraph], 130) for paragraph in PROSE["en"])
    (document,) = read(write(tmp_path, "a.txt", text))
    assert document.paragraphs == tuple(PROSE["en"])


def test_short_lines_of_their_own_are_not_joined(tmp_path: Path) -> None:
    titles = [f"{'A very long ' * (i % 3)}title of {'some ' * (i % 7)}book number {i}" for i in range(60)]
    for name, lines in {"titles": titles, "paragraphs": PROSE["en"], "chinese": PROSE["zh"]}.items():
        (document,) = read(write(tmp_path, f"{name}.txt", "\n".join(lines) + "\n"))
        assert document.paragraphs == tuple(lines), name


MARKDOWN_PARAGRAPHS = {
    "a line end is a space": ("One that goes\non here.\n\nTwo.", ["One that goes on here.", "Two."]),
    "none in Chinese": ("第一行还没有\n写完。\n\n第二", ["第一行还没有写完。", "第二"]),
    "headings": ("a\n# Head\nb\nc\n\nUnder\n=====\nd", ["a", "Head", "b c", "Under", "d"]),
    "lists": (
        "- one that\n  goes on\n- two\n1. three\nand on",
        ["one that goes on", "two", "1. three and on"],
    ),
    "quotations": ("> a b\n> c\n>\n> d", ["a b c", "d"]),
    "tables": ("a\n| b | c |\n|---|---|\n| d | e |\nf | g", ["a", "| b | c |", "| d | e |", "f | g"]),
    "indented code": ("a\nb\n\n    x = 1\n    y = 2\n\nc", ["a b", "x = 1", "y = 2", "c"]),
    "fenced code": ("a\n```\ncode\n```\nb\n- c\n  ```\n  code\n  ```\n  d", ["a", "b", "c", "d"]),
    "fences of four hold those of three": ("a\n````md\n```\ncode\n```\nmore\n````\nb", ["a", "b"]),
    "fences of tildes": ("a\n~~~ x`y\ncode\n```\n~~~~\nb\n~~struck~~", ["a", "b ~~struck~~"]),
    "code in a line is no fence": (
        "a\n\n```pip install x```\n\nb\n\n```\ncode\n```\nc",
        ["a", "pip install x", "b", "c"],
    ),
    "a fence that nothing closes": ("a\n\n````\n\nb\n```\n\nc", ["a", "````", "b ```", "c"]),
    "link targets": (
        'See [the site](https://a.b/c "A title"), [wiki](https://en.wikipedia.org/wiki/A_(b)),'
        " [one]( <a b> 'c' ) and ![two](d\n(e)).\n\nf [g](no target) (h)",
        ["See the site, wiki, one and two.", "f [g](no target) (h)"],
    ),
    "lines that name targets": (
        'a\n\n[1]: https://r.e/f\n  [b c]: <d> "e"\n[f]: ../g.md (h)\n[^1]: i.j\n[注]: 见上。\n[k]: Yes.',
        ["a", "[^1]: i.j", "[注]: 见上。", "[k]: Yes."],
    ),
    "HTML": ('a\n<p align="right">\nb', ["a", '<p align="right">', "b"]),
    "ends that are marked": ("a  \nb\nc", ["a", "b c"]),
    "a paragraph a line": (
        f"Head\n{'Long line ' * 13}\nnext\nline",
        ["Head", ("Long line " * 13)[:-1], "next line"],
    ),
    "links do not make lines long": (f"a [b](http://{'x' * 120})\nc", ["a b c"]),
    "a sentence a line": (
        "One is.\nTwo is.\nA head\nThree is.",
        ["One is.", "Two is.", "A head", "Three is."],
    ),
    "hyphens and emphasis": ("a **well-\nknown\nthing**", ["a well-known thing"]),
    "references": (
        "See [the *old* house][1], [a Cat][] and [a cat].\n\n[x][2] [y]\n\n[1]: http://a.b\n[a cat]: /c.png",
        ["See the old house, a Cat and a cat.", "[x][2] [y]"],
    ),
    "a picture in a link": ("[![built](https://a/b.svg)](https://a/b) and more", ["built and more"]),
    "front matter": ("---\n# of Hugo\ntitle: x\n\ny: z\n---\na", ["a"]),
    "no front matter": ("---\n\nA paragraph.\n\n---\n\nb", ["A paragraph.", "b"]),
}


@pytest.mark.parametrize("name", MARKDOWN_PARAGRAPHS)
def test_lines_of_markdown_are_joined_within_paragraphs(tmp_path: Path, name: str) -> None:
    text, paragraphs = MARKDOWN_PARAGRAPHS[name]
    (document,) = read(write(tmp_path, "a.md", text))
    assert list(document.paragraphs) == paragraphs


@pytest.mark.parametrize("language", PROSE)
def test_hard_wrapped_text_in_records_and_markdown_is_joined(tmp_path: Path, language: str) -> None:
    text = "\n\n".join(wrapped([paragraph], 60).strip() for paragraph in PROSE[language])
    record = json.dumps({"title": "T", "text": f"T\n\n{text}"})
    for name, content in {"a.md": text, "a.jsonl": record}.items():
        (document,) = read(write(tmp_path, name, content))
        assert document.paragraphs == tuple(PROSE[language]), name
    path = write(tmp_path, "a.parquet", parquet({"text": [text, "One.\nTwo."]}))
    assert [d.paragraphs for d in read(path)] == [tuple(PROSE[language]), ("One.", "Two.")]


def test_short_lines_in_a_record_are_not_joined(tmp_path: Path) -> None:
    titles = [f"{'A very long ' * (i % 3)}title of {'some ' * (i % 7)}book number {i}" for i in range(60)]
    for lines in (titles, PROSE["en"], PROSE["zh"]):
        text = "He wrote these. There were many of them.\n\n" + "\n".join(lines)
        (document,) = read(write(tmp_path, "a.jsonl", json.dumps({"text": text})))
        assert document.paragraphs[1:] == tuple(lines)


def test_verses_and_quotations_stay_in_a_book_with_blank_lines(tmp_path: Path) -> None:
    verse = "  The sun is low,\n  The day is done.\n  The birds are gone.\n  I walk alone."
    blocks = [textwrap.fill(paragraph, 70) for paragraph in PROSE["en"]]
    text = f"\n\n{verse}\n\n".join(blocks)
    (document,) = read(write(tmp_path, "a.txt", text))
    assert len(document.paragraphs) == 2 * len(blocks) - 1


def test_a_title_of_one_character_begins_an_article(tmp_path: Path) -> None:
    text = " \n = Ab = \n \n One . \n \n = E = \n \n Two . \n = = F = = \n Three . \n"
    assert [d.paragraphs for d in read(write(tmp_path, "a.txt", text))] == [("One .",), ("Two .", "Three .")]


def test_windows_and_old_mac_line_ends(tmp_path: Path) -> None:
    for name, end in (("w.txt", "\r\n"), ("m.txt", "\r")):
        path = write(tmp_path, name, LINES.replace("\n", end))
        assert [d.paragraphs for d in read(path)] == TEXTS["lines"][2]


def test_line_ends_and_characters_across_block_borders(tmp_path: Path) -> None:
    line = "这是一个句子，它有很多字" * 7 + "。"
    path = write(tmp_path, "a.txt", "\r\n".join([line] * 5000))
    assert read(path)[0].paragraphs == (line,) * 5000


def test_byte_order_mark_is_accepted_also_in_the_middle(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.txt", b"\xef\xbb\xbf" + LINES.encode() + b"\xef\xbb\xbf\n" + b"\xef\xbb\xbfThird.\n"
    )
    assert [d.paragraphs for d in read(path)] == [*TEXTS["lines"][2], ("Third.",)]


@pytest.mark.parametrize("encoding", ["gb18030", "big5", "utf-16"])
def test_other_encodings_are_read_when_named_and_suggested_when_not(tmp_path: Path, encoding: str) -> None:
    text = "這是第一個句子，很長的一個句子。\n第二個句子在這裡。\n" * 20
    path = write(tmp_path, "a.txt", text.encode(encoding))
    assert read(path, encoding=encoding)[0].paragraphs[0] == "這是第一個句子，很長的一個句子。"
    message = complaint(path)
    assert "a.txt" in message and f"--encoding {encoding}" in message


def test_the_mark_of_utf_8_wins_over_the_encoding_that_is_named(tmp_path: Path) -> None:
    text = "第一个文件\n第三个文件有两句话\r\n"
    write(tmp_path, "a.txt", text.encode("gb18030"))
    write(tmp_path, "b.txt", b"\xef\xbb\xbf" + text.encode())
    write(tmp_path, "c.jsonl", b"\xef\xbb\xbf" + json.dumps({"text": text}, ensure_ascii=False).encode())
    documents = read(tmp_path, encoding="gb18030")
    assert [d.paragraphs for d in documents] == [("第一个文件", "第三个文件有两句话")] * 3


def test_latin_1_is_suggested_and_the_line_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", ("Plain words here.\n" * 9 + "Le café était fermé.\n").encode("latin-1"))
    message = complaint(path)
    assert "not utf-8" in message and "line 10" in message and "latin-1" in message


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Über die Straße gehen wir müde nach Hause. Größe, schön, für, Mädchen, süß. ", "latin-1"),
        ("El niño pequeño comió el jamón, así que Andrés habló con él. ", "latin-1"),
        ("A facade, a cafe: he said naïvely what Zoë told. ", "latin-1"),
        ("Élan", "latin-1"),
        ("où? créée, 20 °C, 5 £, «Ça», ÀÉ. ", "latin-1"),
        ("Все счастливые семьи похожи друг на друга. ", "cp1251"),
    ],
)
@pytest.mark.parametrize("times", [1, 40])
def test_accents_and_letters_of_other_alphabets_are_not_taken_for_chinese(
    text: str, encoding: str, times: int
) -> None:
    assert guess_encoding((text * times).encode(encoding)) == "latin-1"


def test_chinese_is_recognised_where_it_is_cut_and_among_english() -> None:
    text = "這是第一個句子，他說：“好。”第二個句子在這裡。"
    for encoding in ("gb18030", "big5"):
        assert guess_encoding((text * 9).encode(encoding)[:-1]) == encoding
        assert guess_encoding(("The city is called so. " * 20 + text).encode(encoding)) == encoding


@pytest.mark.parametrize("text", ["好\n", "服务", "很好。", "id,review\n1,很好\n2,差\n", "By 张三, 1999"])
def test_a_word_of_chinese_is_recognised(text: str) -> None:
    assert guess_encoding(text.encode("gb18030")) == "gb18030"


@pytest.mark.parametrize("encoding", ["gb18030", "big5"])
@pytest.mark.parametrize(
    "text", ["「嗯。」\n「喔？」\n「哇！」\n", "甲：嗯，１２３４５６７８９元。\n", "美！！…………"]
)
def test_a_chinese_encoding_is_guessed_for_mostly_full_width_marks(text: str, encoding: str) -> None:
    assert guess_encoding(text.encode(encoding)) == encoding


@pytest.mark.parametrize("encoding", ["gb18030", "big5", "ascii", "utf-16"])
def test_utf_8_is_suggested_for_a_file_in_utf_8(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path, "a.txt", ("第一个句子在这里，很长。他喜欢 café。\n" * 9 + "x").encode())
    with pytest.raises(DataError) as error:
        read(path, encoding=encoding)
    assert "It is UTF-8: pass --encoding utf-8" in str(error.value)


def test_utf_8_is_known_by_a_part_of_it_and_never_suggested_instead_of_itself(tmp_path: Path) -> None:
    raw = "這是第一個句子，他說：“好。”𠮷".encode()
    parts = (raw[i : len(raw) - j] for i in range(4) for j in range(4))
    assert set(map(guess_encoding, parts)) == {"utf-8"}
    assert guess_encoding(b"a\0b") == "latin-1"
    path = write(tmp_path, "a.txt", b"A sentence is here. " * 20_000 + b"caf\xe9 " + b"Here. " * 20_000)
    assert "--encoding latin-1" in complaint(path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_encodings_are_called_by_their_names(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path, "a.txt", ("\ufeff" + LINES).encode(encoding))
    name = encoding[:6]
    message = complaint(path)
    assert f"is {name.upper()}, not UTF-8" in message and f"--encoding {name}" in message
    assert [d.paragraphs for d in read(path, encoding=name)] == TEXTS["lines"][2]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [LINES, "這是第一個句子，很長的一個句子。\n" * 9])
def test_utf_16_without_a_mark_is_called_by_its_name(tmp_path: Path, encoding: str, text: str) -> None:
    path = write(tmp_path, "a.txt", text.encode(encoding))
    for wrong in ("utf-8", "latin-1", "utf-16", "gb18030"):
        assert f"pass --encoding {encoding}" in complaint(path, encoding=wrong), wrong
    assert read(path, encoding=encoding)[0].paragraphs[0] == text.partition("\n")[0]


def test_bad_bytes_far_into_a_file_name_their_line(tmp_path: Path) -> None:
    good = "A line of text that is long enough to matter.\n" * 30_000
    path = write(tmp_path, "a.txt", good.encode() + b"\xff\xfe\n")
    assert "line 30001" in complaint(path)


def test_unknown_encoding_and_format_list_what_exists(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", LINES)
    assert "gb18030" in complaint(path, encoding="utf-9")
    assert "gb18030" in complaint(path, encoding="rot13")
    assert "jsonl" in complaint(path, format="csv")


def test_folders_are_read_in_sorted_order_without_what_is_not_text(tmp_path: Path) -> None:
    for name in ("b/wiki_01", "b/wiki_00", "a.txt", "c/d/e.txt.gz", "c/d.txt"):
        text = f"This is {name} here.\nIt ends.\n"
        write(tmp_path, name, gzip.compress(text.encode()) if name.endswith("gz") else text)
    for name in (".hidden.txt", ".git/x.txt", "README.md", "LICENSE", "image.png", "empty.txt"):
        write(tmp_path, name, b"" if name == "empty.txt" else b"no\x00pe")
    names = [str(f.relative_to(tmp_path)) for f in list_files([tmp_path])]
    assert names == ["a.txt", "b/wiki_00", "b/wiki_01", "c/d.txt", "c/d/e.txt.gz"]
    assert [d.source for d in read(tmp_path)] == [str(f) for f in list_files([tmp_path])]


def test_what_a_search_passes_over_is_reported(tmp_path: Path) -> None:
    novels = ["License to Kill.txt", "Noticeboard.txt", "readme_novel.txt", "Copying a Friend.md"]
    about = ["LICENSE", "license.txt", "README.zh.md", "Notice.txt", "CHANGELOG.md"]
    other = ["a.csv", "corpus.2019", "b.png.gz"]
    for name in [*novels, *about, *other, "empty.txt", ".hidden.png"]:
        write(tmp_path, name, LINES if name != "empty.txt" else b"")
    reports: list[FileReport] = []
    assert {Path(d.source).name for d in read(tmp_path, on_file=reports.append)} == set(novels)
    skipped = {Path(r.source).name: (r.format, r.reason) for r in reports if r.format in PASSED_OVER}
    assert skipped == {
        **{name: ("skipped", name.split(".")[0]) for name in about},
        **{
            "a.csv": ("skipped", ".csv"),
            "corpus.2019": ("skipped", ".2019"),
            "b.png.gz": ("skipped", ".png"),
        },
        "empty.txt": ("empty", "has no bytes"),
    }


ODD = {
    "blank.txt": (b"\n \n\t\n", "empty", "holds no text"),
    "latin.txt": ("Le café était fermé.\n".encode("latin-1"), "unreadable", "not utf-8"),
    "meta.json": (b'{"name": "x"}\n', "unreadable", "has no field `text`"),
    "picture.txt": (b"\x89PNG\r\n\0\0", "unreadable", "binary"),
    "packed.txt.gz": (b"no gzip", "unreadable", "holds no gzip data"),
    "late.jsonl": (b'{"text": "One."}\n{"text": "Two."}\n{"te', "broken off", "2 documents before that"),
}


def test_an_odd_file_in_a_folder_is_passed_over_and_named(tmp_path: Path) -> None:
    odd = {**ODD, "bytes.parquet": (not_utf8_parquet(), "unreadable", "UTF-8")}
    for name, (content, _, _) in odd.items():
        write(tmp_path / "all", name, content)
        complaint(tmp_path / "all" / name, on_file=lambda _: None)  # named outright it is an error
    write(tmp_path / "all", "z.txt", LINES)
    reports: dict[str, FileReport] = {}
    given: list[int] = []
    documents = read(
        tmp_path / "all",
        on_file=lambda report: reports.update({Path(report.source).name: report}),
        on_bytes=given.append,
    )
    assert Counter(Path(d.source).name for d in documents) == {"late.jsonl": 2, "z.txt": 2}
    assert sum(given) == sum(f.stat().st_size for f in (tmp_path / "all").iterdir())
    for name, (_, format, reason) in odd.items():
        assert reports[name].format == format and reason in reports[name].reason, name
    assert reports["z.txt"].format == "lines"
    complaint(tmp_path / "all")  # an error without on_file


def test_a_link_to_nothing_is_passed_over_and_named(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", LINES)
    (tmp_path / "b.txt").symlink_to(tmp_path / "gone.txt")
    reports: list[FileReport] = []
    assert list_files([tmp_path]) == [tmp_path / "a.txt"]
    assert len(read(tmp_path, on_file=reports.append)) == 2
    [skipped] = [report for report in reports if report.format in PASSED_OVER]
    assert (skipped.source, skipped.format) == (str(tmp_path / "b.txt"), "unreadable")
    assert "cannot be opened" in complaint(tmp_path)  # an error without on_file


def test_linked_folders_are_searched_once(tmp_path: Path) -> None:
    """Also where a link leads back to a folder that holds it."""
    write(tmp_path, "far/b.txt", LINES)
    write(tmp_path, "text/a.txt", LINES)
    for name, to in (("far", "../far"), ("more", "../far"), ("same", "."), ("up", "..")):
        (tmp_path / "text" / name).symlink_to(to)
    assert list_files([tmp_path / "text"]) == [tmp_path / "text/a.txt", tmp_path / "text/far/b.txt"]


def test_a_folder_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.txt", LINES)
    shut, scandir = str(tmp_path / "shut"), os.scandir
    write(tmp_path, "shut/b.txt", LINES)

    def refusing(path: Any) -> Any:
        if str(path) == shut:
            raise PermissionError(13, "Permission denied", shut)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    reports: list[FileReport] = []
    assert len(read(tmp_path, on_file=reports.append)) == 2
    [skipped] = [report for report in reports if report.format in PASSED_OVER]
    assert (skipped.source, skipped.format) == (shut, "unreadable") and "Permission denied" in skipped.reason
    for path in (tmp_path, Path(shut)):  # without on_file, and where there is nothing else
        assert f"{shut}: cannot be opened (Permission denied)" in complaint(path)


@pytest.mark.parametrize(
    ("names", "made"),
    [
        (["manifest.json", "tokenizer/vocab.txt", "train/a.npy", "notes.txt"], "a prepared corpus"),
        (["prepare.json"], "a prepared corpus"),
        (["prepare.json", "tokenizer/vocab.txt", ".lock"], "a prepared corpus"),
        (["prepare.json", "text.txt"], None),
        (["manifest.json"], None),
        (["tokenizer/vocab.txt", "train/a.txt"], None),
        (["settings.yaml", "metrics.jsonl", "predictions-dev.jsonl", "best/vocab.txt"], "a run"),
        (["settings.yaml", "predictions-dev.jsonl"], None),
        (["vocab.txt", "tokenizer.json", "tokenizer_config.json"], "a vocabulary"),
        (["spiece.model", "tokenizer.json", "tokenizer_config.json", "added_tokens.json"], "a vocabulary"),
        (["tokenizer_config.json"], None),
        (["vocab.txt"], None),
        (["vocab.txt", "tokenizer_config.json", "story.txt"], None),
        (["config.json", "model.safetensors", "vocab.txt"], "a model"),
        (
            ["config.json", "model.safetensors.index.json", "model-00001-of-2.safetensors", "vocab.txt"],
            "a model",
        ),
        (["config.json", "pytorch_model.bin", "vocab.txt"], "a model"),
        (
            ["bert_config.json", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001", "vocab.txt"],
            "a model",
        ),
        (["albert_config_tiny.json", "a.index", "a.data-00000-of-00001", "vocab.txt"], "a model"),
        (["config.json", "export.json", "onnx/model.onnx", "vocab.txt"], "a model"),
        (["saved_model.pb", "variables/variables.index", "assets/vocab.txt"], "a model"),
        (["config.json", "story.txt"], None),
        (["config.json", "export.json", "story.txt"], None),
        (["config.json", "story.bin", "story.index", "story.txt"], None),
    ],
)
def test_what_was_made_of_text_is_no_text(tmp_path: Path, names: list[str], made: str | None) -> None:
    """Catches: the rows of a task's dev set, or a vocabulary, learned as text."""
    for name in names:
        write(tmp_path, f"inside/{name}", LINES)
    write(tmp_path, "z.txt", LINES)
    assert (list_files([tmp_path]) == [tmp_path / "z.txt"]) == (made is not None)
    if made:
        assert f"is {made}, not text" in complaint(tmp_path / "inside")


@pytest.mark.parametrize("name", ["albertine-mini-en", "albertine-mini-zh"])
def test_a_vocabulary_that_is_saved_beside_text_is_no_text(tmp_path: Path, name: str) -> None:
    write(tmp_path, "z.txt", LINES)
    (tmp_path / "vocabulary").mkdir()
    load_tokenizer(name).save(tmp_path / "vocabulary")
    assert list_files([tmp_path]) == [tmp_path / "z.txt"]


class Failing(io.BytesIO):
    """A file on a disk that fails behind its first bytes."""

    def read(self, size: int | None = -1, /) -> bytes:
        if not (block := super().read(size)):
            raise OSError(5, "Input/output error")
        return block


@pytest.mark.parametrize("wrap", WRAP)
def test_a_disk_that_fails_while_a_file_is_read_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrap: str
) -> None:
    """Also in the middle of what is packed: the message does not blame the file or the corpus."""
    path = write(tmp_path, f"a.txt{wrap}", WRAP[wrap](20_000 * LINES.encode(), "a.txt"))
    content = path.read_bytes()
    monkeypatch.setattr(Path, "open", lambda *_, **__: Failing(content[: len(content) // 2]))
    message = complaint(path, on_file=lambda _: None)
    assert message.startswith(f"{path}: cannot be read (Input/output error). Check the disk")
    with pytest.raises(DataError, match="cannot be read"), unpacked(path) as stream:
        whole(stream)


UNREAD = Path("/sys/class/net/lo/speed")


@pytest.mark.skipif(not UNREAD.is_file(), reason="needs a file of Linux that opens and cannot be read")
def test_a_file_that_opens_and_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert f"{UNREAD}: cannot be read" in complaint(UNREAD)
    write(tmp_path, "a.txt", LINES)
    (tmp_path / "b.txt").symlink_to(UNREAD)
    reports: list[FileReport] = []
    assert len(read(tmp_path, on_file=reports.append)) == 2
    [skipped] = [report for report in reports if report.format in PASSED_OVER]
    assert skipped.format == "unreadable" and "cannot be read" in skipped.reason


def test_an_odd_member_of_an_archive_is_passed_over_and_named(tmp_path: Path) -> None:
    odd = {name: content for name, (content, _, _) in ODD.items()} | {"in.tar": tar([("a.txt", b"a")])}
    archive = write(tmp_path, "a.tar", tar([*odd.items(), ("z.txt", LINES.encode())]))
    reports: dict[str, FileReport] = {}

    def note(report: FileReport) -> None:
        reports[report.source.rpartition(":")[2]] = report

    documents = read(archive, on_file=note)
    assert Counter(d.source.rpartition(":")[2] for d in documents) == {"late.jsonl": 2, "z.txt": 2}
    assert {name: reports[name].format for name in odd} == {
        **{name: format for name, (_, format, _) in ODD.items()},
        "in.tar": "unreadable",
    }
    assert "not utf-8" in reports["latin.txt"].reason and reports["z.txt"].format == "lines"
    complaint(archive)  # an error without on_file
    assert "not utf-8" in complaint(
        write(tmp_path, "b.tar", tar([("a.txt", b"\xe9")])), on_file=lambda _: None
    )
    packed = gzip.compress(tar([("a.txt", LINES.encode()), ("b.txt", bytes(range(1, 127)) * 999)]))
    cut = write(tmp_path, "c.tar.gz", packed[:-99])
    assert f"{cut}: is damaged or cut off" in complaint(cut, on_file=lambda _: None)


def test_a_file_that_needs_a_package_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.txt", LINES)
    write(tmp_path, "b.txt.zst", b"\x28\xb5\x2f\xfd" + b"\0" * 9)
    write(tmp_path, "c.parquet", b"PAR1" + b"\0" * 9)
    assert len(read(tmp_path, on_file=lambda _: None)) == 2
    for package, file in (("pyarrow", "c.parquet"), ("zstandard", "b.txt.zst")):
        monkeypatch.setitem(sys.modules, package, None)
        message = complaint(tmp_path, on_file=lambda _: None)
        assert file in message and "pip install" in message


def test_a_folder_of_odd_files_alone_is_refused_with_the_first_reason(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", b'{"body": "x"}\n')
    write(tmp_path, "b.txt", b"\n\n")
    message = complaint(tmp_path, on_file=lambda _: None)
    assert "`body`" in message and "--text-field" in message


def test_missing_empty_and_textless_paths(tmp_path: Path) -> None:
    assert "no such file" in complaint(tmp_path / "nowhere.txt")
    assert "is empty" in complaint(write(tmp_path, "e/empty.txt", b""))
    assert "no text file" in complaint(tmp_path / "e")
    assert "no text" in complaint()
    assert "holds no text" in complaint(write(tmp_path, "blank.txt", "\n \n\t\n"))
    assert "holds no text" in complaint(write(tmp_path, "stubs", WIKI[: WIKI.index("</doc>")]))
    assert "holds no text" in complaint(write(tmp_path, "none.tar", tar([])))


def test_a_missing_path_is_an_error_before_any_reading(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_documents([write(tmp_path, "a.txt", LINES), tmp_path / "b.txt"])


def test_binary_files_are_named_as_such(tmp_path: Path) -> None:
    assert "binary" in complaint(write(tmp_path, "a.txt", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"))
    late = "Text that goes on.\n" * 20_000 + "bad\0line\n"
    message = complaint(write(tmp_path, "b.txt", late))
    assert "binary" in message and "line 20001" in message
    assert "zip" in complaint(write(tmp_path, "c.txt", b"PK\x03\x04rest"))


@pytest.mark.parametrize("wrap", [w for w in WRAP if w])
def test_cut_off_files_are_never_taken_for_whole_ones(tmp_path: Path, wrap: str) -> None:
    text = "".join(f"Sentence number {i * 7919 % 100_003} stands here.\n" for i in range(3000))
    whole = WRAP[wrap](text.encode(), "a.txt")
    for keep in (len(whole) // 2, len(whole) - 5 if wrap != ".tar" else len(text) - 99):
        path = write(tmp_path, f"cut{keep}.txt{wrap}", whole[:keep])
        message = complaint(path, format="lines")
        assert path.name in message and "cut off" in message


@pytest.mark.parametrize("wrap", [".gz", ".xz", ".bz2", ".zst"])
def test_flipped_bits_in_compressed_files_are_found(tmp_path: Path, wrap: str) -> None:
    if wrap == ".zst":
        zstandard = pytest.importorskip("zstandard")
        whole = zstandard.ZstdCompressor(write_checksum=True).compress(LINES.encode() * 50)
    else:
        whole = WRAP[wrap](LINES.encode() * 50, "")
    for at in range(len(whole) // 3, len(whole), max(1, len(whole) // 9)):
        bad = bytearray(whole)
        bad[at] ^= 0x10
        path = write(tmp_path, f"b{at}.txt{wrap}", bytes(bad))
        try:
            found = read(path)
        except DataError:
            continue
        assert found == [
            Document(str(path), d.paragraphs, d.presplit)
            for d in read(write(tmp_path, "g.txt" + wrap, whole))
        ]


def test_named_compressed_but_is_not(tmp_path: Path) -> None:
    assert "holds no gzip data" in complaint(write(tmp_path, "a.txt.gz", LINES))


def test_a_compressed_file_without_its_extension_is_read(tmp_path: Path) -> None:
    assert len(read(write(tmp_path, "a.txt", gzip.compress(LINES.encode())))) == 2


@pytest.mark.parametrize("wrap", [".gz", ".xz", ".bz2", ".zst"])
def test_concatenated_streams_are_read_to_the_end(tmp_path: Path, wrap: str) -> None:
    parts = [WRAP[wrap](f"Part {i} is here.\n".encode(), "") for i in range(3)]
    padding = b"\0" * 8 if wrap in (".gz", ".xz") else b""
    path = write(tmp_path, "a.txt" + wrap, padding.join(parts) + padding)
    assert read(path)[0].paragraphs == ("Part 0 is here.", "Part 1 is here.", "Part 2 is here.")


@pytest.mark.parametrize("wrap", [".gz", ".xz", ".bz2", ".zst"])
def test_bombs_are_stopped_early_and_in_little_memory(tmp_path: Path, wrap: str) -> None:
    block = WRAP[wrap](b"All work and no play.\n" * 150_000, "")
    path = write(tmp_path, "bomb.txt" + wrap, block * 60)
    tracemalloc.start()
    # documents end at each line, so that only the ratio can stop it
    message = ""
    try:
        for _ in read_documents([path], format="documents", limits=Limits(ratio_after=4 << 20)):
            pass
    except DataError as error:
        message = str(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "times its size" in message
    assert peak < 150 << 20


def test_size_limits(tmp_path: Path) -> None:
    packed = write(tmp_path, "a.txt.gz", gzip.compress(LINES.encode() * 5))
    assert "more than 100 bytes" in complaint(packed, limits=Limits(unpacked_bytes=100))
    many = write(tmp_path, "a.tar", tar([(f"{i}.txt", LINES.encode()) for i in range(9)]))
    assert "more than 5 members" in complaint(many, limits=Limits(members=5))


@pytest.mark.parametrize(
    "format", ["lines", "paragraphs", "book", "markdown", "wiki", "wikitext", "jsonl", "documents"]
)
def test_endless_documents_and_lines_are_refused_with_advice(tmp_path: Path, format: str) -> None:
    small = Limits(document_characters=5000)
    head = {"wiki": '<doc id="1" title="x">\n', "jsonl": '{"text": "'}.get(format, "")
    tail = '"}' if format == "jsonl" else ""
    path = write(tmp_path, "line.txt", head + "word " * 2000 + tail)
    message = complaint(path, format=format, limits=small)
    assert "line.txt" in message and "--format" in message
    if format not in ("documents", "jsonl"):
        path = write(tmp_path, "doc.txt", head + "A line of words, it is.\n" * 400)
        message = complaint(path, format=format, limits=small)
        assert "longer than 5,000 characters" in message and "blank lines" in message


def test_memory_stays_small_on_a_large_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", (("A sentence of some length, as they are.\n" * 50) + "\n") * 10_000)
    tracemalloc.start()
    count = sum(1 for _ in read_documents([path]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 8 << 20


def test_tar_members_that_are_not_text_files_are_passed_over_and_nothing_is_written(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, link in (
            ("folder", tarfile.DIRTYPE, ""),
            ("link.txt", tarfile.SYMTYPE, "/etc/passwd"),
            ("hard.txt", tarfile.LNKTYPE, "../../etc/passwd"),
            ("device.txt", tarfile.CHRTYPE, ""),
            ("pipe.txt", tarfile.FIFOTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            archive.addfile(info)
        for name, content in (
            ("../../../escape.txt", LINES.encode()),
            ("/absolute.txt", LINES.encode()),
            ("._mac.txt", b"\0\0"),
            ("__MACOSX/a.txt", b"\0"),
            ("x/.git/description", LINES.encode()),
            ("./y/.checkpoints/a.txt", LINES.encode()),
            ("./plain.txt", LINES.encode()),
            ("picture.png", b"\0"),
            ("empty.txt", b""),
            ("inner.txt.gz", gzip.compress(LINES.encode())),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    path = write(tmp_path, "in/a.tar", out.getvalue())
    reports: list[FileReport] = []
    documents = read(path, on_file=reports.append)
    names = {d.source.partition(".tar:")[2] for d in documents}
    assert names == {"../../../escape.txt", "/absolute.txt", "./plain.txt", "inner.txt.gz"}
    assert [r.format for r in reports if r.source.endswith(("png", "empty.txt"))] == ["skipped", "empty"]
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


def test_archive_in_archive_is_refused(tmp_path: Path) -> None:
    inner = tar([("a.txt", LINES.encode())])
    assert "inside an archive" in complaint(write(tmp_path, "o.tar", tar([("inner.tar", inner)])))


def test_bad_json_names_file_and_line(tmp_path: Path) -> None:
    for bad in ('{"text": "cut', "[1, 2]", "{}", '{"text": 5}', '{"text": ["a", 1]}', '"x"', "[" * 100_000):
        path = write(tmp_path, "a.jsonl", '{"text": "Good."}\n\n' + bad + "\n")
        assert "a.jsonl:3" in complaint(path)
    path = write(tmp_path, "f.jsonl", '{"body": "x", "id": 1}\n')
    message = complaint(path)
    assert "`text`" in message and "`body`" in message and "--text-field" in message
    assert read(path, text_field="body")[0].paragraphs == ("x",)


def test_the_error_of_a_json_array_file_names_the_right_format(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", json.dumps([{"text": "One."}], indent=1))
    assert "one JSON object a line" in complaint(path)


def test_json_lists_null_and_line_breaks(tmp_path: Path) -> None:
    records = [{"text": ["One.", "Two.\nThree."]}, {"text": None}, {"text": "a\u2028b\0c"}]
    path = write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, records)))
    assert [d.paragraphs for d in read(path)] == [("One.", "Two.", "Three."), ("a", "bc")]


def parquet(columns: dict[str, Any], rows: int = 100) -> bytes:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, row_group_size=rows)
    return out.getvalue()


@pytest.mark.parametrize("wrap", ["", ".gz", ".tar", ".tar.xz"])
def test_parquet_rows_are_documents(tmp_path: Path, wrap: str) -> None:
    texts: list[object] = [f"T{i}\nText {i}. More.\n\nEnd." for i in range(700)]
    data = parquet(
        {"text": [*texts, None], "title": [*(f"T{i}" for i in range(700)), None], "n": list(range(701))}
    )
    path = write(tmp_path, "a.parquet" + wrap, WRAP[wrap](data, "a.parquet"))
    documents = read(path)
    assert len(documents) == 700
    assert documents[5].paragraphs == ("Text 5. More.", "End.")


def not_utf8_parquet() -> bytes:
    pa = pytest.importorskip("pyarrow")
    bad = pa.array([b"\xe9t\xe9"], pa.binary()).view(pa.string())
    return parquet({"text": bad})


def test_parquet_faults(tmp_path: Path) -> None:
    assert "utf-8" in complaint(write(tmp_path, "f.parquet", not_utf8_parquet()))
    data = parquet({"body": ["x"], "n": [1]})
    assert "`body`" in complaint(write(tmp_path, "a.parquet", data))
    assert "not text" in complaint(write(tmp_path, "a.parquet", data), text_field="n")
    assert "damaged" in complaint(write(tmp_path, "b.parquet", data[:-20]))
    assert "damaged" in complaint(write(tmp_path, "c.parquet", "Just text.\n"))
    assert "damaged" in complaint(write(tmp_path, "d.txt", "Just text.\n"), format="parquet")
    inside = write(tmp_path, "e.tar", tar([("a.parquet", data)]))
    assert "Unpack" in complaint(inside, text_field="body", limits=Limits(in_memory_bytes=100))


def test_the_wiki_format_needs_doc_elements(tmp_path: Path) -> None:
    assert "<doc" in complaint(write(tmp_path, "a.txt", LINES), format="wiki")


def test_wiki_cut_off_keeps_the_part_that_is_there(tmp_path: Path) -> None:
    path = write(tmp_path, "wiki_00", WIKI[: WIKI.index("{|")])
    assert [len(d.paragraphs) for d in read(path)] == [2]


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("Career.", True),
        ("Early life and education.", True),
        ("FM 1128 (1949).", True),
        ("車站結構.", True),
        ("获奖（国际）.", True),
        ("He died.", False),
        ("The team won the cup.", False),
        ("他死了。", False),
        ("A longer line that has no verb but far too many words in it to be any heading.", False),
        ("Career", False),
        ("And then...", False),
        ("It ended in 1990. More came.", False),
    ],
)
def test_section_headings(line: str, heading: bool) -> None:
    assert is_section_heading(line) is heading


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("Shanghai () is", "Shanghai is"),
        ("東富山站（）是", "東富山站是"),
        ("人民保護部隊（，缩写为YPG）是", "人民保護部隊（缩写为YPG）是"),
        ("美國公開-{}-機密", "美國公開機密"),
        ("在-{zh-hans:计算机;zh-hant:電腦;}-上", "在计算机上"),
        ("由-{H|標清廣播=&gt;zh-tw:標準畫質廣播;}-標清廣播-{}-升格", "由標清廣播升格"),
        ("-{H|zh:厘米;zh-tw:公分;zh-cn:厘米;}-", ""),
        ("-{A|zh-hans:计算机;zh-hant:電腦;}-", "计算机"),
        ("a &lt;ref name=x&gt; b", "a b"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("f(x) is (fine)", "f(x) is (fine)"),
        ("don't 'quote' it", "don't 'quote' it"),
    ],
)
def test_wiki_leftovers(line: str, clean: str) -> None:
    assert clean_wiki(line) == clean


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("well-\nknown", ["well-known"]),
        ("impos-\nsible or impossible", ["impossible or impossible"]),
        ("to-\nday and to-day", ["to-day and to-day"]),
        ("he said--\nyes", ["he said--yes"]),
        ("soft\u00ad\nened", ["softened"]),
        ("  indented\n    lines  \n", ["indented lines"]),
        ("一个句\n子在这\n里。", ["一个句子在这里。"]),
        ("中文 and\nEnglish", ["中文 and English"]),
        ("这是一段很长的 \n测试文字", ["这是一段很长的测试文字"]),
        ("一段\n  测试\n\u3000\u3000文字\u3000\n。", ["一段测试文字。"]),
        ("第12 \n章有\n  3\n\t个", ["第12章有3个"]),
        ("\U00020bb7\n\U00020bb7\uf900\n\ufa0e\n野家", ["\U00020bb7\U00020bb7\uf900\ufa0e野家"]),
        ("“one” \n  “two”\t\nthrée", ["“one” “two” thrée"]),
        ("one\n \t\ntwo\n\n\n\nthree", ["one", "two", "three"]),
        ("a _stressed\nword_ and snake_case_name", ["a stressed word and snake_case_name"]),
        (
            "one\n\n* * * * *\n\n+---+---+\n|a  |b  |\n\n-----------\n\ntwo ---- he said",
            ["one", "two ---- he said"],
        ),
        ("“D----n!”\n\n“Mr. B----!”\n\n“Miss ----!”", ["“D----n!”", "“Mr. B----!”", "“Miss ----!”"]),
        ("Name  Age\n------  ---\nBo    12\n\nPreface ---------- 1\n\nend", ["end"]),
        (
            "We need:\n1. Milk\n2. Bread and\n   butter\n3. Eggs\n\n- one\n- two",
            ["We need:", "1. Milk", "2. Bread and butter", "3. Eggs", "- one", "- two"],
        ),
        (
            "Ann wrote:\n> The first ends\n> here. So does this.\n>\n> And more.\n\nYes.",
            ["Ann wrote:", "The first ends here. So does this.", "And more.", "Yes."],
        ),
        ("", []),
    ],
)
def test_unwrapping(text: str, joined: list[str]) -> None:
    assert unwrap_paragraphs(text) == joined


def test_a_digit_and_a_chinese_character_are_joined_without_a_space() -> None:
    assert unwrap_paragraphs("全书共分为\n11\n篇章，\n2018 年\nNo 5\nand 6\n") == [
        "全书共分为11篇章，2018 年 No 5 and 6"
    ]


@pytest.mark.parametrize(
    "unit",
    [
        " ",
        "```\n",
        "``` a\n",
        "`",
        "~~~",
        "~~~ a\n",
        "<!-- ",
        "--\n",
        "- ",
        "| ",
        ": |",
        "# ",
        "> ",
        "*a",
        "[a](",
        "[a](b(c)",
        "[a]: b/c\n[a][",
        '[a](b "',
        "[a](<b",
        "[a]: ",
        '[a]: b.c "',
        "中 \n",
    ],
)
def test_linear_time_on_nasty_markdown(tmp_path: Path, unit: str) -> None:
    def seconds(size: int) -> float:
        path = write(tmp_path, "a.md", (unit * size)[:size] + "x")
        best = 9.0
        for _ in range(2):
            began = time.process_time()
            read(path)
            best = min(best, time.process_time() - began)
        return best

    # quadratic behaviour would take half a minute; the floor allows for a busy machine
    assert seconds(100_000) < max(1.0, 40 * seconds(10_000))


def test_reading_twice_gives_the_same(tmp_path: Path) -> None:
    for format, (name, text, _) in TEXTS.items():
        write(tmp_path, f"{format}/{name}", text)
    assert read(tmp_path) == read(tmp_path)


# Real files. The counts of the data sheet include titles, and headings, which are dropped here.


def real(folder: Path, name: str, **kw: object) -> tuple[list[Document], Counter[str]]:
    path = folder / name
    if not path.exists():
        pytest.skip(f"{name} is not on this machine")
    kinds: Counter[str] = Counter()
    documents = read(path, on_file=lambda r: kinds.update([r.format]), **kw)
    return documents, kinds


def test_real_english_wiki(shared_data: Path) -> None:
    documents, kinds = real(shared_data, "en_wiki_2018/wiki_00-07.txt.xz")
    assert kinds == {"wiki": 1}
    assert 3311 * 0.97 < sum(d.characters >= 200 for d in documents) <= 3311
    assert not any("<doc" in p or "</doc" in p for d in documents for p in d.paragraphs)


def test_real_books(shared_data: Path) -> None:
    documents, kinds = real(shared_data, "en_books/books_01.tar.xz")
    assert kinds == {"book": 24} and len(documents) == 24
    words = sum(len(p.split()) for d in documents for p in d.paragraphs)
    assert 1.5e6 < words < 1.7e6
    assert sum(p.count("\n") for d in documents for p in d.paragraphs) == 0


def test_real_chinese_wiki(shared_data: Path) -> None:
    documents, _ = real(shared_data, "zh_wiki/wiki_00-07.txt.xz")
    assert 2602 * 0.95 < sum(d.characters >= 200 for d in documents) <= 2602


def test_real_histories_and_laws(shared_data: Path) -> None:
    documents, kinds = real(shared_data, "zh_histories_modern/shiji_sanguo_xuxiake.tar.xz")
    assert len(documents) == 349 and kinds["lines"] > 340
    documents, kinds = real(shared_data, "zh_laws/laws.tar.xz")
    assert kinds["markdown"] == 1084
    assert 1050 < len(documents) < 1084
    assert not any(p.startswith(("#", "---", "<!--")) for d in documents for p in d.paragraphs)


def test_real_wikitext(shared_data: Path) -> None:
    documents, kinds = real(shared_data, "en_wikitext2/valid.txt.xz")
    assert kinds == {"wikitext": 1} and len(documents) == 60


def test_quotes_of_windows_are_not_taken_for_latin_1(tmp_path: Path) -> None:
    raw = "He left.” Then he said: “I don’t…”\n".encode("cp1252")
    assert guess_encoding(raw) == guess_encoding(raw * 40) == "cp1252"
    path = write(tmp_path, "a.txt", raw)
    assert "--encoding cp1252" in complaint(path)
    assert "”" in read(path, encoding="cp1252")[0].paragraphs[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"text": "The infor\\u00admation is here."}\n'),
        ("a.md", "The infor\u00admation is here.\n"),
        ("a.txt", "The infor\u00admation is here.\n"),
    ],
)
def test_soft_hyphens_go_from_every_format(tmp_path: Path, name: str, text: str) -> None:
    assert read(write(tmp_path, name, text))[0].paragraphs == ("The information is here.",)


def test_a_bzip2_of_one_byte_is_stopped_in_little_memory(tmp_path: Path) -> None:
    path = write(tmp_path, "bomb.txt.bz2", bz2.compress(b"a" * (200 << 20)))  # some hundred bytes
    tracemalloc.start()
    message = complaint(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "times its size" in message and peak < 100 << 20


def test_bzip2_is_unpacked_in_pieces_that_are_worth_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: some bytes a call, with which a dump takes days of calls."""
    calls, make = 0, bz2.BZ2Decompressor

    class Counting:
        def __init__(self) -> None:
            self.engine = make()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.engine, name)

        def decompress(self, *arguments: Any, **options: Any) -> bytes:
            nonlocal calls
            calls += 1
            return self.engine.decompress(*arguments, **options)

    monkeypatch.setattr(bz2, "BZ2Decompressor", Counting)
    whole = random.Random(1).randbytes(1 << 20)
    packed = bz2.compress(whole)  # as long as before
    stream = decompressed(ByteStream(io.BytesIO(packed), "a.bz2"), Limits())
    assert b"".join(iter(stream.read, b"")) == whole
    assert calls < 2 * len(packed) // 1024


def test_an_endless_header_of_a_tar_is_not_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.txt")
    info.type, info.size = tarfile.XHDTYPE, 64 << 20
    path = write(tmp_path, "a.tar", info.tobuf(tarfile.USTAR_FORMAT) + bytes(64 << 20))
    tracemalloc.start()
    message = complaint(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "a header of" in message and peak < 16 << 20


def _gaps_of_pax() -> bytes:
    info = tarfile.TarInfo("a.txt")
    info.pax_headers = {"GNU.sparse.map": "x"}
    return info.tobuf(tarfile.PAX_FORMAT)


def _gaps_of_gnu() -> bytes:
    """A list of gaps that fills the member and never ends."""
    info = tarfile.TarInfo("a.txt")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    info.size = 32 << 20
    return info.tobuf(tarfile.PAX_FORMAT) + b"9000000\n" + b"0\n" * (16 << 20)


def _headers_behind_headers() -> bytes:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 512
    return (info.tobuf(tarfile.GNU_FORMAT) + b"a".ljust(512, b"\0")) * 2000


def _a_length_without_end() -> bytes:
    words = b"1" * 5000 + b" a=b\n"
    info = tarfile.TarInfo("a.txt")
    info.type, info.size = tarfile.XHDTYPE, len(words)
    return info.tobuf(tarfile.USTAR_FORMAT) + words.ljust(5120, b"\0")


@pytest.mark.parametrize("made", [_gaps_of_pax, _gaps_of_gnu, _headers_behind_headers, _a_length_without_end])
def test_headers_of_a_tar_that_tarfile_falls_over_are_one_message(
    tmp_path: Path, made: Callable[[], bytes]
) -> None:
    path = write(tmp_path, "a.tar", made() + bytes(1024))
    tracemalloc.start()
    message = complaint(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "a.tar" in message and peak < 16 << 20


def test_titles_that_are_the_text_of_json_lines_are_read(tmp_path: Path) -> None:
    """As they are of a table in Parquet. Catches: a title taken for the first line of its own text."""
    rows = [{"title": "How do I pay?", "id": 1}, {"title": "Where is it?", "id": 2}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = read_documents([tmp_path / "t.jsonl"], text_field="title")
    assert [one.paragraphs for one in found] == [("How do I pay?",), ("Where is it?",)]
