"""`albertine pretrain`: one run, from a recipe and overrides to a model folder."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from albertine.cli import show
from albertine.cli.options import UNKNOWN_ARE_WORDS, BranchFrom, DryRun, Overrides, Recipe, Resume

if TYPE_CHECKING:
    from albertine.pretraining.run import PretrainResult
    from albertine.pretraining.settings import PretrainingSettings

HOW = {"context_settings": UNKNOWN_ARE_WORDS}
Processes = Annotated[
    int,
    typer.Option(
        min=1,
        help="How many processes of this machine share the run; on a processor one for every core, with "
        "a thread each, is fastest for a small model.",
    ),
]


def pretrain(
    overrides: Overrides = None,
    config: Recipe = None,
    resume: Resume = "auto",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse a damaged newest checkpoint instead of using the one before."),
    ] = False,
    branch_from: BranchFrom = None,
    processes: Processes = 1,
    dry_run: DryRun = False,
) -> None:
    """Pretrain an encoder. The same command goes on with a run that was interrupted.

    On a corpus that `albertine prepare` made: albertine pretrain name=mine corpus=corpora/mine
    model.preset=albertine-mini training.minutes=5. With --dry-run behind it, all its settings are printed.
    """
    from albertine.core.settings import load
    from albertine.pretraining.settings import PretrainingSettings

    settings = load(PretrainingSettings, config, overrides or [])
    words = ["pretrain", *(overrides or []), *([f"--config={config}"] if config else [])]
    words += ["--strict"] if strict else []
    words += [f"--branch-from={branch_from}"] if branch_from else []
    run(settings, words, resume, processes, dry_run=dry_run, strict=strict, branch_from=branch_from)


def run(
    settings: PretrainingSettings,
    words: list[str],
    resume: str,
    processes: int,
    *,
    dry_run: bool = False,
    strict: bool = False,
    branch_from: Path | None = None,
) -> NoReturn:
    """Make a run, or print its settings, and leave with its exit code.

    Args:
        words: of the command without --resume and --processes, for the other processes.
    """
    from albertine.core.settings import commented_yaml
    from albertine.training.distributed import check_cards, is_main
    from albertine.training.launch import started, threads_each, together

    if dry_run:
        config = None
        if settings.model.preset is not None:
            from albertine.pretraining.run import check_new_encoder

            config = check_new_encoder(settings)
        typer.echo(commented_yaml(settings), nl=False)
        from albertine.pretraining.stages import stage_summaries, untrained

        if settings.stages:
            typer.echo("# stages as they resolve:")
            for line in stage_summaries(settings):
                typer.echo(f"#   {line}")
        for line in untrained(settings, config):
            typer.echo(f"warning: {line}", err=True)
        raise typer.Exit
    import torch

    from albertine.pretraining.run import pretrain as begin

    if processes > 1 and settings.training.threads is None:
        torch.set_num_threads(threads_each(processes))
    words = [*words, f"--resume={resume}", f"--processes={processes}"]
    first = processes > 1 and not started()
    if first:
        check_cards(processes)
    with together(processes, words) if first else nullcontext():
        result = begin(settings, resume=resume, strict=strict, branch_from=branch_from)
    if is_main():
        _tell(result, settings.corpus, resume)
    raise typer.Exit(result.outcome.exit_code)


def _tell(result: PretrainResult, corpus: Path, resume: str) -> None:
    from albertine.training.alarms import ONSET
    from albertine.training.resuming import onset_of_run

    outcome, folder = result.outcome, result.folder
    if not outcome.done:
        show.stopped(resume, f" at step {outcome.step:,}")
        return
    minute = onset_of_run(folder)
    read = {} if minute is None else {"reads": f"context gain over {ONSET:g} nats by minute {minute:.1f}"}
    show.facts(
        f"Done after {outcome.step:,} steps and {outcome.tokens:,} tokens",
        {
            "model": folder / "final",
            "numbers": folder / "metrics.jsonl",
            "curves": folder / "plots",
            "held out": ", ".join(f"{name} {value:.3f}" for name, value in outcome.scores.items()),
            "without skill": ", ".join(f"{name} {value:.3f}" for name, value in result.no_skill.items()),
            **read,
        },
    )
    typer.echo(f"Next: {join(['albertine', 'score', str(folder / 'final'), str(corpus)])}")
