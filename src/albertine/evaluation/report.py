"""A report on finished runs from the files in their folders: `report.md`, `report.json` and pictures.

One run, the seeds of one task, or many tasks: a group of runs for each task, all with the same metrics.
Without matplotlib there are no pictures, which the report states.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albertine.analysis.plots import legible, save_bars, save_curves, save_matrix, save_reliability
from albertine.core.files import os_errors_as_run_errors, replace_durably, write_json
from albertine.errors import RunError
from albertine.evaluation.calibration import expected_calibration_error
from albertine.evaluation.confusion import most_common_confusions
from albertine.evaluation.error_analysis import ErrorAnalysis, analyze_errors
from albertine.evaluation.metrics import metric_sign
from albertine.evaluation.runs import Run, Spread, read_run, without_seed

TABLED, LONGEST = 8, 300
"""Maximum classes of a confusion table beside the picture; maximum characters of a text."""

Groups = Mapping[str, Sequence[Run]]
"""The runs of every task by its name, at least one each."""


def write_report(folder: Path, title: str, groups: Groups, remarks: Sequence[str] = ()) -> Path:
    """Write a report into a folder; files of an earlier report are replaced.

    Args:
        remarks: paragraphs of Markdown after the table of scores.

    Returns:
        The path of `report.md`.

    Raises:
        RunError: the folder cannot be written, or predictions of a run cannot be read.
    """
    best = {name: best_run(runs) for name, runs in groups.items()}
    shown = {
        name: analyze_errors(run.predictions, run.record.get("labels", ())) for name, run in best.items()
    }
    with os_errors_as_run_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        pictures = _Pictures(folder)
        several = any(len(runs) > 1 for runs in groups.values())
        lines = [f"# {_plain(title)}", "", *_overview(groups, several), "", *_means(groups)]
        for remark in remarks:
            lines += [remark, ""]
        if len(groups) > 1:
            lines += _bars(pictures, groups)
        tree: dict[str, Any] = {}
        taken: set[str] = set()
        for name, runs in groups.items():
            prefix = f"{_free_name(name, taken)}-" if len(groups) > 1 else ""
            lines += _section(pictures, prefix, name, runs, shown[name])
            tree[name] = {**_summary(runs), "best_run": _findings_json(shown[name])}
        if pictures.absent:
            lines += [f"There are no pictures: {pictures.absent}.", ""]
        replace_durably(folder / "report.md", "\n".join(lines).encode())
        write_json(folder / "report.json", {"title": title, "tasks": tree})
    return folder / "report.md"


def read_tasks(folders: Iterable[Path]) -> dict[str, list[Run]]:
    """The finished runs in some folders, by task.

    Raises:
        RunError: a folder holds none.
    """
    return _by_task([read_run(folder) for folder in {f.resolve(): f for f in folders}.values()])


def _by_task(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by the name that their seeds share; of two with the same name and seed the second is a separate
    task, named with its folder."""
    tasks: dict[str, list[Run]] = {}
    known = set()
    for run in runs:
        name = without_seed(run.name) + (", scored again" if run.scored_again else "")
        which = (run.scored_again, run.name, run.record.get("seed"))
        tasks.setdefault(f"{name} ({run.folder})" if which in known else name, []).append(run)
        known.add(which)
    return tasks


def report_data(page: Path, tasks: Groups) -> dict[str, Any]:
    """A report as plain data: its page, and the spread of each metric for every task."""
    spread = {name: spreads(own).items() for name, own in tasks.items()}
    tables = {name: {metric: one.as_dict() for metric, one in own} for name, own in spread.items()}
    return {"report": str(page), "tasks": tables}


def spreads(runs: Sequence[Run]) -> dict[str, Spread]:
    """Every metric that all runs have on dev; the one that selects models is first."""
    scores = [run.scores for run in runs]
    names = [name for name in runs[0].metrics if all(name in own for own in scores)]
    return {name: Spread(tuple(own[name] for own in scores)) for name in names}


