"""A report as one self-contained HTML file: sections of text, tables and inline SVG.

The file has its style inside, loads nothing, and needs no script. It follows the reader's choice of a dark or
light page. Letters of any language are drawn with the fonts of the reader's system.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from albertine.analysis.plots import COLOURS, GRID, INK, PAPER, check_writable
from albertine.core.files import os_errors_as_run_errors, replace_durably
from albertine.errors import SettingsError

DARK = ("#a1cdff", "#ff973e", "#12ab9d", "#ffd9de", "#8276cc")
"""The colours of `plots.COLOURS` on a dark page, in their order."""


@dataclass(frozen=True)
class Table:
    """A table; the first column has the names of the rows.

    Attributes:
        rows: their values are shown as `str` has them.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        text: paragraphs. figures: SVG files as text, such as those of `plots.svg_of`; alt: what they show.
        pre: text with its line breaks and spaces, such as a command.
    """

    heading: str
    text: Sequence[str] = ()
    table: Table | None = None
    figures: Sequence[str] = ()
    alt: str = ""
    pre: str = ""


def check_page(path: Path) -> None:
    """Check the output of a report before its data is computed.

    Raises:
        SettingsError: it is not the name of an HTML file, or cannot be written there.
    """
    if path.suffix.lower() not in (".html", ".htm") or path.is_dir():
        raise SettingsError(
            "is not the name of an HTML file", where=path, remedy="End it in .html, such as report.html"
        )
    check_writable(path)


def write_page(
    path: Path, title: str, sections: Sequence[Section], *, text: Sequence[str] = (), language: str = "en"
) -> Path:
    """Write a report.

    Args:
        path: the file; its folder is created, an earlier file is replaced.
        text: paragraphs below the title. language: of the page, for its reader's fonts and voice.

    Raises:
        RunError: the file cannot be written.
    """
    with os_errors_as_run_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(path, page(title, sections, text=text, language=language).encode())
    return path


def page(title: str, sections: Sequence[Section], *, text: Sequence[str] = (), language: str = "en") -> str:
    """The HTML of a report; arguments of `write_page`."""
    body = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(one)}</p>" for one in text)]
    figures = 0
    for section in sections:
        body.append(f"<section>\n<h2>{escape(section.heading)}</h2>")
        body += [f"<p>{escape(one)}</p>" for one in section.text]
        if section.pre:
            body.append(f"<pre>{escape(section.pre)}</pre>")
        for svg in section.figures:
            figures += 1
            label = escape(section.alt or section.heading)
            body.append(f'<figure role="img" aria-label="{label}">{inline(svg, f"f{figures}-")}</figure>')
        if section.table is not None:
            body.append(_table(section.table))
        body.append("</section>")
    return _PAGE.format(language=escape(language), title=escape(title), style=_style(), body="\n".join(body))


def inline(svg: str, prefix: str) -> str:
    """An SVG file as part of an HTML page, as wide as its column, in the colours of the page.

    Args:
        prefix: of its ids, which differ from those of other figures on the page.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)  # HTML knows the names of SVG
    head, rest = svg.split(">", 1)
    svg = re.sub(r' (width|height)="[^"]*"', "", head) + ">" + rest
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(href=["\']#|url\(#)', rf"\g<1>{prefix}", svg)
    names = {INK: "ink", PAPER: "paper", GRID: "grid"} | {c: f"c{i}" for i, c in enumerate(COLOURS)}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg.strip()


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in table.columns)
    rows = []
    for first, *others in table.rows:
        cells = "".join(f"<td>{escape(str(value))}</td>" for value in others)
        rows.append(f'<tr><th scope="row">{escape(str(first))}</th>{cells}</tr>')
    # A table that is wider than the page scrolls by itself; with tabindex also by the keyboard.
    return (
        '<div class="wide" tabindex="0"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody></table></div>"
    )


def _style() -> str:
    light = "".join(f"--c{i}:{colour};" for i, colour in enumerate(COLOURS))
    dark = "".join(f"--c{i}:{colour};" for i, colour in enumerate(DARK))
    return (
        f":root{{color-scheme:light dark;--ink:{INK};--paper:{PAPER};--grid:{GRID};--soft:#59626e;{light}}}\n"
        "@media (prefers-color-scheme:dark){"
        f":root{{--ink:#e6e9ee;--paper:#15181d;--grid:#3a414b;--soft:#a3acb8;{dark}}}}}\n{_CSS}"
    )


_CSS = """\
body{background:var(--paper);color:var(--ink);max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem;
font:1rem/1.55 system-ui,"Noto Sans","Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif}
h1{font-size:1.6rem;line-height:1.25}h2{font-size:1.2rem;margin:2.2rem 0 .5rem}
h1,h2,p{overflow-wrap:anywhere}th{overflow-wrap:break-word}p{max-width:46rem}
figure{margin:1rem 0;overflow-x:auto}figure svg{display:block;width:100%;min-width:32rem;height:auto}
.wide{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--grid);font-weight:400}
th:first-child{text-align:left;padding-left:0}thead th{color:var(--soft);vertical-align:bottom}
pre{overflow-x:auto;padding:.6rem .8rem;border:1px solid var(--grid);border-radius:4px}
@media print{.wide{overflow:visible}}
"""
_PAGE = """\
<!DOCTYPE html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
