"""`albertine evaluate`: tuned runs scored again on their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from albertine.cli import show
from albertine.cli.inputs import runs_and_settings, splits
from albertine.cli.options import Dev, DeviceOption, Json, LayersOption, OwnFile, RunPrecision, Runs, Test

if TYPE_CHECKING:
    from albertine.tasks.rescore import TunedRun


def evaluate(
    runs: Runs,
    dev: Dev = False,
    test: Test = False,
    file: OwnFile = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for predictions and report; default: evaluation/ in that of a run."
        ),
    ] = None,
    device: DeviceOption = "cpu",
    precision: RunPrecision = None,
    layers: LayersOption = None,
    json: Json = False,
) -> None:
    """Score tuned runs again, on their own files or on another.

    `albertine ensemble` scores several runs as one model, `albertine score` a pretrained model."""
    chosen = splits(dev, test, file)
    paths, found = runs_and_settings(runs, file, device, precision, layers=layers)
    from albertine.core.files import writable_folder
    from albertine.evaluation.report import write_report
    from albertine.evaluation.runs import read_run
    from albertine.tasks.rescore import evaluate_run, write_results

    results, rows, folders = [], [], _folders(paths, found, output)
    for folder, run in zip(folders, found, strict=True):
        model, source = str(run.model_folder), run.settings.task.source
        with writable_folder(folder):  # a run's folder may belong to another user
            scored = evaluate_run(run, chosen, device)
        notes = run.notes([one.split for one in scored])
        facts: dict[str, Any] = {"data": source, "model_folder": model, "notes": notes}
        facts |= {} if layers is None else {"layers": layers}
        write_results(folder, run.name, run.family, scored, **facts)
        write_report(folder, f"{run.name}, scored again", {run.name: [read_run(folder)]})
        for one in scored:
            count, scores = len(one.data.examples), dict(one.scores)
            words = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
            rows.append((run.name, one.split, show.count(count), words or "no labels"))
            predictions = str(folder / f"predictions-{one.split}.jsonl")
            about = {"run": run.name, "model": model, "split": one.split, "examples": count}
            own = run.notes([one.split])
            results.append({**about, "scores": scores, "predictions": predictions, "notes": own})
        show.notes([f"{run.name}, {note}" for note in notes])
    if json:
        show.as_json(results)
        return
    show.table(("run", "split", "examples", "scores"), rows)
    for folder in folders:
        typer.echo(f"predictions and report: {folder}")


def _folders(paths: Sequence[Path], runs: Sequence[TunedRun], output: Path | None) -> list[Path]:
    """Where the predictions and the report of each run go.

    Raises:
        SettingsError: two would go to one folder, or one to that of a run.
    """
    from albertine.errors import SettingsError
    from albertine.tasks.rescore import check_no_run

    if output is None:
        folders = [run.folder / "evaluation" for run in runs]
    else:
        folders = [output] if len(runs) == 1 else [output / run.name for run in runs]
    for number, folder in enumerate(folders):
        check_no_run(folder)
        if folder in folders[:number]:
            raise SettingsError(
                f"{paths[folders.index(folder)]} and {paths[number]} would both be written to this folder",
                where=folder,
                remedy="Evaluate them one by one, each with a folder of its own: --output FOLDER",
            )
    return folders
