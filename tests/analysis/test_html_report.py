"""The self-contained HTML report: nothing from outside, escaped text, colours of dark and light pages."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from albertine.analysis.html_report import DARK, Section, Table, check_page, page, write_page
from albertine.analysis.plots import COLOURS, INK, save_curves, svg_of
from albertine.errors import SettingsError
from tests.analysis.test_plots import contrast

pytestmark = pytest.mark.pictures

VOID = {"meta", "link", "img", "br"}


class Elements(HTMLParser):
    """Every element with its attributes; fails where an end tag closes another element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def drawing() -> str:
    return svg_of(lambda path: save_curves(path, {"a": [(1, 2.0), (2, 1.0)]}, title="损失 <&>"))


@pytest.fixture(scope="module")
def report() -> str:
    table = Table(["layer", "<b>"], [[0, "1 & 2"], ["最后", 0.5]])
    sections = [
        Section("Loss", ["A paragraph with <script>alert(1)</script>."], table, [drawing(), drawing()]),
        Section("Next", pre='albertine show "a" <b>'),
    ]
    return page('A "report" & more', sections, text=["中文"])


def test_a_page_is_well_formed_and_loads_nothing(report: str) -> None:
    elements = Elements(report).found
    tags = {tag for tag, _ in elements}
    assert "svg" in tags and not tags & {"script", "link", "iframe", "img", "object", "b"}
    for tag, attributes in elements:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "data", "action"):
                assert value is not None and value.startswith(("#", "data:")), (tag, name, value)
    assert "http" not in report.replace('http-equiv="', "") and "@import" not in report
    assert all("url(" not in style or "url(#" in style for style in re.findall(r'style="[^"]*"', report))
    assert "default-src 'none'" in report


def test_text_is_escaped(report: str) -> None:
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in report and "<script" not in report
    assert "<title>A &quot;report&quot; &amp; more</title>" in report
    assert "<td>1 &amp; 2</td>" in report and '<th scope="col">&lt;b&gt;</th>' in report
    assert "损失 &lt;&amp;&gt;" in report  # text in the figure, which any system has fonts for


def test_ids_of_figures_differ(report: str) -> None:
    elements = Elements(report).found
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert ids and len(ids) == len(set(ids))
    references = {
        value[1:]
        for _, attributes in elements
        for name in ("href", "xlink:href")
        if (value := attributes.get(name)) is not None
    } | set(re.findall(r"url\(#([^)]+)\)", report))
    assert references and references <= set(ids)


def test_figures_have_the_colours_of_the_page(report: str) -> None:
    body = report.split("</style>", 1)[1]
    assert "var(--c0)" in body and "var(--ink)" in body and COLOURS[0] not in body and INK not in body
    style = report.split("</style>", 1)[0]
    dark = style[style.index("prefers-color-scheme") :]
    assert all(colour in dark for colour in DARK)


def test_colours_of_a_dark_page_have_contrast() -> None:
    assert contrast("#e6e9ee", "#15181d") >= 7 and contrast("#a3acb8", "#15181d") >= 4.5
    assert contrast("#59626e", "#fefefe") >= 4.5 and contrast(INK, "#fefefe") >= 7


def test_a_page_replaces_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    for title in ("first", "second"):
        write_page(path, title, [], language="zh")
    text = path.read_text(encoding="utf-8")
    assert "<h1>second</h1>" in text and "<h1>first" not in text and '<html lang="zh">' in text


@pytest.mark.parametrize("name", ["report.pdf", "report", "folder.html", "file/report.html"])
def test_a_path_that_cannot_be_a_page_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(SettingsError, match=r"is not the name of an HTML file|cannot be written"):
        check_page(tmp_path / name)
    check_page(tmp_path / "good" / "report.html")
    assert not (tmp_path / "good").exists()
