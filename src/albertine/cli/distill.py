"""`albertine distill`: a smaller model that learns from a larger one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from albertine.cli.options import UNKNOWN_ARE_WORDS, BranchFrom, DryRun, Overrides, Recipe, Resume
from albertine.cli.pretrain import Processes, run

HOW = {"context_settings": UNKNOWN_ARE_WORDS}


def distill(
    teacher: Annotated[
        Path,
        typer.Argument(
            metavar="TEACHER",
            help="Whom to learn from: a model of any layout that is read, a run folder, a released model, or "
            "OWNER/NAME of the hub.",
        ),
    ],
    corpus: Annotated[
        Path,
        typer.Argument(metavar="CORPUS", help="What to learn on, prepared with the teacher's tokenizer."),
    ],
    overrides: Overrides = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the run; default: runs/TEACHER-student."),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth",
            min=1,
            help="Depths of the student; default: half as many, or all with --hidden-size or --sharing.",
        ),
    ] = None,
    hidden_size: Annotated[
        int | None, typer.Option("--hidden-size", min=1, help="Its width; default: the teacher's.")
    ] = None,
    sharing: Annotated[
        Literal["all", "attention", "ffn", "none"] | None,
        typer.Option("--sharing", help="What its depths share; default: what those of the teacher do."),
    ] = None,
    config: Recipe = None,
    resume: Resume = "auto",
    branch_from: BranchFrom = None,
    processes: Processes = 1,
    dry_run: DryRun = False,
) -> None:
    """Teach a smaller encoder by a larger one.

    The student learns its teacher's distribution over masked tokens and its inner states, in a pretraining
    run that can be resumed. Of a teacher without such a distribution, as XLNet, it learns the states:
    objective.distillation.soft=0. With training.teacher `finetune` learns a task from a tuned model."""
    from albertine.pretraining.distillation_settings import distillation_settings

    student = {"depth": depth, "hidden_size": hidden_size, "sharing": sharing}
    settings = distillation_settings(teacher, corpus, output, student, config, overrides or [])
    words = ["distill", str(teacher), str(corpus), *(overrides or [])]
    given = {"output": output, "depth": depth, "hidden-size": hidden_size, "sharing": sharing}
    given |= {"config": config, "branch-from": branch_from}
    words += [f"--{name}={value}" for name, value in given.items() if value is not None]
    run(settings, words, resume, processes, dry_run=dry_run, branch_from=branch_from)
