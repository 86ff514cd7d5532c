"""Runs scored again, alone or as an ensemble, and reports on them: what `evaluate` does with runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from albertine.cli import show
from albertine.evaluation.ensembles import Rule
from albertine.evaluation.report import best_run, spreads, write_report
from albertine.evaluation.runs import Run, read_run
from albertine.precision import InferencePrecision
from albertine.tasks import ensemble as ensembles
from albertine.tasks.data import once
from albertine.tasks.judge import Split, TunedRun, judge, open_run, write_judged


def opened(
    paths: Sequence[Path],
    assignments: Sequence[str],
    file: Path | None,
    precision: InferencePrecision | None = None,
) -> list[TunedRun]:
    """The runs of some folders; data that they share is read once."""
    read = once()
    return [open_run(path, assignments, file=file, precision=precision, read=read) for path in paths]


def runs(
    found: Sequence[TunedRun],
    paths: Sequence[Path],
    splits: Sequence[Split],
    device: str,
    output: Path | None,
    json: bool,
) -> None:
    """Score every run again; its predictions go into `evaluation/` in its folder."""
    told, rows = [], []
    for run, path in zip(found, paths, strict=True):
        judged = judge(run, splits, device)
        folder = (path / "evaluation") if output is None else output if len(paths) == 1 else output / run.name
        settings = run.settings
        data = settings.task.source
        write_judged(folder, run.name, run.family, judged, data=data, model_folder=str(run.model_folder))
        write_report(folder, f"{run.name}, scored again", {run.name: [read_run(folder)]})
        for one in judged:
            count = len(one.data.examples)
            rows.append((run.name, one.split, show.count(count), _numbers(one.scores) or "no labels"))
            told.append(
                {
                    "run": run.name,
                    "model": str(run.model_folder),
                    "split": one.split,
                    "examples": count,
                    "scores": dict(one.scores),
                    "predictions": str(folder / f"predictions-{one.split}.jsonl"),
                }
            )
    if json:
        show.as_json(told)
        return
    show.table(("run", "split", "examples", "scores"), rows)
    for line in dict.fromkeys(str(Path(str(one["predictions"])).parent) for one in told):
        typer.echo(f"predictions and report: {line}")


def ensemble(
    found: Sequence[TunedRun],
    pick: int | None,
    rule: Rule,
    splits: Sequence[Split],
    device: str,
    output: Path | None,
    json: bool,
) -> None:
    """Score runs together."""
    whole = ensembles.ensemble(found, pick=pick, rule=rule, splits=splits, device=device)
    folder = output or found[0].settings.output / f"{_stem(found[0].name)}-ensemble"
    page = ensembles.write_ensemble(folder, whole)
    if json:
        show.as_json(
            {
                "rule": whole.rule,
                "members": [whole.candidates[i].run.name for i in whole.members],
                "candidates": [{"run": m.run.name, **m.scores} for m in whole.candidates],
                "scores": whole.scores,
                "warning": ensembles.warning(whole) or None,
                "report": str(page),
            }
        )
        return
    metric = whole.family.metrics[0]
    names = [one.split for one in whole.found]
    show.table((f"{metric}, members: {whole.rule}", "taken", *names), ensembles.rows(whole))
    if text := ensembles.warning(whole):
        typer.echo(f"warning: {text}", err=True)
    typer.echo(f"predictions and report: {folder}")


def report(paths: Sequence[Path], folder: Path, json: bool) -> None:
    """Write a report on runs as they stand; those that differ in their seed alone are one task."""
    groups: dict[str, list[Run]] = {}
    for path in paths:
        run = read_run(path)
        groups.setdefault(_stem(run.name), []).append(run)
    page = write_report(folder, ", ".join(groups), groups)
    if json:
        show.as_json(
            {
                "report": str(page),
                "tasks": {
                    name: {metric: spread.told() for metric, spread in spreads(own).items()}
                    for name, own in groups.items()
                },
            }
        )
        return
    rows = []
    for name, own in groups.items():
        metric = own[0].metrics[0]
        spread = spreads(own).get(metric)
        rows.append((name, metric, len(own), f"{spread.median:.4f}" if spread else "", best_run(own).name))
    show.table(("task", "metric", "runs", "median", "best run"), rows)
    typer.echo(f"report: {page}")


def _stem(name: str) -> str:
    """The name of a run without its seed."""
    return re.sub(r"-seed-\d+$", "", name)


def _numbers(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
