"""`albertine evaluate`: a pretrained model on held-out documents; tuned runs on their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from albertine.cli import show
from albertine.cli.options import Arithmetic, DeviceOption, Json
from albertine.files import standing

if TYPE_CHECKING:
    from albertine.cli.scores import Score
    from albertine.tasks.judge import Split, TunedRun

TASKS = {"mlm": "masked words", "sop": "sentence order", "nsp": "next sentence"}
NO_SKILL = {"mlm": "the commonest word", "sop": "the commoner order", "nsp": "the commoner answer"}
ORDERS = {"in_order": "in order", "swapped": "swapped", "truly_next": "truly next", "random": "random"}
RULES = ("greedy", "best")


def register(app: typer.Typer) -> None:
    """Add the verb to the command table."""
    app.command("evaluate")(evaluate)


def evaluate(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL CORPUS | MODEL --suite NAME | RUN... [KEY.SUB=VALUE...]",
            help="A pretrained model and a corpus with held-out documents, or a suite; or tuned runs, with "
            "changes to their settings, such as task.folder=FOLDER where the files have moved.",
        ),
    ],
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", min=8, help="Corpus: tokens of a sample; default: the run's, or 128."),
    ] = None,
    sequences: Annotated[
        int, typer.Option("--sequences", min=1, help="Corpus: most samples to judge.")
    ] = 1024,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs/--no-pairs",
            help="Corpus: samples of two segments for a model with sentence order, as it was trained; "
            "without them all models see the same passages.",
        ),
    ] = True,
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            "--texts",
            help="Model: hide words of these files or folders (give it again for more), not of the corpus; "
            "the same words for every vocabulary.",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", metavar="blimp|sling", help="Model: minimal pairs to judge it on."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Suite: the folder of its original files.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Suite: most pairs of a paradigm; default: all.")
    ] = None,
    dev: Annotated[
        bool, typer.Option("--dev", help="Runs: the dev file alone; default: dev and test.")
    ] = False,
    test: Annotated[bool, typer.Option("--test", help="Runs: the test file alone.")] = False,
    file: Annotated[
        Path | None, typer.Option("--file", help="Runs: another file, with columns like those of the run's.")
    ] = None,
    together: Annotated[
        bool, typer.Option("--ensemble", help="Runs: average what they say, as one model.")
    ] = False,
    pick: Annotated[
        int | None, typer.Option("--pick", min=1, help="Ensemble: so many members at most, picked on dev.")
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            "--rule", metavar="greedy|best", help="Ensemble: pick by the score together, or the best alone."
        ),
    ] = "greedy",
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Runs: only write a report of what they left into this folder."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Runs: folder for predictions and report; default: beside them."),
    ] = None,
    device: DeviceOption = "cpu",
    precision: Annotated[
        Arithmetic | None,
        typer.Option(
            "--precision",
            help="Of products; default: as in training for runs, auto for a suite, else float32.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """How good a model is: a pretrained one on documents it has not seen, beside what no skill would score,
    or on a suite of minimal pairs; a tuned run on its dev and test files; several runs as an ensemble."""
    paths, assignments = _parted(what)
    if device != "cpu":
        from albertine.precision import device_of

        device_of(device)
    if rule not in RULES:
        raise typer.BadParameter(f"must be one of {', '.join(RULES)}", param_hint="--rule")
    if suite is not None:
        from albertine.cli import suites

        if len(paths) != 1:
            raise typer.BadParameter("belongs to one model", param_hint="--suite")
        chosen = Arithmetic.auto if precision is None else precision
        suites.suite(paths[0], suite, data, limit, device=device, precision=chosen.value, json=json)
        return
    if data is not None or limit is not None:
        raise typer.BadParameter("belongs to --suite", param_hint="--limit" if data is None else "--data")
    if len(paths) == 2 and not (together or report) and not _is_model(paths[1]):
        _held_out(paths[0], paths[1], texts or [], max_length, sequences, pairs, device, precision, json)
        return
    if texts:
        if len(paths) != 1 or together or report:
            raise typer.BadParameter("belongs to one model", param_hint="--texts")
        _held_out(paths[0], None, texts, max_length, sequences, pairs, device, precision, json)
        return
    from albertine.cli import judging

    splits: tuple[Split, ...] = ("dev", "test") if dev == test else ("dev",) if dev else ("test",)
    if file is not None:
        splits = ("dev", "test") if pick else ("test",)

    def opened() -> list[TunedRun]:
        return judging.opened(paths, assignments, file, None if precision is None else precision.value)

    if report is not None:
        judging.report(paths, report, json)
    elif together:
        judging.ensemble(opened(), pick, "best" if rule == "best" else "greedy", splits, device, output, json)
    else:
        if pick is not None:
            raise typer.BadParameter("belongs to --ensemble", param_hint="--pick")
        judging.runs(opened(), paths, splits, device, output, json)


def _parted(words: list[str]) -> tuple[list[Path], list[str]]:
    """Paths, and settings written key.sub=value."""
    settings = [word for word in words if "=" in word and not Path(word).exists()]
    paths = [Path(word) for word in words if word not in settings]
    if not paths:
        raise typer.BadParameter("name a model and a corpus, or a run", param_hint="MODEL CORPUS | RUN...")
    return paths, settings


def _is_model(path: Path) -> bool:
    return any((standing(path) / name).is_file() for name in ("settings.yaml", "config.json"))


def _held_out(
    model: Path,
    corpus: Path | None,
    texts: list[Path],
    max_length: int | None,
    sequences: int,
    pairs: bool,
    device: str,
    precision: Arithmetic | None,
    json: bool,
) -> None:
    from albertine.cli.reading import reading
    from albertine.cli.scores import held_out_scores

    form = Arithmetic.float32 if precision is None else precision
    scores = []
    if corpus is not None:
        scores = held_out_scores(
            model,
            corpus,
            max_length=max_length,
            sequences=sequences,
            pairs=pairs,
            device=device,
            precision=form.value,
        )
    read = reading(
        model, corpus, texts, max_length=max_length, passages=sequences, device=device, precision=form.value
    )
    if json:
        told = [score.told() for score in scores] or [{"task": "mlm"}]
        show.as_json([told[0] | read, *told[1:]])
        return
    if scores:
        print_scores(scores)
    _print_reading(read)


def print_scores(scores: list[Score]) -> None:
    """The scores as a table."""
    columns = ("held-out documents", "right", "without skill", "loss", "without skill", "judged")
    rows, known = [], {}
    for s in scores:
        name, right = f"{TASKS[s.task]} (without skill: {NO_SKILL[s.task]})", s.baseline
        more = s.details
        if "mask_loss" in more:
            hidden = (more["mask_accuracy"], more["mask_baseline"], more["mask_loss"])
            rows.append(_row(name, *hidden, more["mask_baseline_loss"], more["mask_count"]))
            name, right = "  those kept or replaced too (without skill: copies them)", more["floor"]
            known["context gain"] = f"{more['context_gain']:.3f} nats less than without skill"
            known["mean cosine of final states"] = f"{more['cosine']:.3f} (1: the same for every word)"
        rows.append(_row(name, s.accuracy, right, s.loss, s.baseline_loss, s.count))
        for key, told in ORDERS.items():
            if (value := more.get(f"{key}_accuracy")) is not None:
                rows.append([f"  pairs {told}", f"{value:.1%}", "", "", "", ""])
    show.table(columns, rows)
    if known:
        show.facts("Masked words", known)


def _row(name: str, right: float, floor: float, loss: float, level: float, count: int) -> list[str]:
    return [name, f"{right:.1%}", f"{floor:.1%}", f"{loss:.3f}", f"{level:.3f}", show.count(count)]


def _print_reading(read: Mapping[str, Any]) -> None:
    spans, copying, minute = read["spans"], read["copying"], read["onset_minutes"]
    known = {
        "nats per character": f"{spans['nats_per_character']:.4f} "
        f"(by frequency alone {spans['unigram_nats_per_character']:.4f})",
        "whole words right": f"{spans['span_accuracy']:.1%} of {show.count(spans['spans'])}, "
        f"{show.count(spans['characters'])} characters",
        "pieces right": f"{spans['piece_accuracy']:.1%} of {show.count(spans['pieces'])}, "
        f"{spans['unknown']:.1%} unknown",
    }
    show.facts("Fixed words of the text, all [MASK]", known)
    if copying is not None:
        known = {
            "right": f"{copying['right']:.1%} ± {100 * copying['standard_error']:.1f}",
            "without the first copy": f"{copying['without_copy']:.1%} of {show.count(copying['words'])}",
        }
        show.facts("A passage twice, a word masked in the second", known)
    if minute is not None:
        typer.echo(f"Context gain over 0.3 nats from minute {minute:.1f} of training on.")
