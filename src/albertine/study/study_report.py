"""The report of a study, as Markdown and as one HTML file, and the page of all verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albertine.analysis.html_report import Section, Table, write_page
from albertine.analysis.plots import svg_of
from albertine.core.files import make_folder, os_errors_as_run_errors, read_json, replace_durably, to_json
from albertine.errors import DataError
from albertine.study import DEFAULT_SCALE
from albertine.study.figures import figures_of
from albertine.study.metrics import metric
from albertine.study.results import (
    MOST_BYTES,
    Compared,
    columns_of,
    compared,
    is_results,
    seeds_of,
    values_of,
)
from albertine.study.verdicts import RULE, interval

PICTURES, INDEX = "pictures", "index.md"
NONE = "–"


def write_study_report(results: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Write the report of a study, with its figures and the file of its results, and the page of all verdicts
    in the folder.

    Args:
        folder: of all reports; this one is NAME.md, NAME.html, NAME.json and pictures/NAME-*.svg.

    Returns:
        What `albertine study report --json` prints.

    Raises:
        DataError: there are no results yet, or they are larger than 1 MB. RunError: matplotlib is not
        installed.
    """
    name = _file_name(results)
    if not seeds_of(results):
        raise DataError(
            "has no results yet", where=f"study {results['study']}", remedy="albertine study run it first"
        )
    text = to_json(results, indent=1) + "\n"
    if len(text.encode()) > MOST_BYTES:
        text = to_json(results, separators=(",", ":")) + "\n"
    if len(text.encode()) > MOST_BYTES:
        raise DataError(
            f"has results of {len(text):,} bytes, more than 1 MB", where=name, remedy="Name fewer cells"
        )
    verdicts, figures = compared(results), figures_of(results)
    with os_errors_as_run_errors(folder):
        make_folder(folder / PICTURES)
        drawn = {}
        for figure, (_, draw) in figures.items():
            drawn[figure] = svg_of(draw)
            replace_durably(folder / PICTURES / f"{name}-{figure}.svg", drawn[figure].encode())
        replace_durably(folder / f"{name}.json", text.encode())
        captions = {figure: caption for figure, (caption, _) in figures.items()}
        replace_durably(folder / f"{name}.md", _markdown(results, verdicts, captions).encode())
        write_page(folder / f"{name}.html", results["title"], _sections(results, verdicts, captions, drawn))
        write_index(folder)
    return {
        "study": results["study"],
        "scale": results["scale"],
        "report": str(folder / f"{name}.md"),
        "page": str(folder / f"{name}.html"),
        "results": str(folder / f"{name}.json"),
        "verdicts": [one.as_dict() for one in verdicts],
        "missing": results["missing"],
    }


def write_index(folder: Path) -> Path:
    """Write the page that lists the verdicts of all studies whose results are in a folder."""
    known = [tree for path in sorted(folder.glob("*.json")) if is_results(tree := read_json(path))]
    lines = [
        "# Studies: what the papers report, and what was found here",
        "",
        RULE,
        "",
        "| study | scale | conclusion | difference | verdict |",
        "| --- | --- | --- | --- | --- |",
    ]
    counts = Counter[str]()
    for results in known:
        for one in compared(results):
            counts[one.verdict] += 1
            link = f"[{results['study']}]({_file_name(results)}.md)"
            cells = (
                link,
                results["scale"],
                one.claim,
                difference_in_words(one.as_dict()),
                f"**{one.verdict}**",
            )
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
    lines[2:2] = [f"{_counted(counts)}", ""]
    path = folder / INDEX
    replace_durably(path, ("\n".join(lines) + "\n").encode())
    return path


def _file_name(results: Mapping[str, Any]) -> str:
    scale = "" if results["scale"] == DEFAULT_SCALE else f"-{results['scale']}"
    return f"{results['study']}{scale}"


def _markdown(results: Mapping[str, Any], verdicts: Sequence[Compared], captions: Mapping[str, str]) -> str:
    lines = [f"# {results['title']}", ""]
    for section in _sections(results, verdicts, captions, {}):
        lines += [f"## {section.heading}", ""]
        for paragraph in section.text:
            lines += [paragraph, ""]
        if section.pre:
            lines += ["```sh", section.pre, "```", ""]
        if section.table is not None:
            columns = list(map(str, section.table.columns))
            lines.append(f"| {' | '.join(map(_cell, columns))} |")
            lines.append("| --- |" + "".join(map(_rule, list(zip(*section.table.rows, strict=True))[1:])))
            lines += [f"| {' | '.join(_cell(str(value)) for value in row)} |" for row in section.table.rows]
            lines.append("")
        if section.heading == FIGURES:
            for figure, caption in captions.items():
                picture = f"{PICTURES}/{_file_name(results)}-{figure}.svg"
                lines += [f"{_sentence(caption)}.", "", f"![{caption}]({picture})", ""]
    return "\n".join(lines).rstrip() + "\n"


FIGURES = "Figures"


