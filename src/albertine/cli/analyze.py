"""`albertine analyze`: look into a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.inputs import check_texts, lines
from albertine.cli.options import Json, Texts

if TYPE_CHECKING:
    from albertine.analysis.depth import DepthStudy


def depth(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model whose depths share everything.")],
    texts: Texts = None,
    depths: Annotated[int, typer.Option("--depths", min=2, help="How often to apply its block.")] = 48,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Also draw residual and distance into this PNG.")
    ] = None,
    json: Json = False,
) -> None:
    """What a shared block does when it is applied again and again.

    The residual of every depth, the fixed point, and how fast it is approached.
    """
    from albertine.analysis.depth import save_study, study_texts
    from albertine.analysis.plots import check_picture

    if plot is not None:
        check_picture(plot)
    check_texts(texts)
    given = texts or list(lines())
    if not given:
        raise typer.BadParameter("give a text, or pipe lines in", param_hint="TEXT")
    study, loaded = study_texts(model, given, depths=depths)
    if json:
        rate = study.rate if study.rate == study.rate else None  # JSON has no word for what is no number
        show.as_json({**asdict(study), "rate": rate, "depths_of_plan": loaded.config.num_hidden_layers})
    else:
        _print(study, loaded.config.num_hidden_layers)
    if plot is not None:
        save_study(plot, study, f"{model}: one block over depth")


def _print(study: DepthStudy, plan: int) -> None:
    marked = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, plan, len(study.residual)}
    columns = {
        "residual": [f"{x:.2e}" for x in study.residual],
        "cosine": [f"{x:.4f}" for x in study.cosine],
    }
    if study.no_fixed_point is None:
        point = "the fixed point" if all(study.converged) else "the best point found"
        columns[f"distance to {point}"] = [f"{x:.2e}" for x in study.distance]
    rows = [row for row in enumerate(zip(*columns.values(), strict=True), 1) if row[0] in marked]
    show.table(("depth", *columns), [(number, *values) for number, values in rows])
    if (why := study.no_fixed_point) is not None:
        typer.echo(f"{why[:1].upper()}{why[1:]} (the plan has {plan} depths).")
        return
    count, radius = len(study.converged), study.radius
    known = {
        "found": f"for {sum(study.converged)} of {count} texts by {study.solver} in at most "
        f"{max(study.iterations)} iterations, residual up to {max(study.fixed_point_residual):.1e}",
        "spectral radius there": f"{median(radius):.3f} (median), {max(radius):.3f} (largest)",
    }
    if study.rate == study.rate:
        known["the distance falls by"] = f"{study.rate:.3f} a depth"
    show.facts(f"Fixed point (the plan has {plan} depths)", known)


GROUP = "Look into a model: what it does over depth."
COMMANDS = (depth,)
