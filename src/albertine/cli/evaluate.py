"""`albertine evaluate`: tuned runs scored again on their files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any

import typer

from albertine.cli import show
from albertine.cli.inputs import runs_and_settings, splits
from albertine.cli.options import Dev, DeviceOption, Json, OwnFile, RunPrecision, Runs, Test, Verb
from albertine.core.files import is_run_checkpoint

if TYPE_CHECKING:
    from albertine.tasks.rescore import TunedRun

MOVED = {
    "--suite": "suite",
    "--report": "report",
    **dict.fromkeys(("--ensemble", "--pick", "--rule"), "ensemble"),
    **dict.fromkeys(
        ("--texts", "--max-length", "--sequences", "--pairs", "--no-pairs", "--sentence-task"), "score"
    ),
}
"""Options that `evaluate` once had, and the verbs that they have become or belong to now."""


class Evaluate(Verb):
    """The command, which tells whoever asks in the old way for what other verbs do now."""

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        if now := moved(arguments):
            from albertine.errors import SettingsError

            raise SettingsError(f"`evaluate` scores tuned runs alone; write: {join(['albertine', *now])}")
        return super().parse_args(context, arguments)


def moved(arguments: list[str]) -> list[str]:
    """What the arguments of an older `evaluate` are now, beginning with the verb; empty where they stand."""
    words = [part for word in arguments for part in (word.split("=", 1) if word[:2] == "--" else [word])]
    folders = [Path(word) for word in words if os.path.isfile(os.path.join(word, "manifest.json"))]
    corpus = not all(map(is_run_checkpoint, folders))
    verb = next((verb for name, verb in MOVED.items() if name in words), "score" if corpus else "")
    if verb == "suite":
        at = words.index("--suite")
        words = [*(words[at + 1 : at + 2] or ["NAME"]), *words[:at], *words[at + 2 :]]
    words = ["--output" if word == "--report" else word for word in words if word != "--ensemble"]
    return [verb, *words] if verb else []


HOW = {"cls": Evaluate}


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
    json: Json = False,
) -> None:
    """Score tuned runs again, on their own files or on another.

    `albertine ensemble` takes several as one model, and `albertine score` a pretrained model."""
    chosen = splits(dev, test, file)
    paths, found = runs_and_settings(runs, file, device, precision)
    from albertine.core.files import writable_folder
    from albertine.evaluation.report import write_report
    from albertine.evaluation.runs import read_run
    from albertine.tasks.rescore import judge, write_judged

    told, rows, folders = [], [], _folders(paths, found, output)
    for folder, run in zip(folders, found, strict=True):
        model, source = str(run.model_folder), run.settings.task.source
        with writable_folder(folder):  # that of a run may be somebody else's
            judged = judge(run, chosen, device)
        notes = run.notes([one.split for one in judged])
        write_judged(folder, run.name, run.family, judged, data=source, model_folder=model, notes=notes)
        write_report(folder, f"{run.name}, scored again", {run.name: [read_run(folder)]})
        for one in judged:
            count, scores = len(one.data.examples), dict(one.scores)
            words = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
            rows.append((run.name, one.split, show.count(count), words or "no labels"))
            predictions = str(folder / f"predictions-{one.split}.jsonl")
            about = {"run": run.name, "model": model, "split": one.split, "examples": count}
            own = run.notes([one.split])
            told.append({**about, "scores": scores, "predictions": predictions, "notes": own})
        show.notes([f"{run.name}, {note}" for note in notes])
    if json:
        show.as_json(told)
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
