"""`albertine finetune`: one run of a task, from a pretrained folder to a tuned one with its scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.options import UNKNOWN_ARE_WORDS, DryRun, Overrides, Recipe, Resume

if TYPE_CHECKING:
    from albertine.tasks.finetune import FinetuneResult
    from albertine.tasks.settings import FinetuneSettings
    from albertine.tasks.suite_run import SuiteResult


HOW = {"context_settings": UNKNOWN_ARE_WORDS}


def finetune(
    overrides: Overrides = None,
    config: Recipe = None,
    suite: Annotated[
        Path | None,
        typer.Option("--suite", help="Many tasks: a YAML file, or one in the package, as `glue`."),
    ] = None,
    resume: Resume = "auto",
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Number of seeds; reported are median, spread and the best.")
    ] = 1,
    dry_run: DryRun = False,
) -> None:
    """Fine-tune an encoder for a task, or for many. The same command goes on with an interrupted run.

    A task of your own: albertine finetune name=reviews encoder.folder=albertine-mini-en task.train=train.csv
    task.dev=dev.csv task.text=review task.label=verdict. With --dry-run behind it, all its settings are
    printed.
    """
    if suite is not None:
        if config is not None or resume not in ("auto", "never"):
            wrong = "--config" if config is not None else "--resume"
            raise typer.BadParameter("does not go with --suite", param_hint=wrong)
        _suite(suite, overrides or [], seeds, resume, dry_run)
        return
    from albertine.core.settings import commented_yaml, load
    from albertine.tasks.settings import FinetuneSettings

    settings = load(FinetuneSettings, config, overrides or [])
    if dry_run:
        typer.echo(commented_yaml(settings), nl=False)
        return
    from albertine.tasks.advice import advice

    for line in advice(settings, seeds):
        typer.echo(f"warning: {line}", err=True)
    if seeds > 1:
        _several(settings, seeds, resume)
        return
    from albertine.tasks.finetune import finetune as run
    from albertine.training.distributed import is_main

    result = run(settings, resume=resume)
    if is_main():
        _tell(result, resume)
    raise typer.Exit(result.outcome.exit_code)


def _several(settings: FinetuneSettings, count: int, resume: str) -> None:
    from albertine.tasks.seeds import over_seeds
    from albertine.training.distributed import is_main

    found = over_seeds(settings, count, resume=resume)
    if not is_main():
        raise typer.Exit(found.results[-1].outcome.exit_code)
    if not found.done:
        show.stopped(resume)
        raise typer.Exit(found.results[-1].outcome.exit_code)
    show.facts(
        f"{count} seeds",
        {
            **{
                name: f"median {s.median:.4f}, from {min(s.values):.4f} to {max(s.values):.4f}, "
                f"deviation {s.deviation:.4f}"
                for name, s in found.metrics.items()
            },
            "best run": found.best,
            "scores": found.summary,
            **({"report": found.report} if found.report.is_dir() else {}),
        },
    )


def _suite(path: Path, overrides: list[str], seeds: int, resume: str, dry_run: bool) -> None:
    from albertine.core.settings import commented_yaml
    from albertine.tasks.advice import advice
    from albertine.tasks.suite import read_suite
    from albertine.tasks.suite_run import run_suite
    from albertine.training.distributed import is_main

    suite = read_suite(path, overrides)
    if dry_run:
        for task in suite.tasks:
            chain = f", starts from {task.start_from}" if task.start_from else ""
            typer.echo(f"--- # {task.name}{chain}" + (f", left out: {task.missing}" if task.missing else ""))
            typer.echo(commented_yaml(task.settings), nl=False)
        return
    for task in suite.tasks:
        for line in [] if task.missing else advice(task.settings, seeds):
            typer.echo(f"warning: {task.name}: {line}", err=True)

    def echo(text: str) -> None:
        if is_main():
            typer.echo(text, err=True)

    result = run_suite(suite, seeds=seeds, resume=resume, log=echo)
    if result.stopped:
        show.stopped(resume)
        raise typer.Exit(result.exit_code)
    if is_main():
        _tell_suite(suite.name, result)
    raise typer.Exit(result.exit_code)


def _tell_suite(name: str, result: SuiteResult) -> None:
    from albertine.evaluation.report import best_run, spreads

    rows = []
    for task, runs in result.runs.items():
        metric, best = runs[0].metrics[0], best_run(runs)
        spread = spreads(runs).get(metric)
        numbers = (spread.median, min(spread.values), max(spread.values)) if spread else ()
        shown = [f"{value:.4f}" for value in numbers] or ["no dev set", "", ""]
        test = f"{best.test[metric]:.4f}" if metric in best.test else ""
        rows.append((task, metric, len(runs), *shown, test))
    rows += [(task, "failed" if task in result.failed else "left out", *[""] * 5) for task in result.left_out]
    show.table(("task", "metric", "runs", "median", "from", "to", "test of the best"), rows, title=name)
    typer.echo(f"report: {result.report}")


def _tell(result: FinetuneResult, resume: str) -> None:
    from albertine.interop.heads import known_to_transformers
    from albertine.interop.huggingface.folders import folder_config

    outcome, folder = result.outcome, result.folder
    if not outcome.done:
        show.stopped(resume, f" at step {outcome.step:,}")
        return
    scores = {name: value for name, value in result.scores.items() if name != "step"}
    best = f" at step {result.scores['step']:.0f}" if "step" in result.scores else ""
    show.facts(
        f"Done after {outcome.step:,} steps",
        {
            **{_noted(note): note.partition(": ")[2] for note in result.notes},
            f"best on dev{best}": ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
            or "not measured, there is no dev file: task.dev=FILE names one, "
            "task.dev_share=0.1 takes a tenth of the training rows",
            **(
                {"test": ", ".join(f"{name} {value:.4f}" for name, value in result.test.items())}
                if result.test
                else {}
            ),
            "model": result.model,
            "transformers": known_to_transformers(folder_config(result.model)),
            "predictions": folder / "predictions-dev.jsonl" if scores else "none",
            **({"report": folder / "report"} if (folder / "report").is_dir() else {}),
        },
    )


def _noted(note: str) -> str:
    name = note.partition(": ")[0]
    return f"data, {name}" if name in ("train", "dev", "test") else name