def _sections(
    results: Mapping[str, Any],
    verdicts: Sequence[Compared],
    captions: Mapping[str, str],
    drawn: Mapping[str, str],
) -> list[Section]:
    """The parts of a report, the same for Markdown and HTML.

    Args:
        captions: of all figures. drawn: the figures as SVG.
    """
    source = results["source"]
    found = [Section("Conclusions", _verdict_words(verdicts), _verdict_table(verdicts))]
    found.append(Section("What was found here", _scale_words(results), _score_table(results)))
    if drawn:
        found += [
            Section(_sentence(captions[one]), figures=[svg], alt=captions[one]) for one, svg in drawn.items()
        ]
    elif captions:
        found.append(Section(FIGURES))
    text = [f"{source['paper']}, {source['table']}.", *([source["note"]] if source["note"] else [])]
    rows = [[NONE if value is None else value for value in row] for row in source["rows"]]
    found.append(Section("What the source reports", text, Table(source["columns"], rows) if rows else None))
    if results["missing"]:
        missing = [
            (one["cell"], one["seed"], one["state"], one["reason"] or "") for one in results["missing"]
        ]
        table = Table(("cell", "seed", "state", "reason"), missing)
        words = ["Conclusions that need them have fewer seeds, or none."]
        found.append(Section("Cells without results", words, table))
    if results["notes"]:
        found.append(Section("Remarks", results["notes"]))
    found.append(Section("How it was made", _how(results), pre=results["command"]))
    found.append(Section("The rule", [RULE]))
    return found


def _verdict_words(verdicts: Sequence[Compared]) -> list[str]:
    if not verdicts:
        return ["The study names no conclusion."]
    return [f"{_counted(Counter(one.verdict for one in verdicts))} The rule is below."]


def _counted(verdicts: Mapping[str, int]) -> str:
    held, failed, undecided = (verdicts.get(kind, 0) for kind in ("holds", "does not hold", "not decided"))
    count = held + failed + undecided
    return (
        f"Of {count} conclusions {held} hold, {failed} do not, and {undecided} are not decided at this scale."
    )


def _verdict_table(verdicts: Sequence[Compared]) -> Table | None:
    if not verdicts:
        return None
    rows = [
        (
            one.claim,
            metric(one.metric).label,
            one.comparison,
            _expected(one),
            difference_in_words(one.as_dict()),
            one.verdict,
        )
        for one in verdicts
    ]
    return Table(("conclusion of the source", "score", "comparison", "expected", "found", "verdict"), rows)


def _expected(one: Compared) -> str:
    if not one.expected.startswith("="):
        return one.expected
    margin = float(one.expected.rpartition(" ")[2])
    return f"0 ± {metric(one.metric).number(margin)}"


def difference_in_words(one: Mapping[str, Any]) -> str:
    """The difference of a conclusion in the unit of its score, with its interval and the number of seeds.

    Args:
        one: as `Compared.as_dict`.
    """
    found, kind = one["difference"], metric(one["metric"])
    if found is None:
        return "no results"
    seeds = f"{found['seeds']} seed" + "s" * (found["seeds"] > 1)
    if found["low"] is None:
        return f"{kind.signed(found['mean'])} ({seeds})"
    return (
        f"{kind.signed(found['mean'])} ({kind.signed(found['low'])} to {kind.signed(found['high'])}, {seeds})"
    )


def _scale_words(results: Mapping[str, Any]) -> list[str]:
    budget, words = results["budget"], []
    if budget:
        length = f"{budget['steps']:,} updates" if budget["steps"] else f"{budget['minutes']:g} minutes"
        words.append(f"Every cell is trained for {length}, where it does not name another length.")
    words += [
        f"Text: {', '.join(one['text'])} ({one['tokens']:,} tokens, {one['documents']:,} documents, "
        f"vocabulary of {one['vocabulary']:,})."
        for one in results["corpora"]
        if "tokens" in one
    ]
    scale = " ".join([f"Scale {results['scale']}.", *words])
    return [scale, "Values are means over seeds, ± half of the 95 % interval; without ± there is one seed."]


def _score_table(results: Mapping[str, Any]) -> Table:
    names = columns_of(results)
    rows = []
    for cell in results["cells"]:
        row = [cell["name"], len(cell["seeds"])]
        for name in names:
            values = values_of(results, cell, name)
            row.append(_value(values, name) if values else NONE)
        rows.append(row)
    return Table(("cell", "seeds", *(metric(name).label for name in names)), rows)


def _value(values: Sequence[float], name: str) -> str:
    found, kind = interval(values), metric(name)
    if found.high is None or found.high == found.mean:
        return kind.number(found.mean)
    return f"{kind.number(found.mean)} ± {kind.number(found.high - found.mean)}"


def _how(results: Mapping[str, Any]) -> list[str]:
    machines = []
    for one in results["machines"]:
        versions = ", ".join(f"{name} {version}" for name, version in one["versions"].items() if version)
        gpu = f", {one['gpu']}" if one["gpu"] else ""
        threads = f"{one['threads']} thread{'s' * (one['threads'] > 1)} a cell"
        machines.append(
            f"{one['cpu']}, {one['cores']} cores{gpu}, {threads}; Python {one['python']}, {versions}"
        )
    first, last = (str(results[key] or "")[:10] for key in ("first", "last"))
    date = first if first == last else f"{first} to {last}"
    hours = (
        f"{results['hours']:g} hours of computing in all"
        if results["hours"] >= 0.1
        else "minutes of computing"
    )
    return [f"{date}; {hours}.", *(f"{machine}." for machine in dict.fromkeys(machines))]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _rule(column: Sequence[object]) -> str:
    """The line below the head of a column of Markdown: numbers to the right."""
    numbers = all(str(value)[:1] in "0123456789−–+-" for value in column)
    return " ---: |" if numbers else " --- |"


def _cell(text: str) -> str:
    """A text as a cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").split())