def best_run(runs: Sequence[Run]) -> Run:
    """The run with the best first metric on dev; the first where there is no dev set."""
    metric = runs[0].metrics[0]
    known = [run for run in runs if metric in run.scores]
    return max(known, key=lambda run: metric_sign(metric) * run.scores[metric], default=runs[0])


class _Pictures:
    """Draws pictures into a folder, until drawing fails.

    Attributes:
        absent: why there are no pictures, or "".
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.absent = folder, ""

    def add(self, name: str, alt: str, draw: Callable[[Path], object]) -> list[str]:
        """Draw a picture; the Markdown lines that show it, none where it could not be drawn."""
        if self.absent:
            return []
        try:
            draw(self.folder / f"{name}.png")
        except RunError as error:
            self.absent = f"{error.what} ({error.remedy})"
            return []
        return [f"![{alt}]({name}.png)", ""]

    def legend(self, names: Sequence[str]) -> list[str]:
        """The line that lists the names that are numbers in the picture; to be called after `add`."""
        numbers = [f"{sign} {name}" for name, sign in legible(names).items() if sign != name]
        return [f"In the picture: {_plain(', '.join(numbers))}.", ""] if numbers else []


def _overview(groups: Groups, several: bool) -> list[str]:
    spread_columns = ("median", "from", "to", "deviation", "best run") if several else ("dev",)
    rows = []
    for name, runs in groups.items():
        best, metric = best_run(runs), runs[0].metrics[0]
        found = spreads(runs).get(metric)
        if found is None:
            scores = ["no dev set", *[""] * (len(spread_columns) - 1)]
        elif several:
            scores = [*_bounds(found), best.name]
        else:
            scores = [f"{found.values[0]:.4f}"]
        test = f"{best.test[metric]:.4f}" if metric in best.test else ""
        seconds = [run.record["seconds"] for run in runs if run.record.get("seconds") is not None]
        time = f"{sum(seconds) / 60:.1f}" if seconds else ""
        rows.append([name, metric, *([str(len(runs))] if several else []), *scores, test, time])
    columns = ["task", "metric", *(["runs"] if several else []), *spread_columns, "test", "minutes"]
    filled = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return _table([columns[i] for i in filled], [[row[i] for i in filled] for row in rows])


def _means(groups: Groups) -> list[str]:
    """The means over the numbered parts of a task, such as the splits of FewCLUE, and over all tasks."""
    values = {
        name: found[runs[0].metrics[0]].median
        for name, runs in groups.items()
        if metric_sign(runs[0].metrics[0]) > 0 and runs[0].metrics[0] in (found := spreads(runs))
    }
    parts: dict[str, list[str]] = {}
    for name in values:
        if numbered := re.fullmatch(r"(.+)-\d+", name):
            parts.setdefault(numbered[1], []).append(name)
    if len(values) == len(groups) > 1:
        parts[""] = list(values)
    listed = []
    for stem, names in parts.items():
        if len(names) > 1:
            what = f"the {len(names)} parts of {_plain(stem)}" if stem else f"all {len(names)} tasks"
            listed.append(f"{what} **{statistics.mean(values[name] for name in names):.4f}**")
    return [f"Mean of the first metric (medians over the runs): {', '.join(listed)}.", ""] if listed else []


def _bars(pictures: _Pictures, groups: Groups) -> list[str]:
    values = {}
    for name, runs in groups.items():
        if found := spreads(runs):
            values[name] = next(iter(found.items()))
    if not values:
        return []

    def draw(path: Path) -> None:
        signs = legible(list(values))
        bars = {f"{signs[name]} ({metric})": spread.values for name, (metric, spread) in values.items()}
        save_bars(path, bars, title="Scores on dev", x="median, and every run")

    picture = pictures.add("scores", "scores of all tasks", draw)
    return [*picture, *pictures.legend(list(values))] if picture else []


def _section(
    pictures: _Pictures, prefix: str, name: str, runs: Sequence[Run], shown: ErrorAnalysis
) -> list[str]:
    best = best_run(runs)
    lines = [f"## {_plain(name)}", "", *_facts(best)]
    if len(runs) > 1 or len(best.metrics) > 1:
        lines += [*_scores_table(runs), ""]
    lines += _curves(pictures, prefix, runs)
    if len(runs) > 1 and shown.count:
        lines += [f"What follows is of the best run, {best.name}.", ""]
    if shown.groups:
        rows = [[part, f"{count:,}", f"{value:.4f}"] for part, (count, value) in shown.groups.items()]
        lines += ["### Parts of the data", "", *_table(["part", "examples", "accuracy"], rows), ""]
    if shown.labels:
        lines += _confusion(pictures, prefix, shown)
    if shown.bins:
        lines += _calibration(pictures, prefix, shown)
    if shown.mistakes:
        lines += _mistakes(shown)
    return lines


def _facts(run: Run) -> list[str]:
    record, lines = run.record, []
    if model := record.get("model"):
        lines.append(
            f"- model: {model['kind']}, {model['parameters']:,} parameters, "
            f"{model['num_hidden_layers']} layers of {model['hidden_size']}"
        )
    if encoder := record.get("encoder"):
        lines.append(f"- started from: {_plain(str(encoder))}")
    if pretraining := record.get("pretraining"):
        lines.append(f"- pretraining: {_plain(str(pretraining))}")
    lines += [f"- {_plain(note)}" for note in record.get("notes") or ()]
    return [*lines, ""] if lines else []


def _bounds(found: Spread) -> list[str]:
    """Median, minimum, maximum and deviation as text; one run has no deviation."""
    bounds = (found.median, min(found.values), max(found.values), found.deviation)
    return ["" if value is None else f"{value:.4f}" for value in bounds]


def _scores_table(runs: Sequence[Run]) -> list[str]:
    found, best = spreads(runs), best_run(runs)
    rows = []
    for name in runs[0].metrics:
        test = f"{best.test[name]:.4f}" if name in best.test else ""
        if (s := found.get(name)) is not None:
            rows.append([name, *_bounds(s), test])
        elif test:  # scored on a test set alone
            rows.append([name, "", "", "", "", test])
    if len(runs) == 1:
        return _table(["metric", "dev", "test"], [[row[0], row[1], row[-1]] for row in rows])
    return _table(["metric", "median", "from", "to", "deviation", "test of the best run"], rows)


def _curves(pictures: _Pictures, prefix: str, runs: Sequence[Run]) -> list[str]:
    metric, lines = runs[0].metrics[0], []
    seeds = [run.record.get("seed") for run in runs]
    distinct = len(set(seeds)) == len(runs) > 1 and None not in seeds
    names = [f"seed {seed}" for seed in seeds] if distinct else [run.name for run in runs]
    for key, evaluated, file, title in (
        (metric, True, "dev", f"{metric} on dev"),
        ("task_loss", False, "loss", "training loss"),
    ):
        found = (run.curve(key, evaluated=evaluated) for run in runs)
        curves = {name: points for name, points in zip(names, found, strict=True) if points}

        def draw(path: Path, curves: Any = curves, title: str = title, y: str = key) -> None:
            save_curves(path, curves, title=title, y=y.replace("task_", ""))

        if curves:
            lines += pictures.add(f"{prefix}{file}", title, draw)
    return lines


def _confusion(pictures: _Pictures, prefix: str, shown: ErrorAnalysis) -> list[str]:
    labels = shown.labels
    lines = ["### Confusion matrix", ""]

    def draw(path: Path) -> None:
        save_matrix(path, shown.confusion, labels, title=f"{shown.count:,} examples, {len(labels)} classes")

    if picture := pictures.add(f"{prefix}confusion", "confusion matrix", draw):
        lines += [*picture, *pictures.legend(labels)]
    if len(labels) <= TABLED:
        rows = [[name, *map(str, row)] for name, row in zip(labels, shown.confusion.tolist(), strict=True)]
        lines += [*_table(["right \\ predicted", *labels], rows), ""]
    if mixups := most_common_confusions(shown.confusion, labels):
        listed = [[m.right, m.taken_for, f"{m.times:,}", f"{m.share:.1%}"] for m in mixups]
        lines += [*_table(["right", "predicted", "times", "share of the right class"], listed), ""]
    return lines


def _calibration(pictures: _Pictures, prefix: str, shown: ErrorAnalysis) -> list[str]:
    error = expected_calibration_error(shown.bins)

    def draw(path: Path) -> None:
        save_reliability(path, shown.bins, title=f"Accuracy over confidence, ECE {error:.3f}")

    rows = [
        [f"{b.low:.1f} to {b.high:.1f}", f"{b.size:,}", f"{b.confidence:.3f}", f"{b.accuracy:.3f}"]
        for b in shown.bins
        if b.size
    ]
    return [
        "### Calibration",
        "",
        f"Expected calibration error **{error:.4f}**: the mean over all examples of |accuracy − confidence| "
        f"of their bin, Σ n_b / n · |acc_b − conf_b| over {len(shown.bins)} bins of equal width; confidence "
        "is the probability of the predicted answer.",
        "",
        *pictures.add(f"{prefix}calibration", "reliability diagram", draw),
        *_table(["confidence", "examples", "mean confidence", "accuracy"], rows),
        "",
    ]


def _mistakes(shown: ErrorAnalysis) -> list[str]:
    sure = shown.mistakes[0].confidence is not None
    order = "The wrong answers of highest confidence" if sure else "The numbers with the largest error"
    lines = ["### Worst mistakes", "", f"{order}, each with the id or number of its example.", ""]
    for number, m in enumerate(shown.mistakes, 1):
        confidence = "" if m.confidence is None else f" ({m.confidence:.1%} confidence)"
        predicted, right = _plain(m.predicted), _plain(m.right)
        lines.append(f"{number}. {_plain(m.name)}: **{predicted}**{confidence}, right is **{right}**")
        lines += [f"   - {field}: {_plain(_short(text))}" for field, text in m.inputs.items()]
    return [*lines, ""]


def _summary(runs: Sequence[Run]) -> dict[str, Any]:
    best = best_run(runs)
    return {
        "runs": [run.name for run in runs],
        "best": best.name,
        "metrics": {name: spread.as_dict() for name, spread in spreads(runs).items()},
        "test": best.test,
        "seconds": [run.record.get("seconds") for run in runs],
        **{key: best.record.get(key) for key in ("data", "model", "encoder", "pretraining", "notes")},
    }


def _findings_json(shown: ErrorAnalysis) -> dict[str, Any]:
    return {
        "examples": shown.count,
        "labels": list(shown.labels),
        # gold class, predicted class and count of every non-empty cell; with many classes most are empty
        "confusion": [[*cell, int(shown.confusion[*cell])] for cell in np.argwhere(shown.confusion).tolist()],
        "expected_calibration_error": expected_calibration_error(shown.bins) if shown.bins else None,
        "bins": [b._asdict() for b in shown.bins],
        "parts": {n: {"examples": c, "accuracy": value} for n, (c, value) in shown.groups.items()},
        "mistakes": [m.as_dict() for m in shown.mistakes],
    }


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(map(_plain, line)) + " |" for line in (columns, *rows)]
    lines.insert(1, "| --- |" + " ---: |" * (len(columns) - 1))
    return lines


def _plain(text: str) -> str:
    """A text escaped for Markdown, on one line."""
    return re.sub(r"([\\`*<>|\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split()))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def _free_name(name: str, taken: set[str]) -> str:
    """A file name from a name, numbered where it is taken."""
    own = plain = re.sub(r"[^\w-]+", "-", name)
    number = 1
    while own.casefold() in taken:
        number += 1
        own = f"{plain}-{number}"
    taken.add(own.casefold())
    return own
